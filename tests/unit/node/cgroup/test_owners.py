# SPDX-License-Identifier: Apache-2.0
"""Check that a job never gets the wrong ID or user."""

import shutil

import pytest

from slurmscope.node.cgroup.folders import CgroupFolder, Members
from slurmscope.node.cgroup.job import CgroupReader, FoundJob, JobEntry
from slurmscope.node.cgroup.names import JobName, ProcessOwners
from slurmscope.node.job_use import JobKey
from tests.unit.node.cgroup.conftest import Clock, Machine

SLUID = "sEKNKTV3WPV500"
SCOPE = "system.slice/n1_slurmstepd.scope"
STEPD = (248, 276)
USER = (255, 259, 263, 289)


@pytest.fixture
def new_names(v2: Machine) -> Machine:
    """Return the captured node with the folder names of Slurm 26.05 and one slurmd."""
    (v2.cgroups / SCOPE / "job_1").rename(v2.cgroups / SCOPE / SLUID)
    shutil.rmtree(v2.cgroups / "system.slice" / "n2_slurmstepd.scope")
    return v2


def hide_titles(machine: Machine) -> None:
    for pid in STEPD:
        (machine.procfs / str(pid) / "cmdline").unlink()


def write_environments(machine: Machine, *jobs: str) -> None:
    for pid, job in zip(USER, jobs, strict=True):
        text = f"PATH=/bin\0SLURM_JOB_ID={job}\0XSLURM_JOB_ID=9\0" if job else "PATH=/bin\0"
        (machine.procfs / str(pid) / "environ").write_text(text)


def test_sluid_gets_its_number_from_the_title_of_slurmstepd(new_names: Machine) -> None:
    jobs = new_names.tree.scan()
    assert {JobKey(1, "n1", SLUID): 4242} == {key: job.uid for key, job in jobs.items()}


def test_title_may_say_more_than_the_step(new_names: Machine) -> None:
    for pid in STEPD:
        (new_names.procfs / str(pid) / "cmdline").write_bytes(b"slurmstepd: [77.extern] stepmgr\0")
    assert [JobKey(77, "n1", SLUID)] == list(new_names.tree.scan())


def test_unresolved_sluid_is_not_guessed(new_names: Machine) -> None:
    hide_titles(new_names)
    assert {} == new_names.tree.scan()


def test_unresolved_sluid_is_retried(new_names: Machine) -> None:
    titles = {pid: (new_names.procfs / str(pid) / "cmdline").read_bytes() for pid in STEPD}
    hide_titles(new_names)
    new_names.tree.scan()
    for pid, title in titles.items():
        (new_names.procfs / str(pid) / "cmdline").write_bytes(title)
    new_names.clock.now += 1
    assert [JobKey(1, "n1", SLUID)] == list(new_names.tree.scan())


def test_contradictory_titles_are_ignored(new_names: Machine) -> None:
    (new_names.procfs / str(STEPD[0]) / "cmdline").write_bytes(b"slurmstepd: [2.batch]\0")
    assert {} == new_names.tree.scan()


def test_environment_does_not_name_the_job(new_names: Machine) -> None:
    hide_titles(new_names)
    write_environments(new_names, "4711", "4711", "4711", "4711")
    assert {} == new_names.tree.scan()


def test_title_of_a_setuid_program_is_not_believed(v2: Machine) -> None:
    owners = ProcessOwners(v2.procfs)
    assert 1 == owners.titled_job(STEPD[0])
    (v2.procfs / str(STEPD[0]) / "status").write_text("Uid:\t4242\t0\t0\t0\n")
    assert owners.titled_job(STEPD[0]) is None


def test_title_of_a_user_process_is_not_read(new_names: Machine) -> None:
    hide_titles(new_names)
    (new_names.procfs / str(USER[0]) / "cmdline").write_bytes(b"slurmstepd: [666.0]\0")
    assert {} == new_names.tree.scan()


def test_root_is_not_taken_for_the_user(v2: Machine) -> None:
    for pid in USER:
        (v2.procfs / str(pid) / "status").write_text("Uid:\t0\t0\t0\t0\n")
    assert v2.job().uid is None


def test_user_is_known_after_the_first_process(v2: Machine) -> None:
    leaves = [*(v2.cgroups / SCOPE / "job_1").rglob("user/task_0/cgroup.procs")]
    texts = [leaf.read_text() for leaf in leaves]
    for leaf in leaves:
        leaf.write_text("")
    assert v2.job().uid is None
    for leaf, text in zip(leaves, texts, strict=True):
        leaf.write_text(text)
    assert 4242 == v2.job().uid


def test_user_of_processes_that_are_gone_is_unknown(v2: Machine) -> None:
    for pid in USER:
        shutil.rmtree(v2.procfs / str(pid))
    assert v2.job().uid is None


class EndingJobFolders:
    """Fake a job whose slurmstepd ends after the first call, so that its process ID may be reused."""

    def __init__(self) -> None:
        self.answers = [Members(stepd=STEPD[:1]), Members()]

    def members(self) -> Members:
        return self.answers.pop(0)

    def has_processes(self) -> bool:
        return True

    def open_group(self, relative: str, *, is_optional: bool) -> CgroupReader:
        raise AssertionError("nobody may take this for a known job")

    def steps(self) -> list[CgroupFolder]:
        return []

    def tasks(self, step: CgroupFolder) -> tuple[str, list[CgroupFolder]]:
        return "", []

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_reused_process_id_does_not_identify_a_job(v2: Machine) -> None:
    found = FoundJob(name=JobName(sluid=SLUID), path="/x", relative="x", inode=1)
    entry = JobEntry(found, EndingJobFolders(), ProcessOwners(v2.procfs), Clock(), is_old=False)
    entry.refresh()
    assert entry.job is None
