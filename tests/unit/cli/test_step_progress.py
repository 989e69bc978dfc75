# SPDX-License-Identifier: Apache-2.0
"""A long task prints its steps, and how long the current one has run."""

from __future__ import annotations

import threading

import pytest

from slurmscope.cli import archive_command as step_progress
from slurmscope.cli.archive_command import StepProgress
from tests.processes import PATIENCE_SECONDS


def test_step_that_takes_long_is_shown_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    third = threading.Event()

    def write(text: str) -> None:
        lines.append(text)
        if len(lines) == 3:
            third.set()

    monkeypatch.setattr(step_progress, "INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(step_progress, "write_text", write)
    with StepProgress() as progress:
        progress.show(2, 9, "CREATE INDEX a\x1b[2J")
        assert third.wait(PATIENCE_SECONDS)

    assert r"2/9 CREATE INDEX a\u001b[2J" == lines[0]
    assert lines[1].startswith("2/9 has run for ")
    assert lines[2].startswith("2/9 has run for ")
    assert progress.seconds > 0


def test_nothing_is_shown_before_the_first_step_and_a_closed_output_ends_only_the_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = threading.Event()

    def fail(_: str) -> None:
        tried.set()
        raise BrokenPipeError

    monkeypatch.setattr(step_progress, "INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(step_progress, "write_text", fail)
    with StepProgress() as progress:
        assert not tried.wait(0.1)
        with pytest.raises(BrokenPipeError):
            progress.show(1, 1, "step")
