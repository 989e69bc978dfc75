# SPDX-License-Identifier: Apache-2.0
"""A check finds what would be lost, and names the flag that keeps it."""

from __future__ import annotations

import pytest

from slurmscope.exporter.collector import Collector, Role
from slurmscope.metrics.family import Metric, compat_gauge, gauge
from slurmscope.migrate.check import Declared, PageComparison, check_pages, declare, find_roles
from slurmscope.migrate.pages import parse_page

NEW = gauge("slurm_jobs_now", "New name.", "state")
DECLARED = {
    "slurm_cpus_total": Declared(
        role=Role.CLUSTER, metric=compat_gauge("slurm_cpus_total", "Old name."), collector="nodes"
    ),
    "slurm_mem_real": Declared(
        role=Role.CLUSTER, metric=compat_gauge("slurm_mem_real", "Old name."), collector="nodes"
    ),
    "slurm_job_cpu_alloc": Declared(
        role=Role.CLUSTER, metric=compat_gauge("slurm_job_cpu_alloc", "Old name.", "jobid"), collector="job_info"
    ),
    "slurm_job_scrape_duration": Declared(
        role=Role.CLUSTER, metric=compat_gauge("slurm_job_scrape_duration", "Milliseconds.")
    ),
    "slurm_jobs_now": Declared(role=Role.CLUSTER, metric=NEW, collector="jobs"),
    "cpu_usage": Declared(
        role=Role.NODE, metric=compat_gauge("cpu_usage", "Old name.", "command"), collector="process_groups"
    ),
}
HEALTH = 'slurmscope_collector_success{collector="nodes"} 1\nslurmscope_collector_success{collector="jobs"} 0\n'


def check(old: str, ours: str) -> PageComparison:
    return check_pages(parse_page(old.encode()), parse_page(ours.encode()), DECLARED)


def remedies(old: str, ours: str) -> dict[str, str]:
    return {loss.difference.metric: loss.remedy for loss in check(old, ours).losses}


def test_equal_pages_lose_nothing() -> None:
    comparison = check(
        "slurm_cpus_total 4\ngo_goroutines 7\nprocess_max_fds 9\n", f"slurm_cpus_total 4\nprocess_max_fds 8\n{HEALTH}"
    )

    assert (2, 1, (), True) == (comparison.compared, comparison.left_out, comparison.losses, comparison.is_lossless)


@pytest.mark.parametrize(
    ("old", "ours", "remedy"),
    [
        ("slurm_job_cpu_alloc 1\n", HEALTH, "Start slurmscope cluster with --collector.job_info."),
        ("slurm_jobs_now 1\n", HEALTH, "The collector jobs failed; slurmscope doctor cluster says why."),
        ("slurm_cpus_total 1\n", HEALTH, "Start slurmscope cluster with --metrics.compat."),
        (
            "slurm_cpus_total 1\n",
            f"{HEALTH}slurm_mem_real 1\n",
            "slurmscope has no value for it now; --metrics.exclude or PrivateData may hide it.",
        ),
        (
            "cpu_usage 1\n",
            "slurm_mem_real 1\n",
            "It is served by slurmscope node; give its page with --against as well.",
        ),
        ("slurm_job_scrape_duration 1\n", HEALTH, "Start slurmscope cluster with --metrics.compat."),
        ("slurm_unheard_of 1\n", HEALTH, "slurmscope has no metric of this name."),
        ("cluster_exporter_scrape_ok 1\n", HEALTH, ""),
    ],
)
def test_missing_metric_has_its_remedy(old: str, ours: str, remedy: str) -> None:
    assert {old.split(maxsplit=1)[0]: remedy} == remedies(old, ours)
    assert not check(old, ours).is_lossless


def test_renamed_label_has_a_relabelling() -> None:
    found = remedies('slurm_cpus_total{part="a"} 1\n', 'slurm_cpus_total{partition="a"} 1\n')

    wanted = "Add to metric_relabel_configs: {source_labels: [partition], target_label: part}"
    assert {"slurm_cpus_total": wanted} == found


def test_documented_correction_is_no_loss() -> None:
    comparison = check("slurm_mem_real 1e6\n", "slurm_mem_real 1048576\n")

    (loss,) = comparison.losses
    assert (False, True) == (loss.counts, comparison.is_lossless)
    assert loss.documented.startswith("binary units")
    assert "docs/migrate/slurm-exporter.md" == loss.page


@pytest.mark.parametrize("now", ["0", "1048576e4", "1.2e6", "1e6\nslurm_mem_free 5"])
def test_reason_explains_its_own_factor_only(now: str) -> None:
    comparison = check("slurm_mem_real 1e6\n", f"slurm_mem_real {now}\n")

    assert now.startswith("1e6") == comparison.is_lossless


@pytest.mark.parametrize("third", ["1", "10000", "0", None])
def test_one_of_three_series_is_enough_for_a_loss(third: str | None) -> None:
    old = "".join(f'slurm_account_cpu_limit{{account="{name}"}} 1\n' for name in "abc")
    ours = old.replace('c"} 1', f'c"}} {third}') if third else old[: old.index("slurm", 70)]
    comparison = check_pages(parse_page(old.encode()), parse_page(ours.encode()), DECLARED)

    assert (third == "1") == comparison.is_lossless


def test_undocumented_factor_is_a_loss() -> None:
    assert not check("slurm_cpus_total 4\n", "slurm_cpus_total 8\n").is_lossless


def test_missing_metric_says_what_is_documented() -> None:
    (loss,) = check("slurm_scredits_used 1\n", "").losses

    assert ("read from scredits, which is not part of Slurm", "docs/migrate/slurm-exporter.md") == (
        loss.documented,
        loss.page,
    )


def test_durations_are_not_compared() -> None:
    assert check("slurm_job_scrape_duration 12\n", "slurm_job_scrape_duration 90\n").is_lossless


def test_instance_of_the_old_page_is_noticed() -> None:
    assert check('slurm_cpus_total{instance="n1"} 1\n', "slurm_cpus_total 1\n").has_instance
    assert not check("slurm_cpus_total 1\n", "slurm_cpus_total 1\n").has_instance


def test_roles_are_those_of_the_old_metrics() -> None:
    page = parse_page(b"cpu_usage 1\nslurm_cpus_total 1\n")

    assert (Role.CLUSTER, Role.NODE) == find_roles(page, DECLARED)
    assert (Role.NODE,) == find_roles(parse_page(b"cpu_usage 1\n"), DECLARED)
    assert () == find_roles(parse_page(b"slurm_scredits_used 1\n"), DECLARED)


def test_metric_of_two_collectors_is_that_of_the_first() -> None:
    metric = gauge("slurm_job_cpus", "Cores.")
    collectors = [make_collector(name, metric) for name in ("job_info", "traces")]

    assert "job_info" == declare(collectors, [NEW])["slurm_job_cpus"].collector
    assert "" == declare(collectors, [NEW])["slurm_jobs_now"].collector


def make_collector(name: str, metric: Metric) -> Collector:
    return Collector(name=name, role=Role.CLUSTER, help="", needs=(), metrics=(metric,), collect=lambda _: iter(()))
