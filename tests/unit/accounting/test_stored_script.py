# SPDX-License-Identifier: Apache-2.0
"""The stored script of one job of one user is read from sacct."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slurmscope.accounting.sacct import LIMIT_BYTES, read_environment, read_script
from slurmscope.core.errors import CommandFailed

HEADING = b"Batch Script for 12\n" + b"-" * 80 + b"\n"
SCRIPT = b"#!/bin/sh\n" + b"-" * 80 + b"\nBatch Script for 13\nsrun ./a\n"


class FakeSacct:
    """Print the same for every call, and record the calls."""

    def __init__(self, answer: bytes, error: str = "") -> None:
        self.answer, self.error = answer, error
        self.calls: list[tuple[str, ...]] = []

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        self.calls.append((name, *arguments))
        if self.error:
            raise CommandFailed([name], self.error)
        return self.answer


def test_everything_after_the_heading_is_the_script() -> None:
    sacct = FakeSacct(HEADING + SCRIPT)

    assert (SCRIPT.decode(), False) == read_script(sacct.run, "lab", "12_3", "ada")
    # The user too: the ID may have been used again.
    assert [("sacct", "--clusters=lab", "--user=ada", "--jobs=12_3", "--batch-script")] == sacct.calls


@pytest.mark.parametrize(
    "answer", [b"", b"\n", HEADING, HEADING + b"NONE\n", HEADING + b"\n\n", b"no heading\nsecret\n"]
)
def test_job_without_a_script_has_none(answer: bytes) -> None:
    sacct = FakeSacct(answer)

    assert read_script(sacct.run, "lab", "12", "ada") is None
    assert () == read_environment(sacct.run, "lab", "12", "ada")


@pytest.mark.parametrize("user", ["", "ada,bob", "a b", "ada\n"])
def test_odd_user_names_are_not_passed_on(user: str) -> None:
    sacct = FakeSacct(HEADING + SCRIPT)

    assert read_script(sacct.run, "lab", "12", user) is None
    assert read_script(sacct.run, "--help", "12", "ada") is None
    assert not sacct.calls


def test_long_script_is_cut_and_odd_bytes_are_replaced() -> None:
    text, is_cut = read_script(FakeSacct(HEADING + b"\xff" * (LIMIT_BYTES + 1)).run, "lab", "12", "ada") or ("", False)

    assert (LIMIT_BYTES, "\ufffd", True) == (len(text), text[0], is_cut)


def test_environment_is_read_line_by_line() -> None:
    sacct = FakeSacct(HEADING + b"HOME=/home/ada\nSLURM_X=1\n")

    assert ("HOME=/home/ada", "SLURM_X=1", "") == read_environment(sacct.run, "lab", "12", "ada")
    assert "--env-vars" == sacct.calls[0][-1]


def test_old_sacct_has_no_scripts_and_other_failures_are_raised() -> None:
    assert read_script(FakeSacct(b"", "sacct: unrecognized option '--batch-script'").run, "lab", "12", "ada") is None
    with pytest.raises(CommandFailed, match="slurmdbd is down"):
        read_script(FakeSacct(b"", "slurmdbd is down").run, "lab", "12", "ada")
