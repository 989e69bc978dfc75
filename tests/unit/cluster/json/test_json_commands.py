# SPDX-License-Identifier: Apache-2.0
"""The command that knows JSON is asked, whatever the release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from slurmscope.cluster.json.backends import JsonCommands, parse_release
from slurmscope.cluster.squeue import StartWindow
from slurmscope.core.errors import CommandRefused, MalformedAnswer

FIXTURES = Path(__file__).parents[3] / "fixtures"


class Commands:
    """Commands of one release, that answer with its fixtures."""

    def __init__(self, release: str, version: bytes) -> None:
        self.version = version
        self.calls: list[str] = []
        folder = FIXTURES / f"slurm-{release}"
        self.jobs = (folder / "both-jobs.json").read_bytes()
        self.nodes = (folder / "both-nodes.json").read_bytes()

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        self.calls.append(f"{name} {' '.join(arguments)}")
        if "--version" in arguments:
            return self.version
        return self.jobs if name == "squeue" else self.nodes


def test_squeue_is_requested_jobs() -> None:
    commands = Commands("24.11", b"")

    jobs = JsonCommands(commands.run).read_jobs(StartWindow(0, 0), 1.5)

    assert ["squeue --json --all --array --states=all"] == commands.calls
    assert 1.5 == jobs.taken_at_seconds
    assert jobs.groups


@pytest.mark.parametrize(
    ("release", "version", "question"),
    [
        ("22.05", b"slurm-wlm 22.05.8\n", "sinfo --json --all"),
        ("24.11", b"slurm 24.11.5\n", "scontrol --json --details --all show nodes"),
        ("26.05", b"slurm-wlm 26.05.5\n", "scontrol --json --details --all show nodes"),
    ],
)
def test_nodes_are_queried_of_the_command_that_reports_them(release: str, version: bytes, question: str) -> None:
    commands = Commands(release, version)
    backend = JsonCommands(commands.run)

    assert backend.read_nodes() == backend.read_nodes()
    assert ["sinfo --version", question, question] == commands.calls


def test_failed_query_for_the_version_is_queried_again() -> None:
    commands = Commands("24.11", b"slurm 24.11.5\n")
    refusals = [CommandRefused(["sinfo"], "down")]

    def run(name: str, arguments: Sequence[str]) -> bytes:
        if refusals:
            raise refusals.pop()
        return commands.run(name, arguments)

    backend = JsonCommands(run)
    with pytest.raises(CommandRefused):
        backend.read_nodes()

    assert backend.read_nodes().nodes


@pytest.mark.parametrize(
    ("answer", "release"),
    [
        (b"slurm 23.02.7\n", (23, 2)),
        (b"slurm-wlm 22.05.8\n", (22, 5)),
        (b"slurm 25.11.0-0rc1\n", (25, 11)),
        (b"slurm 26.05\n", (26, 5)),
    ],
)
def test_release_is_read(answer: bytes, release: tuple[int, int]) -> None:
    assert release == parse_release(answer)


@pytest.mark.parametrize("answer", [b"", b"slurm\n", b"sinfo: error\n", b"\xff"])
def test_other_text_is_no_release(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="is not a version"):
        parse_release(answer)
