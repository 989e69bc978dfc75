# SPDX-License-Identifier: Apache-2.0
"""Check that jobs are found by cgroups, else by processes, and which directories are watched for their end."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from slurmscope.node.cgroup.job import JobCgroup
from slurmscope.node.cgroup.tree import CgroupLayout, CgroupTree, LayoutKind
from slurmscope.node.job_finder import STEP_LIMIT, JobFinder
from slurmscope.node.job_use import JobKey
from slurmscope.node.procfs.stepd_jobs import StepdJob, StepdTree
from tests.fakes.live_jobs import FakeJob

KEY = JobKey(7)


@dataclass
class FakeCgroups(CgroupTree):
    """Be a tree of cgroups."""

    layout: CgroupLayout
    scopes: int = 1
    stale: int = 0
    jobs: dict[JobKey, FakeJob] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)

    def scan(self) -> dict[JobKey, JobCgroup]:
        """Return the jobs."""
        return cast(dict[JobKey, JobCgroup], self.jobs)

    def watch_paths(self) -> list[Path]:
        """Return where jobs come and go."""
        return self.paths

    def watch_roots(self) -> list[Path]:
        """Return the first of them."""
        return self.paths[:1]


@dataclass
class FakeStepds(StepdTree):
    """Be the processes of a machine."""

    jobs: dict[JobKey, StepdJob] = field(default_factory=dict)
    scans: int = 0

    def scan(self) -> dict[JobKey, StepdJob]:
        """Return the jobs, and count."""
        self.scans += 1
        return self.jobs

    def is_quiet(self) -> bool:
        """Return whether there is no job."""
        return not self.jobs

    def programs(self) -> list[Path] | None:
        """Return the program of the only slurmd."""
        return [Path("/usr/sbin/slurmstepd")]


def v1(root: Path) -> CgroupLayout:
    hierarchies = {name: root / name for name in ("freezer", "cpuacct", "memory")}
    return CgroupLayout(kind=LayoutKind.V1, hierarchies=hierarchies)


def v2(root: Path) -> CgroupLayout:
    return CgroupLayout(kind=LayoutKind.V2, unified=root)


def stepd_job() -> StepdJob:
    return StepdJob(KEY, reader=cast("object", None))  # type: ignore[arg-type]


def test_cgroups_are_used_where_slurmd_makes_them(tmp_path: Path) -> None:
    stepds = FakeStepds({JobKey(8): stepd_job()})
    finder = JobFinder(FakeCgroups(v2(tmp_path), jobs={KEY: FakeJob(KEY)}), stepds)
    assert [KEY] == list(finder.scan())
    assert ("v2", False, 0) == (finder.layout, finder.uses_processes, stepds.scans)


def test_processes_are_used_where_slurmd_makes_no_cgroups(tmp_path: Path) -> None:
    finder = JobFinder(FakeCgroups(v1(tmp_path), 0), FakeStepds({KEY: stepd_job()}))
    assert [KEY] == list(finder.scan())
    assert ("processes", True) == (finder.layout, finder.uses_processes)


def test_machine_without_any_sign_of_slurm_is_unsupported(tmp_path: Path) -> None:
    stepds = FakeStepds()
    finder = JobFinder(FakeCgroups(v1(tmp_path), 0), stepds)
    finder.scan()
    assert "unsupported" == finder.layout
    stepds.jobs[KEY] = stepd_job()
    finder.scan()
    stepds.jobs.clear()
    finder.scan()
    assert "processes" == finder.layout


def test_slurmd_that_starts_later_is_noticed(tmp_path: Path) -> None:
    cgroups = FakeCgroups(v1(tmp_path), 0)
    finder = JobFinder(cgroups, FakeStepds({JobKey(8): stepd_job()}))
    finder.scan()
    cgroups.scopes, cgroups.stale = 1, 2
    cgroups.jobs[KEY] = FakeJob(KEY)
    assert ([KEY], "v1", 2) == (list(finder.scan()), finder.layout, finder.stale_cgroups)


def test_on_v1_the_hierarchy_of_cpu_time_is_watched_too(tmp_path: Path) -> None:
    paths = [tmp_path / "freezer", tmp_path / "freezer/slurm/uid_1/job_7"]
    finder = JobFinder(FakeCgroups(v1(tmp_path), paths=paths), FakeStepds())
    expected = {*paths, tmp_path / "cpuacct", tmp_path / "cpuacct/slurm/uid_1/job_7"}
    assert (expected, expected) == (set(finder.watch_paths()), set(finder.watch_paths()))
    assert [paths[0], tmp_path / "cpuacct"] == finder.watch_roots()


def test_hierarchy_of_cpu_time_itself_is_watched_once(tmp_path: Path) -> None:
    layout = CgroupLayout(kind=LayoutKind.V1, hierarchies={"cpuacct": tmp_path / "cpu,cpuacct"})
    finder = JobFinder(FakeCgroups(layout, paths=[tmp_path / "cpu,cpuacct/slurm"]), FakeStepds())
    assert [tmp_path / "cpu,cpuacct/slurm"] == finder.watch_paths()


def test_on_v2_only_the_one_tree_is_watched(tmp_path: Path) -> None:
    finder = JobFinder(FakeCgroups(v2(tmp_path), paths=[tmp_path / "scope"]), FakeStepds())
    assert [tmp_path / "scope"] == finder.watch_paths()


def make_job(tmp_path: Path, *folders: str) -> FakeJob:
    path = tmp_path / "freezer/slurm/uid_1/job_7"
    for folder in folders:
        (path / folder).mkdir(parents=True)
    return FakeJob(KEY, path=path)


def test_steps_and_the_folders_of_their_tasks_are_named_on_v1(tmp_path: Path) -> None:
    job = make_job(tmp_path, "step_batch", "step_0", "notes")
    folders = JobFinder(FakeCgroups(v1(tmp_path)), FakeStepds()).list_steps(job)
    top = tmp_path / "cpuacct/slurm/uid_1/job_7"
    assert {"batch", "0"} == folders.steps
    assert {top, top / "step_batch", top / "step_0"} == set(folders.watched)


def test_steps_on_v2_need_only_the_directory_of_the_job_watched(tmp_path: Path) -> None:
    job = make_job(tmp_path, "step_0+1", "step_extern")
    folders = JobFinder(FakeCgroups(v2(tmp_path)), FakeStepds()).list_steps(job)
    assert {"0+1", "extern"} == folders.steps
    assert [job.path] == list(folders.watched)


def test_of_many_steps_the_newest_are_watched(tmp_path: Path) -> None:
    job = make_job(tmp_path, "step_batch", *(f"step_{number}" for number in range(2 * STEP_LIMIT)))
    folders = JobFinder(FakeCgroups(v1(tmp_path)), FakeStepds()).list_steps(job)
    newest = {f"step_{number}" for number in range(STEP_LIMIT + 1, 2 * STEP_LIMIT)}
    assert 2 * STEP_LIMIT + 1 == len(folders.steps)
    assert {"job_7", "step_batch", *newest} == {path.name for path in folders.watched}


def test_job_that_is_gone_has_no_steps(tmp_path: Path) -> None:
    folders = JobFinder(FakeCgroups(v2(tmp_path)), FakeStepds()).list_steps(FakeJob(KEY, path=tmp_path / "gone"))
    assert frozenset() == folders.steps


@pytest.mark.parametrize(("titles", "expected"), [({}, set()), ({100: (5, "batch")}, {"batch"})])
def test_steps_of_a_job_without_a_folder_come_from_its_processes(
    tmp_path: Path, titles: dict[int, tuple[int, str]], expected: set[str]
) -> None:
    job = stepd_job()
    job.stepds.update(titles)
    assert expected == JobFinder(FakeCgroups(v1(tmp_path)), FakeStepds()).list_steps(job).steps


def test_program_of_steps_is_watched_only_where_jobs_have_no_cgroups(tmp_path: Path) -> None:
    finder = JobFinder(cgroups := FakeCgroups(v2(tmp_path)), FakeStepds())
    finder.scan()
    assert finder.watch_programs() is None
    cgroups.scopes = 0
    finder.scan()
    assert [Path("/usr/sbin/slurmstepd")] == finder.watch_programs()
