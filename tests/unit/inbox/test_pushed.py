# SPDX-License-Identifier: Apache-2.0
"""Check what pushed families look like on the page, and which of them cannot stand beside others."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slurmscope.inbox.pushed import (
    OwnMetrics,
    PushConflict,
    PushedFamily,
    check_beside,
    check_owners,
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
)


def pushed(text: str, *, grouping: dict[str, str] = JOB, limit: int = 100) -> PushedFamily:
    (family,) = parse(text, Format.TEXT)
    return label_family(family, grouping, limit)


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
        "push_time_seconds 1\n",
        "push_failure_time_seconds 1\n",
    ],
)
def test_names_of_the_exporter_are_refused(text: str) -> None:
    (*_, family) = parse(text, Format.TEXT)
    with pytest.raises(PushConflict):
        OWN.check(label_family(family, JOB, 100))


def test_metrics_of_every_program_may_be_pushed_as_may_new_ones() -> None:
    OWN.check(pushed("# TYPE process_open_fds gauge\nprocess_open_fds 1\n"))
    OWN.check(pushed("backup_seconds 1\n"))


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
