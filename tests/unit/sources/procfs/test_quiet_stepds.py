# SPDX-License-Identifier: Apache-2.0
"""A node without cgroups and without jobs is not scanned, until a slurmd has forked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmscope.sources.procfs.reader import ProcessReader
from slurmscope.sources.procfs.stepd_jobs import NO_DAEMON_SECONDS, StepdTree
from tests.unit.sources.procfs.script import Script
from tests.unit.sources.procfs.test_stepd_jobs import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Return a machine on which one slurmd runs."""
    reader = ProcessReader(tmp_path)
    made = Machine(tmp_path, StepdTree(reader, clock=lambda: made.now))
    made.add(20, command="slurmd", ticks=(1, 0, 0, 0))
    made.tree.scan()
    made.tree.scan()
    yield made
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
    machine.remove(20)
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


def test_fork_of_a_real_process_shows_in_its_stat_line(script: Callable[[str], Script], reader: ProcessReader) -> None:
    program = script("""
while sys.stdin.readline():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    print("forked", flush=True)
""")
    program.go_on()
    program.expect("forked")
    for _ in range(20):
        before = reader.stat_line(program.pid)
        program.go_on()
        program.expect("forked")
        assert before != reader.stat_line(program.pid)
