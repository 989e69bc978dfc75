# SPDX-License-Identifier: Apache-2.0
"""What we give people to deploy on nodes is valid and tight, and the Epilog removes what it may and nothing else."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurmscope.cli import slurmscope
from slurmscope.http.server.server import Server
from slurmscope.profile import influxdb as profile_inbox
from slurmscope.trace import node_endpoint as tracing
from slurmscope.trace.tokens import rotate_keys
from tests.requirements import require_program

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "slurmscope-node.service"
EXAMPLE = DEPLOY / "node.toml"
EPILOG = DEPLOY / "epilog-slurmscope"
FREEZER = Path("/sys/fs/cgroup/freezer")
MOST_EXPOSURE = 25
"""In tenths, as systemd counts from 0 (none) to 10."""


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run systemd's own checker."""
    argv = [require_program("systemd-analyze"), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def unit_values(key: str) -> list[str]:
    return re.findall(rf"(?m)^{key}=(.*)$", UNIT.read_text(encoding="utf-8"))


def test_unit_leaves_little_to_attack() -> None:
    done = analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", UNIT)
    assert 0 == done.returncode, done.stdout + done.stderr


def test_unit_has_no_unknown_keys(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    # systemd looks whether the program is there.
    text, changes = re.subn(r"(?m)^(ExecStart=)\S+", rf"\1{sys.executable}", UNIT.read_text(encoding="utf-8"))
    copy.write_text(text, encoding="utf-8")
    checked = analyze("verify", "--man=no", copy)
    assert 1 == changes
    assert [] == [line for line in checked.stderr.splitlines() if UNIT.name in line]


def test_unit_allows_a_thread_for_every_connection_and_those_that_read_jobs() -> None:
    """Otherwise some dozens of silent clients keep the agent from reading jobs and from being scraped."""
    metrics: int = inspect.signature(Server).parameters["max_connections"].default
    (tasks,) = map(int, unit_values("TasksMax"))
    assert metrics + tracing.MAX_CONNECTIONS + profile_inbox.MAX_CONNECTIONS + 100 <= tasks


def test_unit_gives_the_two_capabilities_that_reading_processes_needs_and_no_root() -> None:
    both = ["CAP_SYS_PTRACE CAP_DAC_READ_SEARCH"]
    assert (both, both) == (unit_values("AmbientCapabilities"), unit_values("CapabilityBoundingSet"))
    assert ["slurmscope"] == unit_values("User")


@pytest.mark.parametrize("key", ["ProtectProc", "ProcSubset", "PrivateDevices", "PrivateNetwork", "PrivateUsers"])
def test_unit_does_not_hide_what_the_agent_has_to_see(key: str) -> None:
    assert [] == unit_values(key)


def test_example_settings_can_be_read() -> None:
    assert [":9798"] == tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))["web"]["listen-address"]


def test_unit_starts_a_command_that_is_understood() -> None:
    (line,) = unit_values("ExecStart")
    program, role, flag, file = line.split()
    done = CliRunner().invoke(slurmscope, ["config", "check", role, flag, str(DEPLOY / Path(file).name)])
    assert ("slurmscope", 0) == (Path(program).name, done.exit_code)


def test_example_settings_are_the_defaults() -> None:
    shown = [
        CliRunner().invoke(slurmscope, ["config", "show", "node", *arguments]).output
        for arguments in ((), ("--config.file", str(EXAMPLE)))
    ]
    defaults, example = (re.sub(r"  # .*|# configuration file: .*", "", text) for text in shown)
    assert defaults == example


def test_examples_that_are_commented_out_are_valid(tmp_path: Path) -> None:
    # "#key = value" is an example, "# Words" are words.
    text, changes = re.subn(r"(?m)^#(?=[a-z])", "", EXAMPLE.read_text(encoding="utf-8"))
    # The check reads these files too: the web configuration, which is tested with its certificates elsewhere, and keys.
    (tmp_path / "web.yml").touch()
    rotate_keys(tmp_path / "trace.key")
    text = text.replace("/etc/slurmscope/web.yml", str(tmp_path / "web.yml"))
    text = text.replace("/etc/slurmscope/trace.key", str(tmp_path / "trace.key"))
    (tmp_path / "node.toml").write_text(text, encoding="utf-8")
    done = CliRunner().invoke(slurmscope, ["config", "check", "node", "--config.file", str(tmp_path / "node.toml")])
    assert changes >= 3
    assert 0 == done.exit_code, done.output


def epilog(root: Path, **environment: str) -> None:
    """Run the Epilog as slurmd does, with nothing but Slurm's variables, and see that it is content and silent."""
    argv = ["/bin/sh", str(EPILOG), str(root)]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=False, env=environment)
    assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def folders_below(root: Path) -> set[str]:
    return {str(Path(path).relative_to(root)) for path, _, _ in os.walk(root)}


def test_folders_of_the_job_go_in_every_hierarchy(tmp_path: Path) -> None:
    for hierarchy in ("memory", "cpuacct", "cpu,cpuacct"):
        make(tmp_path / hierarchy / "slurm/uid_1001/job_7/step_batch/task_0")
        make(tmp_path / hierarchy / "slurm/uid_1001/job_7/step_0/task_0/made/by/user")
    epilog(tmp_path, SLURM_JOB_ID="7")
    expected = {
        f"{h}{rest}" for h in ("memory", "cpuacct", "cpu,cpuacct") for rest in ("", "/slurm", "/slurm/uid_1001")
    }
    assert expected | {"."} == folders_below(tmp_path)


