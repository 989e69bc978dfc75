# SPDX-License-Identifier: Apache-2.0
"""A wrong command line gives one line that says where to find help."""

from __future__ import annotations

import pytest

from tests.fakes.command_line import run_here


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["clutser"], "slurmscope"),
        (["cluster", "--nope"], "slurmscope cluster"),
        (["report", "--limit", "0"], "slurmscope report"),
        (["token", "revoke", "x"], "slurmscope token revoke"),
    ],
)
def test_wrong_command_line_names_the_help(arguments: list[str], command: str) -> None:
    done = run_here(*arguments)

    assert (2, "") == (done.returncode, done.stdout)
    (line,) = done.stderr.splitlines()
    assert line.startswith("slurmscope: ")
    assert line.endswith(f" See '{command} --help'.")
