# SPDX-License-Identifier: Apache-2.0
"""The program of slurmstepd is found beside that of slurmd, also in containers; if in doubt it is not known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stepd_jobs import StepdTree
from tests.unit.node.procfs.test_stepd_jobs import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Return a machine without processes."""
    (tmp_path / "proc").mkdir()
    reader = ProcessReader(tmp_path / "proc")
    made = Machine(tmp_path / "proc", StepdTree(reader))
    yield made
    made.tree.close()
    reader.close()


def add_slurmd(machine: Machine, pid: int, root: str, *, program: str = "/usr/sbin/slurmd", title: str = "") -> Path:
    """Start a slurmd with its own root directory, and return where its slurmstepd may be."""
    machine.add(pid, command="slurmd", program=program, title=title or f"{program}\0-D")
    folder = machine.root.parent / root
    (folder / "usr/sbin").mkdir(parents=True, exist_ok=True)
    (machine.root / str(pid) / "root").symlink_to(folder)
    machine.tree.scan()
    return folder / "usr/sbin/slurmstepd"


def found(machine: Machine) -> list[Path] | None:
    """Return the programs, without the links of procfs."""
    programs = machine.tree.programs()
    return programs and [path.resolve() for path in programs]


def test_program_beside_slurmd_is_found(machine: Machine) -> None:
    program = add_slurmd(machine, 20, "host")
    assert found(machine) is None
    program.touch()
    assert [program] == found(machine)


def test_machine_without_slurmd_has_no_programs(machine: Machine) -> None:
    assert [] == found(machine)


@pytest.mark.parametrize("suffix", ["-wlm", " (deleted)"])
def test_other_names_of_slurmd_are_understood(machine: Machine, suffix: str) -> None:
    program = add_slurmd(machine, 20, "host", program=f"/usr/sbin/slurmd{suffix}")
    program = program.with_name(f"slurmstepd{suffix.removesuffix(' (deleted)')}")
    program.touch()
    assert [program] == found(machine)


def test_program_of_several_slurmd_is_watched_once(machine: Machine) -> None:
    program = add_slurmd(machine, 20, "host")
    program.touch()
    add_slurmd(machine, 21, "host")
    assert [program] == found(machine)
    other = add_slurmd(machine, 22, "container")
    other.touch()
    assert [program, other] == found(machine)


def test_one_unknown_program_makes_all_unknown(machine: Machine) -> None:
    add_slurmd(machine, 20, "host").touch()
    add_slurmd(machine, 21, "container")
    assert found(machine) is None


def test_slurmd_with_another_program_for_steps_is_not_known(machine: Machine) -> None:
    add_slurmd(machine, 20, "host", title="/usr/sbin/slurmd\0-d\0/opt/slurmstepd").touch()
    assert found(machine) is None


def test_slurmd_that_ended_is_not_known(machine: Machine) -> None:
    add_slurmd(machine, 20, "host").touch()
    machine.remove(20)
    assert found(machine) is None
