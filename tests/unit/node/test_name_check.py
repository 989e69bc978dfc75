# SPDX-License-Identifier: Apache-2.0
"""The doctor of the node agent compares its name with Slurm's."""

from __future__ import annotations

import pytest

from slurmscope.core.check import Check
from slurmscope.core.errors import CommandError, CommandMissing, CommandTimedOut
from slurmscope.node.checks import check_node_name

NODES = "n1 n1\nn1 n1\nc7 host7\nd1 twins\nd2 twins\ngarbage\n"


def check(answer: str | CommandError, node: str, host: str = "") -> Check | None:
    def run(name: str, arguments: object) -> bytes:
        if isinstance(answer, CommandError):
            raise answer
        return answer.encode()

    return next(check_node_name(run, node, host or node), None)


@pytest.mark.parametrize(
    ("node", "host", "is_good", "words"),
    [
        ("n1", "n1.example.org", True, "Slurm knows this node as n1"),
        ("host7", "host7.example.org", False, "Slurm does not know a node host7; it calls this host c7"),
        ("twins", "twins", True, "several slurmd run on this host (d1, d2)"),
        ("odd", "twins", False, "Slurm does not know a node odd; it calls this host d1, d2"),
        ("n9", "n9", False, "Slurm does not know a node n9"),
    ],
)
def test_name_is_that_of_slurm(node: str, host: str, is_good: bool, words: str) -> None:
    found = check(NODES, node, host)

    assert found
    assert (is_good, not is_good) == (found.is_good, bool(found.advice))
    assert words in found.message


def test_node_of_a_single_machine_is_found_as_localhost() -> None:
    found = check("box localhost\n", "laptop")

    assert found
    assert (False, "Slurm does not know a node laptop; it calls this host box") == (found.is_good, found.message)


def test_nothing_is_checked_without_slurm_commands() -> None:
    assert None is check(CommandMissing(["sinfo"], "sinfo was not found"), "n1")


def test_slurm_that_does_not_answer_is_no_fault_of_the_name() -> None:
    found = check(CommandTimedOut(["sinfo"], "sinfo timed out"), "n1")

    assert found
    assert (True, "not checked: sinfo timed out") == (found.is_good, found.message)
