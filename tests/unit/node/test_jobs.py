# SPDX-License-Identifier: Apache-2.0
"""What is not exported is not read, and nothing else is missing."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.cli.options import load_config
from slurmscope.cli.roles import find_role
from slurmscope.exporter.exporter import RunningExporter
from slurmscope.http.server.app import ScrapeRequest
from slurmscope.jobs.queries import REPORTS_METRICS
from slurmscope.node.cgroup import v1_group
from slurmscope.node.cgroup import v2 as v2_group
from slurmscope.node.cgroup.folders import NUMA_FILE
from slurmscope.node.exporter import TrackingOptions, open_job_tracker
from slurmscope.node.job_use import WHOLE_JOB
from slurmscope.node.jobs import COLLECTOR, METRICS_OF_FILES, find_needs
from tests.fixtures.cgroup.make import unpack

NAMES = {metric.name for metric in COLLECTOR.metrics}
LEFT_OUT = (
    'event="max"', 'event="low"', 'event="high"', 'event="oom"', 'event="oom_group_kill"', 'state="',
    'has_ended="false"',
)  # fmt: skip


def read_jobs(root: Path, profile: str) -> list[str]:
    """Return the lines of the jobs' metrics."""
    given = {
        "path_cgroup": str(root / "sys" / "fs" / "cgroup"),
        "path_procfs": str(root / "proc"),
        "metrics_profile": profile,
        "slurm_private_data": "ignore",  # this host has no slurm.conf
    }
    exporter = find_role("node").make_exporter(lambda: load_config("node", given))
    with closing(RunningExporter(exporter, exporter.load())) as running:
        page = b"".join(running.scrape(ScrapeRequest(deadline_seconds=60))).decode()
    return [line for line in page.splitlines() if line.partition("{")[0] in NAMES]


@pytest.mark.parametrize("capture", ["v1-slurm-22.05", "v2-slurm-22.05"])
def test_page_for_reports_has_the_same_values_as_the_standard_page(tmp_path: Path, capture: str) -> None:
    root = unpack(capture, tmp_path)
    standard, reports = read_jobs(root, "standard"), read_jobs(root, "reports")
    queried = [line for line in standard if line.partition("{")[0] in REPORTS_METRICS]

    assert len(reports) < len(standard) / 2
    assert any(line.startswith("jobs_memory_anon_bytes{") for line in reports)
    assert [line for line in queried if not any(label in line for label in LEFT_OUT)] == [
        line for line in reports if 'state="running"' not in line
    ]


def test_memory_stays_known_after_its_cgroup_is_removed(tmp_path: Path) -> None:
    """On cgroup v1, Slurm removes those of a job one after the other."""
    root = unpack("v1-slurm-22.05", tmp_path)
    unneeded = find_needs(lambda metric: metric.name in REPORTS_METRICS).unneeded_files
    options = TrackingOptions(
        cgroup_root=root / "sys" / "fs" / "cgroup",
        procfs_root=root / "proc",
        descriptors=0,  # files of a tmpfs stay readable while they are open, those of a cgroup do not
        unneeded_files=unneeded,
    )
    with open_job_tracker(options) as tracker:
        (before,) = tracker.snapshot().jobs
        (folder,) = options.cgroup_root.glob("memory/**/job_*")
        shutil.rmtree(folder)
        (after,) = tracker.snapshot().jobs

    memory = before.groups[WHOLE_JOB].memory
    assert memory.current_bytes is None
    assert None not in (memory.anon_bytes, memory.peak_bytes, memory.events.get("oom_kill"))
    assert memory == after.groups[WHOLE_JOB].memory


def test_files_that_are_left_out_are_files_of_cgroups() -> None:
    assert {*v1_group.FILES, *v2_group.FILES, NUMA_FILE} >= METRICS_OF_FILES.keys()
    assert {name for names in METRICS_OF_FILES.values() for name in names} <= NAMES


def test_everything_is_read_while_all_metrics_are_exported() -> None:
    needs = find_needs(lambda _: True)

    assert (frozenset(), True, True, True) == (needs.unneeded_files, needs.switches, needs.queue, needs.steps)


def test_nothing_but_the_necessary_is_read_for_reports() -> None:
    needs = find_needs(lambda metric: metric.name in REPORTS_METRICS)

    assert METRICS_OF_FILES.keys() == needs.unneeded_files
    assert (False, False) == (needs.switches, needs.steps)


def test_file_is_read_for_any_of_its_metrics() -> None:
    assert "memory.current" not in find_needs(lambda metric: "step_memory" in metric.name).unneeded_files
