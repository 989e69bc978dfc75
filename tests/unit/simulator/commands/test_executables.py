# SPDX-License-Identifier: Apache-2.0
"""Check the executables that answer in the place of Slurm's commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurmscope.core.errors import OutputError
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.commands import call, sinfo, squeue
from slurmscope.simulator.commands.executables import COMMANDS, count_runs, write_fake_commands
from slurmscope.simulator.commands.faults import Fault, write_fault

NOW = 1_800_000_000
# Far more than any run needs: it only keeps a hanging fake command from hanging the tests.
TIMEOUT_SECONDS = 60

JOB_COLUMNS = "Account:|,UserName:|,Partition:|,State:|,NumNodes:|,NumCPUs:|,tres-alloc:|,QOS:|,Reason:"
NODE_COLUMNS = (
    "NodeList:|,StateComplete:|,Partition:|,CPUsState:|,Memory:|,AllocMem:|,FreeMem:|,CPUsLoad:|,Gres:|,GresUsed:"
)


@pytest.fixture(scope="module")
def cluster() -> SimulatedCluster:
    return simulate(Shape(), now=NOW)


@pytest.fixture(scope="module")
def folder(cluster: SimulatedCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hold fake commands that no test changes."""
    directory = tmp_path_factory.mktemp("fake commands")
    write_fake_commands(cluster, directory)
    return directory