def test_other_jobs_and_what_is_not_of_slurm_stay(tmp_path: Path) -> None:
    others = [
        "memory/slurm/uid_1001/job_70/step_0",
        "memory/slurm/uid_1001/job_8",
        "memory/slurm/system/job_7",
        "memory/user.slice/uid_1001/job_7",
        "memory/slurmish/uid_1001/job_7",
    ]
    for other in others:
        make(tmp_path / other)
    before = folders_below(tmp_path)
    make(tmp_path / "memory/slurm/uid_1001/job_7")
    epilog(tmp_path, SLURM_JOB_ID="7")
    assert before == folders_below(tmp_path)


def test_only_the_own_node_is_cleaned_where_several_share_a_machine(tmp_path: Path) -> None:
    own = make(tmp_path / "memory/slurm_n1/uid_1001/job_7")
    other = make(tmp_path / "memory/slurm_n2/uid_1001/job_7")
    epilog(tmp_path, SLURM_JOB_ID="7", SLURMD_NODENAME="n1")
    assert (False, True) == (own.exists(), other.exists())


def test_every_node_is_cleaned_where_slurmd_does_not_tell_its_own(tmp_path: Path) -> None:
    folder = make(tmp_path / "memory/slurm_n1/uid_1001/job_7")
    epilog(tmp_path, SLURM_JOB_ID="7")
    assert not folder.exists()


@pytest.mark.parametrize("place", ["memory", "memory/slurm", "memory/slurm/uid_1001", "memory/slurm/uid_1001/job_7"])
def test_links_are_not_followed(tmp_path: Path, place: str) -> None:
    whole = Path("memory/slurm/uid_1001/job_7/step_0")
    target = make(tmp_path / "elsewhere" / whole.relative_to(place))
    link = tmp_path / "root" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    epilog(tmp_path / "root", SLURM_JOB_ID="7")
    assert target.is_dir()


def test_link_inside_the_job_is_not_followed(tmp_path: Path) -> None:
    job = make(tmp_path / "root/memory/slurm/uid_1001/job_7")
    target = make(tmp_path / "elsewhere/below")
    (job / "link").symlink_to(tmp_path / "elsewhere")
    epilog(tmp_path / "root", SLURM_JOB_ID="7")
    assert target.is_dir()


def test_folder_with_files_stays(tmp_path: Path) -> None:
    job = make(tmp_path / "memory/slurm/uid_1001/job_7")
    (job / "file").touch()
    epilog(tmp_path, SLURM_JOB_ID="7")
    assert (job / "file").exists()


HOSTILE = (
    "",
    " ",
    "7 8",
    "*",
    "?",
    "[0-9]",
    "../job_7",
    "7/..",
    "-1",
    "7;rmdir",
    "$(id)",
    "`id`",
    "7\n",
    "٧",
    "9" * 11,
    "x",
)


@pytest.mark.parametrize("number", HOSTILE)
def test_hostile_job_numbers_remove_nothing(tmp_path: Path, number: str) -> None:
    for name in {"job_7", "job_8", "job_*", "job_x", f"job_{number.replace('/', '_')}"}:
        make(tmp_path / "memory/slurm/uid_1001" / name)
    before = folders_below(tmp_path)
    epilog(tmp_path, SLURM_JOB_ID=number)
    assert before == folders_below(tmp_path)


@pytest.mark.parametrize("name", ["*", "../slurm_n2", "n1 n2", "$(id)"])
def test_hostile_node_names_remove_nothing(tmp_path: Path, name: str) -> None:
    folder = make(tmp_path / "memory/slurm_n1/uid_1001/job_7")
    epilog(tmp_path, SLURM_JOB_ID="7", SLURMD_NODENAME=name)
    assert folder.is_dir()


def test_missing_job_number_and_missing_cgroups_are_fine(tmp_path: Path) -> None:
    folder = make(tmp_path / "memory/slurm/uid_1001/job_7")
    epilog(tmp_path)
    epilog(tmp_path / "missing", SLURM_JOB_ID="7")
    assert folder.is_dir()


def test_no_variable_moves_the_epilog_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "rmdir").write_text(f"#!/bin/sh\ntouch {tmp_path}/fooled\n")
    (tmp_path / "rmdir").chmod(0o755)
    make(tmp_path / "root/memory/slurm/uid_1001/job_7")
    epilog(tmp_path / "root", SLURM_JOB_ID="7", PATH=str(tmp_path), IFS="/", ENV="/nonexistent", CDPATH="/")
    assert not (tmp_path / "fooled").exists()
    assert not (tmp_path / "root/memory/slurm/uid_1001/job_7").exists()


@pytest.fixture
def cgroups() -> Iterator[Path]:
    """Give a folder of real cgroups of version 1 that is ours, and remove it."""
    top = FREEZER / f"slurmscope-epilog-{os.getpid()}"
    try:
        top.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup v1 can be made here: {error}")
    yield top
    for path, _, _ in os.walk(top, topdown=False):
        Path(path).rmdir()


def test_real_cgroups_of_an_ended_job_go(cgroups: Path) -> None:
    make(cgroups / "freezer/slurm_n1/uid_1001/job_7/step_batch/task_0")
    epilog(cgroups, SLURM_JOB_ID="7", SLURMD_NODENAME="n1")
    assert {".", "freezer", "freezer/slurm_n1", "freezer/slurm_n1/uid_1001"} == folders_below(cgroups)


def test_cgroup_with_a_process_stays_and_the_process_lives(cgroups: Path) -> None:
    busy = make(cgroups / "freezer/slurm/uid_1001/job_7/step_0/task_0")
    idle = make(cgroups / "freezer/slurm/uid_1001/job_7/step_1/task_0")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        (busy / "cgroup.procs").write_text(str(process.pid))
        epilog(cgroups, SLURM_JOB_ID="7")
        assert (True, False) == (busy.exists(), idle.exists())
        assert process.poll() is None
        process.communicate(timeout=60)
