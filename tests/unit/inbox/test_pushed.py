# SPDX-License-Identifier: Apache-2.0
"""Check what pushed families look like on the page, and which of them cannot stand beside others."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slurmscope.core.errors import MalformedAnswer
from slurmscope.inbox.pushed import (
    OwnMetrics,
    PushConflict,
    PushedFamily,
    check_beside,
    check_owners,
    complete,
    find_related,
    label_family,
    time_family,
)
from slurmscope.metrics.family import counter, gauge, histogram, info
from slurmscope.metrics.parse import parse
from slurmscope.metrics.write import Format

JOB = {"job": "backup"}
OWN = OwnMetrics(
    (
        counter("slurm_runs_total", "Runs."),
        histogram("slurm_wait_seconds", "Wait.", buckets=(1.0,)),
        gauge("process_open_fds", "Files."),
        info("slurm_site_info", "Site."),
    ),
    shared=(gauge("process_open_fds", "Files."),),
    others=("lustre_job_read_bytes_total",),
)


def pushed(text: str, *, grouping: dict[str, str] = JOB, limit: int = 100) -> PushedFamily:
    (family,) = parse(text, Format.TEXT)
    return label_family(complete(family), grouping, limit)


def conflict(family: PushedFamily, other: PushedFamily) -> str:
    with pytest.raises(PushConflict) as refused:
        check_beside(family, other)
    with pytest.raises(PushConflict):
        check_beside(other, family)
    return str(refused.value)


def test_group_labels_replace_those_of_samples_and_instance_is_always_set() -> None:
    family = pushed(
        '# HELP a A \\\\ and\\nB\n# TYPE a gauge\na{job="x",z="q\\"\\\\\\n",empty=""} 1\na NaN\na{b="c"} -Inf\n'
    )

    assert (
        "# HELP a A \\\\ and\\nB\n# TYPE a gauge\n"
        'a{instance="",job="backup",z="q\\"\\\\\\n"} 1.0\n'
        'a{instance="",job="backup"} NaN\na{b="c",instance="",job="backup"} -Inf\n'
    ) == family.header + family.lines
    (read,) = text_string_to_metric_families(family.header + family.lines)
    assert {"instance": "", "job": "backup", "z": 'q"\\\n'} == read.samples[0].labels
    assert ("A \\ and\nB", "gauge") == (read.documentation, read.type)


def test_histogram_has_normal_bounds_and_all_its_samples() -> None:
    family = pushed(
        '# TYPE h histogram\nh_bucket{le="1.0"} 1\nh_bucket{le="1000000"} 2\nh_bucket{le="1e-5"} 0\n'
        'h_bucket{le="-12345678"} 0\nh_bucket 9\nh_count 3\n',
        grouping={"job": "x"},
    )
    label = 'instance="",job="x"'
    # As Debian's Pushgateway 1.5.1 writes them, but for the decimal points of values.
    assert {
        f'h_bucket{{{label},le="1"}}': "1.0",
        f'h_bucket{{{label},le="1e+06"}}': "2.0",
        f'h_bucket{{{label},le="1e-05"}}': "0.0",
        f'h_bucket{{{label},le="-1.2345678e+07"}}': "0.0",
        f'h_bucket{{{label},le="+Inf"}}': "3.0",
        f"h_sum{{{label}}}": "0.0",
        f"h_count{{{label}}}": "3.0",
    } == family.samples


def test_summary_has_normal_quantiles_and_all_its_samples() -> None:
    family = pushed('# TYPE s summary\ns{quantile="0.50"} 1\ns{quantile="NAN"} 2\ns 5\n', grouping={"job": "x"})
    label = 'instance="",job="x"'
    assert {
        f's{{{label},quantile="0.5"}}': "1.0",
        f's{{{label},quantile="NaN"}}': "2.0",
        f"s_sum{{{label}}}": "0.0",
        f"s_count{{{label}}}": "0.0",
    } == family.samples


@pytest.mark.parametrize("bound", ["x", "", "1_0", "0x1p", " 1", "1e99999"])
def test_bound_that_is_not_a_number_is_refused(bound: str) -> None:
    with pytest.raises(MalformedAnswer, match="the label le of h_bucket is not a number"):
        pushed(f'# TYPE h histogram\nh_bucket{{le="{bound}"}} 1\n')
    pushed(f'h_bucket{{le="{bound}"}} 1\n')


def test_group_of_a_histogram_cannot_have_the_label_of_its_bounds() -> None:
    with pytest.raises(PushConflict, match="le cannot be a label of a group with h, a histogram"):
        pushed("# TYPE h histogram\nh_count 1\n", grouping={"job": "x", "le": "1"})
    pushed("g 1\n", grouping={"job": "x", "le": "1"})


def test_untyped_family_without_help_has_no_help_line() -> None:
    assert "# TYPE a untyped\n" == pushed("a 1\n").header


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a 1 1000\n", "pushed metrics must not have timestamps"),
        ("a 1\na 2\n", 'a{instance="",job="backup"} is pushed twice'),
        ('a 1\na{x=""} 2\n', 'a{instance="",job="backup"} is pushed twice'),
        ('a{job="x"} 1\na{job="y"} 2\n', 'a{instance="",job="backup"} is pushed twice'),
        (f'a{{x="{"y" * 101}"}} 1\n', "a label of a is longer than 100 characters"),
        (f'a{{x="{"y" * 99}"}} 1\na{{x="{"y" * 99}"}} 1\n', "y… is pushed twice"),
    ],
)
def test_page_that_would_not_be_valid_is_refused(text: str, reason: str) -> None:
    with pytest.raises(PushConflict) as refused:
        pushed(text)
    assert str(refused.value).endswith(reason)


@pytest.mark.parametrize(
    "text",
    [
        "slurm_runs_total 1\n",
        "slurm_runs 1\n",
        "slurm_wait_seconds_count 1\n",
        "slurm_site_info 1\n",
        "process_open_fds 1\n",
        "up 1\n",
        "ALERTS 1\n",
        "ALERTS_FOR_STATE 1\n",
        "scrape_samples_scraped 1\n",
        "# TYPE scrape_duration_seconds gauge\nscrape_duration_seconds 1\n",
        "slurm_job:jobs_cores:sum 1\n",
        'lustre_job_read_bytes_total{jobid="1"} 1\n',
    ],
)
def test_names_of_the_exporter_are_refused(text: str) -> None:
    (*_, family) = parse(text, Format.TEXT)
    with pytest.raises(PushConflict):
        OWN.check(label_family(family, JOB, 100))


def test_metrics_of_every_program_may_be_pushed_as_may_new_ones() -> None:
    OWN.check(pushed("# TYPE process_open_fds gauge\nprocess_open_fds 1\n"))
    OWN.check(pushed("backup_seconds 1\n"))
    OWN.check(pushed("uptime 1\n"))


def test_families_of_two_groups_need_one_type_and_different_series() -> None:
    other = {"job": "other"}
    check_beside(pushed("# HELP a one\na 1\n"), pushed("# HELP a two\na 1\n", grouping=other))
    assert "a has the type untyped, not gauge, in another group" == conflict(
        pushed("# TYPE a gauge\na 1\n"), pushed("a 1\n", grouping=other)
    )
    family = pushed('a{instance="n1"} 1\n')
    (series,) = family.samples
    check_owners(family, {"b": "another"}, "this")
    check_owners(family, {series: "this"}, "this")
    with pytest.raises(PushConflict, match=r'a{instance="n1",job="backup"} is also in another group'):
        check_owners(family, {series: "another"}, "this")


@pytest.mark.parametrize(("type", "suffixes"), [("histogram", ("_bucket", "_count", "_sum")), ("summary", ("_sum",))])
def test_names_of_histograms_and_summaries_are_taken(type: str, suffixes: tuple[str, ...]) -> None:
    whole = pushed(f"# TYPE a {type}\na_sum 1\na_count 1\n")
    for suffix in suffixes:
        single = pushed(f"a{suffix} 1\n")
        assert f"a{suffix} belongs to both" in conflict(single, whole)
        assert single.name in set(find_related(whole))
        assert whole.name in set(find_related(single))
    check_beside(whole, pushed("a_created 1\n"))


def test_bucket_of_a_summary_is_a_name_of_its_own() -> None:
    check_beside(pushed("# TYPE a summary\na_sum 1\na_count 1\n"), pushed("a_bucket 1\n"))


def test_times_of_groups_are_one_family() -> None:
    family = time_family("push_time_seconds", "Time.", [(JOB, 1.5), ({"job": "b", "instance": "n"}, 0.0)])

    assert (
        "# HELP push_time_seconds Time.\n# TYPE push_time_seconds gauge\n"
        'push_time_seconds{instance="",job="backup"} 1.5\npush_time_seconds{instance="n",job="b"} 0.0\n'
    ) == family.header + family.lines
