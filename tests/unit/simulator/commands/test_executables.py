# SPDX-License-Identifier: Apache-2.0
"""Check the executables that answer in the place of Slurm's commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slurmscope.cluster import shares, sinfo, squeue
from slurmscope.core.errors import OutputError
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.commands import call
from slurmscope.simulator.commands.executables import COMMANDS, answer, write_fake_commands

NOW = 1_800_000_000
SEPARATOR = "0123456789abcdef"
# Far more than any run needs: it only keeps a hanging fake command from hanging the tests.
TIMEOUT_SECONDS = 60
SMALL = simulate(Shape(jobs=20, nodes=2), now=NOW)


@pytest.fixture(scope="module")
def cluster() -> SimulatedCluster:
    return simulate(Shape(), now=NOW)


def run(program: Path, *argv: str) -> tuple[int, bytes, bytes]:
    """Run a program with an empty environment."""
    done = subprocess.run([program, *argv], capture_output=True, check=False, timeout=TIMEOUT_SECONDS, env={})
    return done.returncode, done.stdout, done.stderr


def test_an_executable_answers_as_the_function_does(tmp_path: Path, cluster: SimulatedCluster) -> None:
    write_fake_commands(cluster, tmp_path / "fake commands")
    for command, argv in (
        ("squeue", squeue.ARGUMENTS),
        ("sinfo", sinfo.arguments(SEPARATOR)),
        ("squeue", ("--bogus",)),
    ):
        assert answer(cluster, command, argv) == run(tmp_path / "fake commands" / command, *argv)


def test_separators_are_those_of_the_call() -> None:
    rows = answer(SMALL, "sinfo", sinfo.arguments(SEPARATOR))[1]
    other = answer(SMALL, "sinfo", sinfo.arguments(SEPARATOR[::-1]))[1]
    assert SEPARATOR.encode() in rows
    assert rows.replace(SEPARATOR.encode(), SEPARATOR[::-1].encode()) == other


@pytest.mark.parametrize(
    ("command", "argv"),
    [("squeue", ()), ("squeue", ("--version",)), ("sshare", ("-o", "User")), ("sdiag", ("--all",)), ("sacct", ("-n",))],
)
def test_other_command_lines_are_refused_with_those_that_are_known(command: str, argv: tuple[str, ...]) -> None:
    code, out, complaint = answer(SMALL, command, argv)
    assert (1, b"") == (code, out)
    (sentence,) = complaint.decode().splitlines()
    assert sentence.startswith(f"{command}: error: only the command lines that slurmscope sends are simulated: ")
    assert len(COMMANDS[command]) == len(sentence.partition(" simulated: ")[2].split("; "))


def test_refusal_names_the_columns_that_we_request() -> None:
    assert f"sshare {' '.join(shares.ARGUMENTS)}\n".encode() in answer(SMALL, "sshare", ())[2]


def test_fake_commands_are_for_their_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "folder"
    write_fake_commands(SMALL, directory)
    assert 0o700 == directory.stat().st_mode & 0o777
    assert {0o500} == {(directory / command).stat().st_mode & 0o777 for command in COMMANDS}


def test_a_new_cluster_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    for jobs in (3, 5):
        write_fake_commands(simulate(Shape(jobs=jobs, nodes=2), now=NOW), tmp_path)
        assert jobs == call.answer(str(tmp_path), "squeue", squeue.ARGUMENTS)[1].count(b"\n")


def test_other_clusters_answer_by_their_names(tmp_path: Path) -> None:
    other = simulate(Shape(jobs=20, nodes=3, seed=5), now=NOW, name="beta")
    write_fake_commands(SMALL, tmp_path)
    write_fake_commands(other, tmp_path / call.OTHER_CLUSTERS / "beta")
    code, out, _ = call.answer(str(tmp_path), "squeue", ["-M", "beta", *squeue.ARGUMENTS])
    assert (0, b"CLUSTER: beta\n" + answer(other, "squeue", squeue.ARGUMENTS)[1]) == (code, out)
    arguments = sinfo.arguments(SEPARATOR)
    nodes = call.answer(str(tmp_path), "sinfo", ["-M", "beta", *arguments])[1]
    assert answer(other, "sinfo", arguments)[1] == nodes
    for name in ("gamma", "../clusters/beta"):
        assert 1 == call.answer(str(tmp_path), "sinfo", ["-M", name, *arguments])[0]


def test_a_call_does_not_load_the_simulation() -> None:
    source = Path(call.__file__).parents[3]
    program = (
        f"import sys; sys.path.insert(0, {str(source)!r}); "
        "from slurmscope.simulator.commands import call, sacct_rows; "
        "print(*sorted(name for name in sys.modules if name.startswith(('random', 'pathlib', 'slurmscope'))))"
    )
    done = subprocess.run(
        [sys.executable, "-IS", "-c", program], capture_output=True, check=True, timeout=TIMEOUT_SECONDS, text=True
    )
    ours = ["", ".simulator", ".simulator.commands", ".simulator.commands.call", ".simulator.commands.sacct_rows"]
    assert [f"slurmscope{name}" for name in ours] == done.stdout.split()


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write fake commands"):
        write_fake_commands(SMALL, tmp_path / "file")


# The same code without a process of its own, where coverage can see it.
def test_a_call_in_this_process_writes_both_streams(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_fake_commands(SMALL, tmp_path)
    assert 0 == call.run(str(tmp_path), "squeue", squeue.ARGUMENTS)
    assert 20 == capfd.readouterr().out.count("\n")
    assert 1 == call.run(str(tmp_path), "squeue", ["--what"])
    assert "squeue: error: " in capfd.readouterr().err
