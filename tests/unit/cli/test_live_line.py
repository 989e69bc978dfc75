# SPDX-License-Identifier: Apache-2.0
"""The line of ``slurmscope run --live`` shows the current use and vanishes at the end."""

from __future__ import annotations

import io

from slurmscope.cli.run_command import LiveLine, describe
from tests.fakes.traced_command import run_traced
from tests.fakes.traced_runs import START, make_sample


def test_line_has_the_use_since_the_sample_before() -> None:
    line = describe(make_sample(62, 23), make_sample(60, 20), START)

    assert "00:01:02  1.5 cores busy  1 GiB of memory  2 processes  8 threads" == line


def test_line_is_rewritten_once_a_second_and_removed() -> None:
    stream = io.StringIO()
    line = LiveLine(stream)
    for elapsed in (0.0, 0.5, 1.0, 1.9, 2.0):
        line.show(make_sample(elapsed, elapsed))
    line.clear()

    lines = stream.getvalue().split("\r\x1b[K")
    assert ["", "00:00:01", "00:00:02", ""] == [text[:8] for text in lines]


def test_reader_that_has_gone_does_not_matter() -> None:
    stream = io.StringIO()
    line = LiveLine(stream)
    line.show(make_sample(0, 0))
    stream.close()

    line.clear()


def test_without_a_terminal_there_is_no_line() -> None:
    done = run_traced("--quiet", "--live", "--", "sleep", "1.2")

    assert (0, b"") == (done.returncode, done.stderr)