def run(program: Path, *argv: str, environment: Mapping[str, str] | None = None) -> tuple[int, bytes, bytes]:
    """Run a program with nothing but the given environment."""
    done = subprocess.run(
        [program, *argv], capture_output=True, check=False, timeout=TIMEOUT_SECONDS, env=dict(environment or {})
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("squeue", ["-h", "-a", "-r", "-t", "all", "-O", JOB_COLUMNS]),
        ("squeue", ["-h", "-a", "-t", "all", "-O", "JobArrayID:\x1f#é9\x1f,Name:\x1f#é9\x1f,SubmitTime:\x1f#é9\x1f"]),
        ("squeue", ["-h", "-r", "-o", "%i %K %j"]),
        ("squeue", []),
        ("squeue", ["-O", "Bogus:|"]),
        ("squeue", ["--bogus"]),
        ("squeue", ["--version"]),
        ("sinfo", ["-h", "-N", "-a", "-O", NODE_COLUMNS]),
        ("sinfo", []),
        ("sinfo", ["-h", "-o", "%D,%T"]),
        ("sinfo", ["--bogus"]),
    ],
)
def test_an_executable_answers_as_the_function_does(
    folder: Path, cluster: SimulatedCluster, command: str, argv: list[str]
) -> None:
    functions = {"squeue": squeue.answer, "sinfo": sinfo.answer}
    environment = {"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}
    assert functions[command](cluster, argv, {}) == run(folder / command, *argv, environment=environment)


def test_arguments_are_bytes_in_every_locale(folder: Path) -> None:
    expected = "(null)é|".encode()
    for locale in ("C", "C.UTF-8", "en_US.ISO-8859-1"):
        code, out, _ = run(folder / "squeue", "-h", "-O", "Comment:é|", environment={"LC_ALL": locale})
        assert (0, expected) == (code, out[: len(expected)])


def test_slurm_s_own_variables_are_heeded(folder: Path, cluster: SimulatedCluster) -> None:
    environment = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    argv = ["-h", "-t", "all", "-O", "SubmitTime:|,JobArrayID:|"]
    _, out, _ = run(folder / "squeue", *argv, environment=environment)
    assert squeue.answer(cluster, argv, environment)[1] == out
    assert str(cluster.jobs[0].submit_time).encode() == out.split(b"|")[0]


def test_every_run_is_counted_once_also_in_parallel(tmp_path: Path) -> None:
    write_fake_commands(simulate(Shape(jobs=3, nodes=2), now=NOW), tmp_path)
    assert 0 == count_runs(tmp_path, "squeue")
    threads = [threading.Thread(target=run, args=(tmp_path / "squeue", "-h")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    assert (8, 0) == (count_runs(tmp_path, "squeue"), count_runs(tmp_path, "sinfo"))


def test_fake_command_are_for_their_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "folder"
    write_fake_commands(simulate(Shape(jobs=3, nodes=2), now=NOW), directory)
    assert 0o700 == directory.stat().st_mode & 0o777
    assert {0o500} == {(directory / command).stat().st_mode & 0o777 for command in COMMANDS}


def test_moment_and_shape_are_told(tmp_path: Path) -> None:
    write_fake_commands(simulate(Shape(seed=5, jobs=3, nodes=2), now=NOW), tmp_path)
    about = json.loads((tmp_path / "cluster.json").read_text())
    assert (NOW, 5, 3) == (about["now"], about["shape"]["seed"], about["shape"]["jobs"])


def test_a_new_cluster_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    for jobs in (3, 5, 8):
        write_fake_commands(simulate(Shape(jobs=jobs, nodes=2), now=NOW), tmp_path)
        assert jobs == run(tmp_path / "squeue", "-h", "-a", "-r", "-t", "all", "-o", "%A")[1].count(b"\n")
    # One generation is kept for calls that are under way.
    assert ["columns-2", "columns-3"] == sorted(path.name for path in tmp_path.glob("columns-*"))


def test_other_clusters_answer_by_their_names(tmp_path: Path) -> None:
    other = simulate(Shape(jobs=20, nodes=3, seed=5), now=NOW, name="beta")
    write_fake_commands(simulate(Shape(jobs=20, nodes=2), now=NOW), tmp_path)
    write_fake_commands(other, tmp_path / call.OTHER_CLUSTERS / "beta")
    jobs = ["--noheader", "--all", f"--Format={JOB_COLUMNS}"]
    code, out, _ = call.answer(str(tmp_path), squeue.COMMAND, ["-M", "beta", *jobs], {})
    assert (0, b"CLUSTER: beta\n" + squeue.answer(other, jobs)[1]) == (code, out)
    arguments = ["-M", "beta", "--noheader", "--Node", "--Format=NodeList"]
    nodes = call.answer(str(tmp_path), sinfo.COMMAND, arguments, {})[1]
    assert 3 == len(set(nodes.split()))
    for name in ("gamma", "../clusters/beta"):
        assert 1 == call.answer(str(tmp_path), sinfo.COMMAND, ["-M", name], {})[0]


def test_a_call_does_not_load_the_simulation(folder: Path) -> None:
    source = Path(call.__file__).parents[3]
    program = (
        f"import sys; sys.path.insert(0, {str(source)!r}); "
        "from slurmscope.simulator.commands import call, sinfo, squeue; "
        "print(*sorted({'random', 'pathlib', 'json', 'slurmscope.simulator.cluster.records'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-IS", "-c", program], capture_output=True, check=True, timeout=TIMEOUT_SECONDS
    )
    assert b"\n" == done.stdout


def test_a_fault_changes_the_answer_until_it_is_healed(tmp_path: Path) -> None:
    write_fake_commands(simulate(Shape(jobs=3, nodes=2), now=NOW), tmp_path)
    argv = ["-h", "-t", "all", "-o", "%T"]
    healthy = run(tmp_path / "squeue", *argv)
    message = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    write_fault(tmp_path, "squeue", Fault(delay_seconds=0.01, exit_code=1, stderr=message, keep_bytes=4))
    assert (1, healthy[1][:4], message.encode()) == run(tmp_path / "squeue", *argv)
    assert 0 == run(tmp_path / "sinfo", "-h")[0]
    write_fault(tmp_path, "squeue", None)
    assert healthy == run(tmp_path / "squeue", *argv)


def test_a_slow_fake_command_can_be_killed(tmp_path: Path) -> None:
    write_fake_commands(simulate(Shape(jobs=3, nodes=2), now=NOW), tmp_path)
    write_fault(tmp_path, "sinfo", Fault(delay_seconds=300))
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([tmp_path / "sinfo"], capture_output=True, check=False, timeout=0.5)


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write fake commands"):
        write_fake_commands(simulate(Shape(jobs=3, nodes=2), now=NOW), tmp_path / "file")


# The same code without a process of its own, where coverage can see it.
def test_a_call_in_this_process_writes_and_counts(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = count_runs(folder, "squeue")
    code = call.run(str(folder), squeue.COMMAND, ["-h", "-r", "-t", "all", "-O", "Bogus:x"], {})
    captured = capfd.readouterr()
    assert (0, "x\n" * 500, before + 1) == (code, captured.out, count_runs(folder, "squeue"))
    assert "Bogus" in captured.err


def test_a_fault_holds_in_this_process_too(tmp_path: Path, cluster: SimulatedCluster) -> None:
    write_fake_commands(cluster, tmp_path)
    write_fault(tmp_path, "sinfo", Fault(exit_code=3, keep_bytes=0))
    assert (3, b"", b"") == call.answer(str(tmp_path), sinfo.COMMAND, ["-h"], {})
