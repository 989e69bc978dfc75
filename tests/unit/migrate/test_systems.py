# SPDX-License-Identifier: Apache-2.0
"""Every metric of the replaced tools is described once, and every older name of ours belongs to one of them."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from slurmscope.cli.options import explain_removed
from slurmscope.cli.roles import all_collectors, feature_metrics
from slurmscope.exporter.collector import Role
from slurmscope.exporter.self_metrics import SELF_METRICS
from slurmscope.metrics.family import Metric
from slurmscope.migrate.check import SYSTEMS, known_metrics
from slurmscope.migrate.old_systems import OldSystem
from slurmscope.migrate.slurm_exporter import FLAGS
from tests.fakes.command_line import run_here

OF_FEATURES = feature_metrics(Role.CLUSTER)
DECLARED: dict[str, Metric] = {
    metric.name: metric
    for metric in (*(m for role in Role for c in all_collectors(role) for m in c.metrics), *OF_FEATURES)
}
OURS = {*DECLARED, *(metric.name for metric in SELF_METRICS)}
# Named by the README of each tool; the names of plugin fields are Slurm's.
README_NAMES = {
    "slurm-exporter": ("slurm_account_cpu_alloc", "slurm_job_count_per_state", "slurm_proc_pid", "slurm_mem_real"),
    "jobs-exporter": ("jobs_cpu_percent", "jobs_uses_scratch", "jobs_read_count", "jobs_spawned_processes"),
    "pseudo-exporter": ("cpu_usage", "ram_usage", "ncpus"),
    "cluster-exporter": ("cluster_exporter_scrape_ok", "cluster_proc_write_throughput_bytes"),
    "profile-plugin": ("CPUUtilization", "RSS"),
    "sckyzo-exporter": ("slurm_queue_pending", "slurm_node_status", "slurm_rpc_stats"),
    "ceems": ("ceems_compute_unit_cpus", "ceems_rapl_package_joules_total"),
    "cgroup-exporter": ("cgroup_cpus", "cgroup_memory_rss_bytes", "cgroup_info"),
    "jobstats": ("nvidia_gpu_duty_cycle", "cgroup_uid"),
}


def test_every_name_is_described_once() -> None:
    counts = Counter(name for system in SYSTEMS for metrics in system.metrics() for name in metrics.names)

    assert {1} == set(counts.values())


def test_every_older_name_of_ours_is_described() -> None:
    assert set() == {name for name, metric in DECLARED.items() if metric.is_compat} - set(known_metrics())


def test_what_slurmscope_does_not_have_is_said_with_a_reason() -> None:
    assert [] == [name for name, (_, old) in known_metrics().items() if name not in DECLARED and not old.missing]


def test_metrics_of_one_row_have_the_same_type_and_labels() -> None:
    rows = [[DECLARED[name] for name in old.names if name in DECLARED] for s in SYSTEMS for old in s.metrics()]

    assert [] == [row[0].name for row in rows if len({(metric.kind, metric.labels) for metric in row}) > 1]


@pytest.mark.parametrize("flag", FLAGS)
def test_documented_flag_is_accepted_or_explained(flag: str) -> None:
    done = run_here("config", "check", "cluster", flag)

    assert done.returncode == 0 or explain_removed([flag]) or flag.startswith("-trace."), done.stderr


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.page)
def test_names_of_the_readme_are_described(system: OldSystem) -> None:
    assert set() == set(README_NAMES[system.page]) - set(system.by_name())


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.page)
def test_metrics_that_a_description_points_to_exist(system: OldSystem) -> None:
    texts = [text for old in system.metrics() for text in (old.difference, old.missing)]
    named = {name for text in texts for name in re.findall(r"`((?:jobs|slurm|slurmscope|gpu)_\w+)`", text)}

    assert set() == named - OURS
