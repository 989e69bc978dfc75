# SPDX-License-Identifier: Apache-2.0
"""Check the readings of the node agent: busy cores, user names, paths, and what can be read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.cli.roles import all_collectors
from slurmscope.core.errors import SourceError
from slurmscope.exporter.collector import Role
from slurmscope.exporter.reading import SharedReading
from slurmscope.http.server.app import Audience
from slurmscope.node.checks import check_node
from slurmscope.node.exporter import TrackingOptions, find_pids, open_job_tracker
from slurmscope.node.job_registry import NodeJobsReader
from slurmscope.node.job_use import CgroupUse, CpuUse, GroupKey, JobKey, JobUse, NodeJobs
from slurmscope.node.settings import PathSettings
from tests.fakes.exporters import load_role, open_role


def snapshots(*given: NodeJobs) -> Callable[[], NodeJobs]:
    """Return a function that returns one snapshot after the other."""
    return iter(given).__next__


def job(cpu_seconds: float | None, *, number: int = 1, has_ended: bool = False) -> JobUse:
    return JobUse(
        key=JobKey(number),
        uid=1001,
        has_ended=has_ended,
        pids=frozenset({number * 10}),
        groups={GroupKey(): CgroupUse(cpu=CpuUse(total_seconds=cpu_seconds))},
    )


def read_twice(first: JobUse, second: JobUse, seconds: float = 10.0) -> float | None:
    times = iter([100.0, 100.0 + seconds])
    reader = NodeJobsReader(snapshots(NodeJobs(jobs=(first,)), NodeJobs(jobs=(second,))), str, lambda: next(times))
    assert reader.read().jobs[0].busy_cores is None
    return reader.read().jobs[0].busy_cores


def test_busy_cores_are_cpu_time_over_time() -> None:
    assert 1.5 == read_twice(job(20.0), job(35.0))


def test_cpu_time_that_fell_is_no_negative_use() -> None:
    assert 0.0 == read_twice(job(20.0), job(5.0))


@pytest.mark.parametrize("second", [job(None), job(35.0, has_ended=True), job(35.0, number=2)])
def test_busy_cores_need_two_readings_of_a_running_job(second: JobUse) -> None:
    assert read_twice(job(20.0), second) is None


def test_two_readings_at_the_same_time_give_no_busy_cores() -> None:
    assert read_twice(job(20.0), job(20.0), seconds=0.0) is None


def test_processes_of_running_jobs_are_those_of_now() -> None:
    first = NodeJobs(jobs=(job(1.0, number=5),))
    second = NodeJobs(jobs=(job(1.0), job(1.0, number=3, has_ended=True)))
    reading = SharedReading("jobs", snapshots(first, second), interval_seconds=0)

    assert [{50}, {10}] == [find_pids(reading), find_pids(reading)]
    # The next reading fails: those of the last good one are known.
    assert {10} == find_pids(reading)


def test_processes_of_jobs_that_were_never_read_are_not_taken_for_logins() -> None:
    def fail() -> NodeJobs:
        raise SourceError("no cgroups")

    with pytest.raises(SourceError, match="no cgroups"):
        find_pids(SharedReading("jobs", fail, interval_seconds=0))


def test_users_are_named() -> None:
    jobs = NodeJobs(jobs=(job(1.0), job(1.0, number=2), job(1.0, number=3, has_ended=True)))
    reader = NodeJobsReader(snapshots(jobs, jobs), lambda uid: f"user{uid}")

    assert {1001: "user1001"} == reader.read().users


def test_readings_have_the_name_of_the_host() -> None:
    assert "n17" == NodeJobsReader(snapshots(NodeJobs(), NodeJobs()), str, host_name="n17").read().host_name


def test_paths_move_with_the_root() -> None:
    paths = PathSettings(rootfs=Path("/host"))

    assert Path("/host/sys/fs/cgroup") == paths.below_root(paths.cgroup)
    assert Path("/proc") == PathSettings().below_root(Path("/proc"))
    assert Path("fixture") == paths.below_root(Path("fixture"))


def test_node_is_healthy_if_jobs_and_processes_can_be_read() -> None:
    jobs = NodeJobs(layout="v2", available={"process_io": True, "cgroup_io": False})

    checks = {check.name: check for check in check_node(jobs, has_capabilities=True)}

    assert all(check.is_good for check in checks.values())
    assert "EnableExtraControllers" in checks["source cgroup_io"].advice


def test_what_is_missing_comes_with_advice() -> None:
    jobs = NodeJobs(layout="processes", available={"process_io": False})

    checks = {check.name: check for check in check_node(jobs, has_capabilities=False)}

    assert {"layout", "capabilities", "source process_io"} == {n for n, c in checks.items() if not c.is_good}
    assert all(check.advice for check in checks.values())


def test_every_collector_has_its_readings(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    config = load_role("node", {"path.rootfs": str(tmp_path)})
    with closing(open_role("node", config)) as readings:
        readings.require(all_collectors(Role.NODE))


def test_machine_without_slurm_is_unsupported(tmp_path: Path) -> None:
    with open_job_tracker(TrackingOptions(cgroup_root=tmp_path, procfs_root=tmp_path)) as tracker:
        taken = tracker.snapshot()
    assert ((), "unsupported") == (taken.jobs, taken.layout)


def test_processes_of_this_machine_are_scanned_if_there_are_no_cgroups(tmp_path: Path) -> None:
    with open_job_tracker(TrackingOptions(cgroup_root=tmp_path)) as tracker:
        taken = tracker.snapshot()
    # In a container, jobs may run where this process cannot see them; there processes count as unavailable.
    is_host = "pid:[4026531836]" == str(Path("/proc/self/ns/pid").readlink())
    assert taken.available["processes"] or not is_host
    assert taken.layout in ("processes", "unsupported")


def test_private_data_hides_every_series_about_a_user_or_job_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "proc").symlink_to("/proc")
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/slurm.conf").write_text("ClusterName=alpha\nPrivateData=jobs,accounts\n")
    with closing(open_role("node", load_role("node", {"path.rootfs": str(tmp_path)}))) as features:
        hidden = features.hidden_labels(0.0, Audience.NETWORK)
        assert not features.hidden_labels(0.0, Audience.ADMITTED)

    shown = {label for collector in all_collectors(Role.NODE) for metric in collector.metrics
             for label in metric.labels if hidden.isdisjoint(metric.labels)}  # fmt: skip
    # Of the node, its hardware and slurmscope itself; a new label is to be judged here.
    assert {
        "action", "bus", "covers", "device", "domain", "error", "event", "filesystem", "fstype", "gpu", "kind",
        "layout", "mig", "minor", "model", "parent_uuid", "pipe", "reason", "result", "slurm_node", "source", "state",
        "transport", "uuid", "what", "xid",
    } == shown  # fmt: skip


def test_ignored_private_data_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "proc").symlink_to("/proc")
    flags = {"path.rootfs": str(tmp_path), "slurm.private-data": "ignore"}
    with closing(open_role("node", load_role("node", flags))) as features:
        assert not features.hidden_labels(0.0, Audience.NETWORK)
