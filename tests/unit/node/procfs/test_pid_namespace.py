# SPDX-License-Identifier: Apache-2.0
"""Processes of jobs are visible in the PID namespace of the host, and in that of slurmd."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.node.checks import check_namespace
from slurmscope.node.procfs.pid_namespace import PidNamespace
from slurmscope.node.procfs.reader import ProcessReader

HOST, CONTAINER = "pid:[4026531836]", "pid:[4026532201]"
MakeProc = Callable[..., Path]


@pytest.fixture
def make_proc(tmp_path: Path) -> MakeProc:
    """Return a function that makes a procfs as this process sees it, with one more process."""

    def make(namespace: str, numbers: str, command: str) -> Path:
        own = tmp_path / "self"
        (own / "ns").mkdir(parents=True)
        (own / "ns" / "pid").symlink_to(namespace)
        (own / "status").write_text(f"Name:\tpython3\nNSpid:\t{numbers}\n")
        (tmp_path / "17").mkdir()
        (tmp_path / "17" / "comm").write_text(f"{command}\n")
        return tmp_path

    return make


def shows_jobs(procfs: Path) -> bool:
    with closing(ProcessReader(procfs)) as reader:
        return PidNamespace(reader).shows_jobs()


@pytest.mark.parametrize(
    ("namespace", "numbers", "command", "expected"),
    [
        (HOST, "42", "cron", True),
        (CONTAINER, "7", "cron", False),
        (CONTAINER, "7", "slurmd", True),
        (CONTAINER, "7", "slurmstepd", True),
        # The host's /proc in a container: slurmd is there, but cgroup.procs still hides its jobs.
        (CONTAINER, "4242\t7", "cron", False),
    ],
)
def test_jobs_are_visible_with_the_host_or_with_slurmd(
    make_proc: MakeProc, namespace: str, numbers: str, command: str, expected: bool
) -> None:
    assert expected is shows_jobs(make_proc(namespace, numbers, command))


def test_slurmd_of_the_host_shows_no_jobs_to_another_namespace(make_proc: MakeProc) -> None:
    assert not shows_jobs(make_proc(CONTAINER, "4242\t7", "slurmd"))


def test_slurmd_that_was_seen_may_restart(make_proc: MakeProc) -> None:
    procfs = make_proc(CONTAINER, "7", "slurmd")
    with closing(ProcessReader(procfs)) as reader:
        namespace = PidNamespace(reader)
        assert namespace.shows_jobs()
        (procfs / "17" / "comm").unlink()
        assert namespace.shows_jobs()


def test_unknown_namespace_hides_nothing(tmp_path: Path) -> None:
    assert shows_jobs(tmp_path)


def test_doctor_names_the_namespace(make_proc: MakeProc) -> None:
    (check,) = check_namespace(make_proc(CONTAINER, "7", "cron"))

    assert not check.is_good
    assert "--pid=host" in check.advice
