# SPDX-License-Identifier: Apache-2.0
"""Provide a reader of this machine, and programs to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmscope.node.procfs.reader import ProcessReader
from tests.unit.node.script import Script


@pytest.fixture
def script() -> Iterator[Callable[[str], Script]]:
    """Return a function that starts a program; all of them end with the test."""
    started: list[Script] = []

    def start(body: str) -> Script:
        started.append(Script(body))
        return started[-1]

    yield start
    for program in started:
        program.close()


@pytest.fixture(params=[0, 100], ids=["opened-anew", "kept-open"])
def reader(request: pytest.FixtureRequest) -> Iterator[ProcessReader]:
    """Return a reader of this machine's processes, which opens their files anew, or keeps them open."""
    opened = ProcessReader(Path("/proc"), most_kept=request.param)
    yield opened
    opened.close()
