# SPDX-License-Identifier: Apache-2.0
"""The scripts that hand out job tokens: a good token for the job's user, and exit code 0 whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurmscope.trace.tokens import KeyFile, check_token, rotate_keys

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PROLOG, TASK_PROLOG, EPILOG = (DEPLOY / f"{name}-slurmscope" for name in ("prolog", "taskprolog", "epilog"))
OWN = {"SLURM_JOB_ID": "4711", "SLURM_JOB_UID": str(os.getuid()), "SLURMD_NODENAME": "n1"}


def run_script(script: Path, *arguments: Path | str, **environment: str) -> str:
    """Run a script as slurmd does, and return what it printed; it must succeed in silence."""
    argv = ["/bin/sh", str(script), *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


def make_program(folder: Path, script: str) -> Path:
    path = folder / "slurmscope"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return our own command line as one program."""
    source = Path(__file__).resolve().parents[2] / "src"
    return make_program(tmp_path, f'PYTHONPATH={source} exec {sys.executable} -m slurmscope "$@"')


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    rotate_keys(tmp_path / "trace.key")
    return tmp_path / "trace.key"


def test_task_gets_the_token_of_its_job_and_the_epilog_removes_it(
    tmp_path: Path, program: Path, key_file: Path
) -> None:
    folder, url = tmp_path / "tokens", tmp_path / "trace.url"
    url.write_text("http://controller:9092/trace\n")
    # On a busy machine Python may need more than the second that the script allows it.
    for _ in range(20):
        assert "" == run_script(PROLOG, folder, program, key_file, **OWN)
        if list(folder.glob("4711.n1")):
            break
    (file,) = folder.iterdir()
    assert (0o400, 0o711) == (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777)

    token_line, url_line = run_script(TASK_PROLOG, folder, url, **OWN).splitlines()
    assert "export SLURM_EXPORTER=http://controller:9092/trace" == url_line
    name, _, token = token_line.removeprefix("export ").partition("=")
    found = check_token(token, KeyFile(key_file).keys(), 0.0)
    assert found is not None
    assert ("SLURMSCOPE_TRACE_TOKEN", 4711, os.getuid(), "n1") == (name, found.job_id, found.uid, found.node)

    run_script(EPILOG, tmp_path / "no-cgroups", folder, **OWN)
    assert [] == list(folder.iterdir())
    assert "" == run_script(TASK_PROLOG, folder, tmp_path / "none", **OWN)


@pytest.mark.parametrize(
    "groups", [{}, {"0": "4711"}, {"0": "4711", "1": "4712", "2": "4713"}, {"0": "x", "1": "4713"}]
)
def test_task_of_a_heterogeneous_job_gets_the_token_of_the_component_on_its_node(
    tmp_path: Path, groups: dict[str, str]
) -> None:
    for name, token in (("4713.n1", "own"), ("4712.n2", "other")):
        (tmp_path / name).write_text(f"{token}\n")
    environment = {f"SLURM_JOB_ID_HET_GROUP_{group}": job for group, job in groups.items()}
    expected = "export SLURMSCOPE_TRACE_TOKEN=own\n" if "2" in groups else ""
    assert expected == run_script(TASK_PROLOG, tmp_path, tmp_path / "none", **(OWN | environment))


def test_address_of_the_user_comes_first(tmp_path: Path) -> None:
    url = tmp_path / "trace.url"
    url.write_text("http://controller:9092/trace\n")
    assert "" == run_script(TASK_PROLOG, tmp_path, url, **OWN, SLURM_EXPORTER="http://mine/trace")


@pytest.mark.parametrize(
    "script",
    ["exit 1", "sleep 600", "sleep 600 & sleep 600", "kill -9 $$", "yes", "echo token; exit 1"],
    ids=["fails", "hangs", "leaves a child", "is killed", "is endless", "fails late"],
)
def test_program_that_fails_gives_no_token_and_no_error(tmp_path: Path, script: str) -> None:
    folder = tmp_path / "tokens"
    run_script(PROLOG, folder, make_program(tmp_path, script), tmp_path / "key", **OWN)
    assert [] == [path for path in folder.glob("*") if not path.name.startswith(".")]


def test_program_that_is_slow_on_a_busy_node_gives_a_token(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    run_script(PROLOG, folder, make_program(tmp_path, "sleep 1.5; echo token"), tmp_path / "key", **OWN)
    assert ["token\n"] == [path.read_text() for path in folder.iterdir()]


def test_endless_output_does_not_fill_the_memory_of_the_node(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    run_script(PROLOG, folder, make_program(tmp_path, "yes"), tmp_path / "key", **OWN)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 4096


def test_limit_on_output_truncates_no_compiled_module(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    (tmp_path / "large.py").write_text("VALUES = " + repr(list(range(5000))), encoding="ascii")
    program = make_program(tmp_path, f"cd {tmp_path} && exec {sys.executable} -c 'import large; print(1)'")
    run_script(PROLOG, folder, program, tmp_path / "key", **OWN)
    assert ["1\n"] == [path.read_text() for path in folder.iterdir()]
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"SLURM_JOB_ID": ""},
        {"SLURM_JOB_ID": "1;id"},
        {"SLURM_JOB_ID": "../../x"},
        {"SLURM_JOB_ID": "12345678901"},
        {"SLURM_JOB_UID": "root"},
        {"SLURMD_NODENAME": ""},
        {"SLURMD_NODENAME": "../x"},
        {"SLURMD_NODENAME": "a b"},
    ],
    ids=lambda change: " ".join(f"{key}={value}" for key, value in change.items()),
)
def test_odd_environment_does_nothing(tmp_path: Path, change: dict[str, str]) -> None:
    marker = tmp_path / "was-run"
    program = make_program(tmp_path, f"touch {marker}")
    run_script(PROLOG, tmp_path / "tokens", program, tmp_path / "key", **(OWN | change))
    assert not marker.exists()
    assert not (tmp_path / "tokens").exists()


@pytest.mark.parametrize("text", ["a b\n", "$(id)\n", "a;b\n", "\n", "a'b\n"])
def test_value_that_is_not_one_word_is_not_exported(tmp_path: Path, text: str) -> None:
    (tmp_path / "4711.n1").write_text(text)
    (tmp_path / "trace.url").write_text(text)
    assert "" == run_script(TASK_PROLOG, tmp_path, tmp_path / "trace.url", **OWN)


@pytest.mark.parametrize("script", [PROLOG, TASK_PROLOG, DEPLOY / "traced-job.sh"], ids=lambda path: path.name)
def test_script_calls_no_slurm_command(script: Path) -> None:
    words = {word for line in script.read_text().splitlines() if not line.startswith("#") for word in line.split()}
    forbidden = {"squeue", "scontrol", "sacct", "sinfo", "sacctmgr", "sstat"}
    assert not words & forbidden
