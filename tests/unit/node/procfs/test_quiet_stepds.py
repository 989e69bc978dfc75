# SPDX-License-Identifier: Apache-2.0
"""A node without cgroups and without jobs is not scanned, until a slurmd has forked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmscope.node.procfs.reader import ProcessReader, StatWatch
from slurmscope.node.procfs.stepd_jobs import NAME_TRIES, NO_DAEMON_SECONDS, QUIET_RECHECK_SECONDS, StepdTree
from tests.processes import until
from tests.unit.node.procfs.test_stepd_jobs import Machine
from tests.unit.node.script import Script


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Return a machine on which one slurmd runs."""
    reader = ProcessReader(tmp_path)
    made = Machine(tmp_path, StepdTree(reader, clock=lambda: made.now))
    made.add(20, command="slurmd", ticks=(1, 0, 0, 0))
    made.tree.scan()
    made.tree.scan()
    yield made
    made.tree.close()
    reader.close()


def test_node_with_a_sleeping_slurmd_is_quiet(machine: Machine) -> None:
    assert machine.tree.is_quiet()
    machine.add(50)  # processes of others are no jobs
    assert machine.tree.is_quiet()


def test_slurmd_that_did_something_may_have_started_a_step(machine: Machine) -> None:
    machine.add(20, command="slurmd", ticks=(2, 0, 0, 0))
    assert not machine.tree.is_quiet()
    machine.tree.scan()
    assert machine.tree.is_quiet()


def test_slurmd_that_was_just_found_may_have_started_a_step(machine: Machine) -> None:
    machine.add(30, command="slurmd")
    machine.add(20, command="slurmd", ticks=(2, 0, 0, 0))
    machine.tree.scan()
    assert not machine.tree.is_quiet()
    machine.tree.scan()
    assert machine.tree.is_quiet()


def test_slurmd_that_ended_is_no_longer_waited_for(machine: Machine) -> None:
    (machine.root / "20" / "stat").write_bytes(b"")  # what the kernel has removed can no longer be read
    assert not machine.tree.is_quiet()


def test_node_with_a_job_is_not_quiet(machine: Machine) -> None:
    machine.add_stepd(40)
    machine.tree.scan()
    assert not machine.tree.is_quiet()
    machine.remove(40)
    machine.tree.scan()
    assert machine.tree.is_quiet()


def test_node_without_slurmd_is_scanned_now_and_then(machine: Machine) -> None:
    machine.remove(20)
    machine.tree.scan()
    assert machine.tree.is_quiet()
    machine.now += NO_DAEMON_SECONDS
    assert not machine.tree.is_quiet()


def test_slurmstepd_without_its_title_yet_is_waited_for(machine: Machine) -> None:
    machine.add(50)
    machine.add_stepd(40, "/usr/sbin/slurmstepd")
    machine.add(41, 40)
    assert {} == machine.tree.scan()
    assert not machine.tree.is_quiet()
    machine.add_stepd(40)
    assert ((40,), (41,)) == machine.pids()


def test_slurmstepd_that_is_still_a_fork_of_slurmd_is_waited_for(machine: Machine) -> None:
    machine.add(40, 20, command="slurmd")
    assert {} == machine.tree.scan()
    assert not machine.tree.is_quiet()
    machine.add_stepd(40)
    assert ((40,), ()) == machine.pids()


def test_slurmstepd_that_seemed_to_be_a_slurmd_is_found(machine: Machine) -> None:
    machine.add(40, 1, command="slurmd")  # forked twice, so that init is its parent, but not yet slurmstepd
    assert {} == machine.tree.scan()
    assert not machine.tree.is_quiet()
    machine.add_stepd(40)
    assert ((40,), ()) == machine.pids()


def test_slurmstepd_that_never_gets_a_title_does_not_keep_the_node_from_being_quiet(machine: Machine) -> None:
    machine.add_stepd(40, "slurmstepd infinity")
    for _ in range(NAME_TRIES):
        machine.tree.scan()
        assert not machine.tree.is_quiet()
    machine.tree.scan()
    assert machine.tree.is_quiet()


def test_all_processes_of_an_idle_node_are_read_again_after_a_while(machine: Machine) -> None:
    machine.add(50)
    machine.tree.scan()
    machine.add_stepd(50)  # the PID was reused between two scans
    machine.now += QUIET_RECHECK_SECONDS - 1
    assert {} == machine.tree.scan()
    machine.now += 1
    assert ((50,), ()) == machine.pids()


def test_watched_process_is_unchanged_until_it_forks_or_ends(
    script: Callable[[str], Script], reader: ProcessReader
) -> None:
    program = script("""
while sys.stdin.readline():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    print("forked", flush=True)
""")
    watch = StatWatch(reader)
    watch.watch({program.pid}, {})
    assert not watch.is_unchanged()
    for _ in range(20):
        watch.watch({program.pid}, watch.read())
        program.go_on()
        program.expect("forked")
        assert not watch.is_unchanged()
    program.close()
    watch.watch({program.pid}, watch.read())
    assert {} == watch.read()
    assert not watch.is_unchanged()
    watch.close()


def test_files_of_processes_that_are_no_longer_watched_are_closed(reader: ProcessReader) -> None:
    # A thread that another test has left may read such files for a moment.
    others = open_stat_files()
    watch = StatWatch(reader)
    watch.watch({1, os.getpid()}, {})
    assert {1, os.getpid()} == watch.read().keys()
    until(lambda: 2 == len(open_stat_files() - others))
    watch.watch({1}, watch.read())
    assert {1} == watch.read().keys()
    until(lambda: 1 == len(open_stat_files() - others))
    watch.close()
    watch.close()
    until(lambda: not open_stat_files() - others)


def open_stat_files() -> set[tuple[str, str]]:
    """Return the descriptors of this process that refer to the stat file of a process."""
    targets = {(link.name, os.path.realpath(link)) for link in Path("/proc/self/fd").iterdir()}
    return {found for found in targets if found[1].startswith("/proc/") and found[1].endswith("/stat")}
