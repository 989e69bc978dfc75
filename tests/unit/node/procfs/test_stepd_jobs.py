# SPDX-License-Identifier: Apache-2.0
"""Jobs without cgroups are found by slurmstepd and all that it started, and never get another's processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurmscope.node.job_use import JobKey
from slurmscope.node.kernel_files import HangGuard, Hanging
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stepd_jobs import RECHECK_SECONDS, StepdTree
from tests.processes import until

TICKS = os.sysconf("SC_CLK_TCK")
KEY = JobKey(7)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")


@dataclass
class Machine:
    """Write the processes of a machine, and look for jobs among them."""

    root: Path
    tree: StepdTree
    now: float = 0.0

    def add(
        self,
        pid: int,
        parent: int = 1,
        *,
        command: str = "work",
        title: str = "",
        start: int = 100,
        ticks: tuple[int, int, int, int] = (0, 0, 0, 0),
        ended_children: int | None = None,
        uid: int | None = None,
        real_uid: int | None = None,
        program: str = "",
    ) -> None:
        """Write a process, or write it anew; ``ticks`` are its own and its children's, user and system each.

        Each process has five page faults, and the kernel hands over those of a child that ended together with its time.
        """
        faults = 5 * (any(ticks[2:]) if ended_children is None else ended_children)
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        used = " ".join(map(str, ticks))
        middle = f"S {parent} {pid} {pid} 0 -1 0 5 {faults} 0 0 {used} 20 0 1 0 {start} 4096 10"
        (folder / "stat").write_text(f"{pid} ({command}) {middle} {'0 ' * 30}\n")
        (folder / "cmdline").write_bytes((title or command).encode() + b"\0")
        real = os.geteuid() if real_uid is None else real_uid
        (folder / "status").write_text(f"Name:\t{command}\nUid:\t{real}\t0\t0\t0\n")
        (folder / "exe").unlink(missing_ok=True)
        (folder / "exe").symlink_to(program or f"/usr/sbin/{command}")
        if uid is not None:
            os.chown(folder, uid, uid)

    def add_stepd(self, pid: int, title: str = "slurmstepd: [7.batch]", **further: object) -> None:
        self.add(pid, command="slurmstepd", title=title, **further)  # type: ignore[arg-type]

    def remove(self, pid: int) -> None:
        for file in (self.root / str(pid)).iterdir():
            file.unlink()
        (self.root / str(pid)).rmdir()

    def pids(self, key: JobKey = KEY) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the job's own processes and those of the user."""
        members = self.tree.scan()[key].members()
        return members.stepd, members.user

    def seconds(self) -> float | None:
        use = self.tree.scan()[KEY].read()
        return None if use is None else use.cpu.total_seconds


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Return a machine with one process that belongs to no job."""
    reader = ProcessReader(tmp_path)
    made = Machine(tmp_path, StepdTree(reader, clock=lambda: made.now))
    made.add(1, 0, command="init")
    yield made
    made.tree.close()
    reader.close()


def test_machine_without_slurm_has_no_jobs(machine: Machine) -> None:
    machine.add(50, command="bash")
    assert {} == machine.tree.scan()


def test_job_is_what_its_slurmstepd_started(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100)
    machine.add(120, 110)
    machine.add(130, 1)
    assert ((100,), (110, 120)) == machine.pids()


def test_child_with_a_lower_number_is_found(machine: Machine) -> None:
    machine.add_stepd(900)
    machine.add(20, 800)
    machine.add(800, 900)
    assert ((900,), (20, 800)) == machine.pids()


def test_number_given_again_between_two_scans_brings_no_children_of_a_stranger(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100)
    assert ((100,), (110,)) == machine.pids()
    machine.add(110, 1, start=500)
    machine.add(120, 110, start=501)
    machine.add(130, 120, start=502)
    assert [((100,), ())] * 2 == [machine.pids() for _ in range(2)]


def test_number_given_again_to_another_step_has_its_children_at_once(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100)
    assert ((100,), (110,)) == machine.pids()
    machine.add_stepd(110, "slurmstepd: [8.batch]", start=500)
    machine.add(120, 110, start=501)
    machine.tree.scan()
    assert ((110,), (120,)) == machine.pids(JobKey(8))
    assert ((100,), ()) == machine.pids()


def test_steps_of_one_job_are_one_job(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add_stepd(200, "slurmstepd: [7.0]")
    machine.add_stepd(300, "slurmstepd: [8.extern]")
    machine.add(210, 200)
    jobs = machine.tree.scan()
    assert {JobKey(7), JobKey(8)} == jobs.keys()
    assert {"batch", "0"} == jobs[KEY].steps
    assert ((100, 200), (210,)) == machine.pids()


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("slurmstepd: [7.batch]", {7}),
        ("slurmstepd: [7.0] stepmgr", {7}),
        ("slurmstepd: [7.0+1]", {7}),
        ("slurmstepd: [7.4294967290]", {7}),
        ("slurmstepd infinity", set()),
        ("slurmstepd", set()),
        ("slurmstepd: [x.0]", set()),
        ("slurmstepd: [99999999999.0]", set()),
    ],
)
def test_number_is_taken_from_the_title(machine: Machine, title: str, expected: set[int]) -> None:
    machine.add_stepd(100, title)
    assert expected == {key.job_id for key in machine.tree.scan()}


def test_task_that_still_looks_like_slurmstepd_is_the_users(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100, command="slurmstepd", title="slurmstepd: [7.batch]")
    assert ((100,), (110,)) == machine.pids()


@needs_root
def test_user_who_calls_himself_slurmstepd_is_not_believed(machine: Machine) -> None:
    machine.add_stepd(100, uid=1001)
    assert {} == machine.tree.scan()


def test_setuid_program_under_the_title_of_slurmstepd_is_not_believed(machine: Machine) -> None:
    machine.add_stepd(100, real_uid=1001)
    machine.add(110, 100)
    assert {} == machine.tree.scan()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("/usr/bin/passwd", set()),
        ("/home/alice/slurmstepd/tool", set()),
        ("/usr/sbin/slurmstepd", {KEY}),
        ("/usr/sbin/slurmstepd-wlm", {KEY}),
        ("/usr/sbin/slurmstepd (deleted)", {KEY}),
    ],
)
def test_only_the_program_slurmstepd_is_believed(machine: Machine, program: str, expected: set[JobKey]) -> None:
    machine.add_stepd(100, program=program)
    assert expected == set(machine.tree.scan())


@needs_root
def test_user_of_the_job_is_the_first_who_is_not_root(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100, uid=0)
    assert machine.tree.scan()[KEY].uid is None
    machine.add(120, 110, uid=1001)
    assert 1001 == machine.tree.scan()[KEY].uid


def test_process_that_left_its_parents_stays_in_the_job(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100)
    machine.add(120, 110)
    machine.tree.scan()
    machine.remove(110)
    machine.add(120, 1)
    assert ((100,), (120,)) == machine.pids()


def test_job_whose_processes_are_gone_is_gone(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100)
    job = machine.tree.scan()[KEY]
    machine.remove(100)
    assert [KEY] == list(machine.tree.scan())
    machine.remove(110)
    assert job.read() is None
    assert {} == machine.tree.scan()


def test_same_job_is_the_same_object_and_a_new_run_another(machine: Machine) -> None:
    machine.add_stepd(100)
    job = machine.tree.scan()[KEY]
    assert job is machine.tree.scan()[KEY]
    machine.remove(100)
    machine.tree.scan()
    machine.add_stepd(101, start=500)
    assert job is not machine.tree.scan()[KEY]


def test_number_given_to_another_process_is_not_the_jobs_any_more(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100)
    assert ((100,), (110,)) == machine.pids()
    machine.add(110, 1, start=999, ticks=(5000, 0, 0, 0))
    assert ((100,), ()) == machine.pids()
    assert 0.0 == machine.seconds()


def test_number_given_to_a_job_is_found_after_a_while(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(50, command="bash")
    assert ((100,), ()) == machine.pids()
    machine.add(50, 100, start=999)
    machine.now = RECHECK_SECONDS
    assert ((100,), (50,)) == machine.pids()


def test_parent_that_is_younger_than_its_child_is_none(machine: Machine) -> None:
    machine.add_stepd(100, start=500)
    machine.add(110, 100, start=400)
    assert ((100,), ()) == machine.pids()


def test_cpu_time_is_that_of_tasks_and_of_children_waited_for(machine: Machine) -> None:
    machine.add_stepd(100, ticks=(1000, 1000, 30, 3))
    machine.add(110, 100, ticks=(200, 20, 4000, 400))
    use = machine.tree.scan()[KEY].read()
    assert use is not None
    assert pytest.approx(4230 / TICKS) == use.cpu.user_seconds
    assert pytest.approx(423 / TICKS) == use.cpu.system_seconds
    assert pytest.approx(4653 / TICKS) == use.cpu.total_seconds


def test_cpu_time_moves_to_the_parent_when_a_child_ends(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100, ticks=(200, 0, 0, 0))
    assert pytest.approx(200 / TICKS) == machine.seconds()
    machine.remove(110)
    machine.add_stepd(100, ticks=(0, 0, 210, 0))
    assert pytest.approx(210 / TICKS) == machine.seconds()


def test_cpu_time_never_falls(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100, ticks=(200, 0, 0, 0))
    machine.seconds()
    machine.remove(110)
    assert pytest.approx(200 / TICKS) == machine.seconds()


def test_cpu_time_of_a_process_that_no_parent_waits_for_is_kept(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100, ticks=(200, 0, 0, 0))
    machine.seconds()
    machine.remove(110)
    machine.add(120, 100, ticks=(50, 0, 0, 0))

    assert [pytest.approx(250 / TICKS)] * 3 == [machine.seconds() for _ in range(3)]


def test_cpu_time_of_ended_steps_is_kept(machine: Machine) -> None:
    machine.add_stepd(100, "slurmstepd: [7.batch]")
    machine.add(110, 100, ticks=(5, 0, 0, 0))
    for step in range(3):
        machine.add_stepd(200 + step, f"slurmstepd: [7.{step}]", start=200 + step)
        machine.add(300 + step, 200 + step, ticks=(90 * TICKS, 10 * TICKS, 0, 0), start=210 + step)
        machine.seconds()
        machine.remove(300 + step)
        # slurmstepd waits for its task, and ends a moment later: seen by one step, missed with the others.
        if step == 1:
            machine.add_stepd(201, "slurmstepd: [7.1]", start=201, ticks=(0, 0, 90 * TICKS, 10 * TICKS))
            machine.seconds()
        machine.remove(200 + step)

    assert pytest.approx(300 + 5 / TICKS) == machine.seconds()


def test_cpu_time_of_ended_steps_is_continued_by_the_next_agent(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add_stepd(200, "slurmstepd: [7.0]")
    machine.add(210, 200, ticks=(90 * TICKS, 10 * TICKS, 0, 0))
    assert 100 == machine.seconds()
    machine.remove(200)
    machine.remove(210)
    machine.add(110, 100, ticks=(5 * TICKS, 0, 0, 0))
    assert 105 == machine.seconds()
    kept = machine.tree.scan()[KEY].keep()

    machine.add(110, 100, ticks=(8 * TICKS, 0, 0, 0))
    next_agent = StepdTree(ProcessReader(machine.root)).scan()[KEY]
    next_agent.resume(kept)
    use = next_agent.read()
    assert use is not None
    assert (98, 10, 108) == (use.cpu.user_seconds, use.cpu.system_seconds, use.cpu.total_seconds)

    # One that ended while no agent ran is missing, but the total goes on from where it was.
    machine.remove(110)
    machine.add(120, 100, ticks=(2 * TICKS, 0, 0, 0))
    third = StepdTree(ProcessReader(machine.root)).scan()[KEY]
    third.resume(next_agent.keep())
    seen = [third.read()]
    machine.add(120, 100, ticks=(3 * TICKS, 0, 0, 0))
    seen.append(third.read())
    assert [108, 109] == [each and each.cpu.total_seconds for each in seen]


def test_cpu_time_that_a_grandparent_received_counts_once(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100, ticks=(10, 0, 0, 0))
    machine.add(120, 110, ticks=(20, 0, 0, 0), start=110)
    machine.add(130, 120, ticks=(200, 0, 0, 0), start=120)
    assert pytest.approx(230 / TICKS) == machine.seconds()
    machine.remove(120)
    machine.remove(130)
    machine.add(110, 100, ticks=(10, 0, 220, 0), ended_children=2)

    assert pytest.approx(230 / TICKS) == machine.seconds()


def test_cpu_time_of_a_daemon_that_left_its_parents_is_kept(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100, ticks=(10, 0, 0, 0))
    machine.add(120, 100, ticks=(200, 0, 0, 0), start=110)
    machine.seconds()
    machine.add(120, 1, ticks=(300, 0, 0, 0), start=110)
    machine.seconds()
    machine.remove(120)
    machine.add(110, 100, ticks=(60, 0, 0, 0))

    assert pytest.approx(360 / TICKS) == machine.seconds()


def test_number_given_again_within_the_job_adds_to_the_time_before(machine: Machine) -> None:
    machine.add_stepd(100)
    machine.add(110, 100, ticks=(200, 0, 0, 0))
    machine.seconds()
    machine.add(110, 1, ticks=(200, 0, 0, 0))
    machine.seconds()
    machine.remove(110)
    machine.seconds()
    machine.add(110, 100, ticks=(7, 0, 0, 0), start=900)

    assert pytest.approx(207 / TICKS) == machine.seconds()


@pytest.mark.parametrize("scans", [1, 2, 3])
@pytest.mark.parametrize("wait_seconds", [0.0, RECHECK_SECONDS + 1])
def test_process_that_cannot_be_read_for_a_while_is_counted_once(
    scans: int, wait_seconds: float, machine: Machine
) -> None:
    machine.add_stepd(100)
    machine.add(110, 100, ticks=(200, 0, 0, 0))
    assert pytest.approx(200 / TICKS) == machine.seconds()
    stat = machine.root / "110/stat"
    text = stat.read_text()
    stat.write_text("110 (work")
    machine.now += wait_seconds
    seen = [machine.seconds() for _ in range(scans)]
    stat.write_text(text)
    seen += [machine.seconds() for _ in range(3)]

    assert [pytest.approx(200 / TICKS)] * (scans + 3) == seen
    assert ((100,), (110,)) == machine.pids()


@pytest.mark.parametrize("wait_seconds", [0.0, RECHECK_SECONDS + 1])
def test_process_that_hangs_for_a_while_is_counted_once(wait_seconds: float, tmp_path: Path) -> None:
    guard = HangGuard(tmp_path, patience_seconds=0.2)
    reader = ProcessReader(tmp_path, guard)
    made = Machine(tmp_path, StepdTree(reader, clock=lambda: made.now))
    made.add(1, 0, command="init")
    made.add_stepd(100)
    made.add(110, 100, ticks=(200, 0, 0, 0))
    returns = threading.Event()
    with closing(reader), closing(guard), closing(made.tree):
        assert pytest.approx(200 / TICKS) == made.seconds()
        # As a read of its environment hangs while a file system of the user does not answer.
        with suppress(Hanging):
            guard.run(returns.wait, 110)
        made.now += wait_seconds
        seen = [made.seconds() for _ in range(3)]
        returns.set()
        until(lambda: not guard.skips(110))
        seen += [made.seconds() for _ in range(3)]

    assert [pytest.approx(200 / TICKS)] * 6 == seen


def test_steps_are_not_distinguished_and_there_is_no_folder(machine: Machine) -> None:
    machine.add_stepd(100)
    job = machine.tree.scan()[KEY]
    assert ({}, None) == (job.read_groups(steps=True, tasks=True), job.path)


@needs_root
def test_real_setuid_program_cannot_forge_a_job() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        tool = Path(shutil.copy("/bin/sleep", folder / "tool"))
        tool.chmod(0o4755)
        (folder / "slurmstepd").symlink_to(tool)
        argv = ["slurmstepd: [4711.batch]", "60"]
        with subprocess.Popen(argv, executable=folder / "slurmstepd", user=65534) as forger:
            try:
                title = Path(f"/proc/{forger.pid}/cmdline")
                until(lambda: title.read_bytes().startswith(b"slurmstepd: [4711.batch]"))
                reader = ProcessReader(Path("/proc"))
                found = StepdTree(reader).scan()
                reader.close()
            finally:
                forger.kill()

    assert JobKey(4711) not in found
