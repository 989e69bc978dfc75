# SPDX-License-Identifier: Apache-2.0
"""A job script is shown on a terminal with line numbers, and without its escape codes."""

from __future__ import annotations

from slurmscope.jobs.script import (
    MAX_SHOWN_LINES,
    EnvironmentVariable,
    JobScript,
    ScriptFinding,
    render_script_text,
    show_lines,
)


def test_findings_come_first_then_lines_with_numbers_then_the_environment() -> None:
    script = JobScript(
        text="#!/bin/sh\n\tsrun ./a\n",
        findings=(
            ScriptFinding(title="No time limit", advice="Set it."),
            ScriptFinding(title="X", advice="Y.", line=2),
        ),
        environment=(EnvironmentVariable(name="SLURM_X", value="1"), EnvironmentVariable(name="HOME")),
    )
    text = render_script_text("12", script)

    assert (
        text.index("  No time limit.")
        < text.index("  Line 2: X.")
        < text.index("    1  #!/bin/sh\n    2          srun")
    )
    assert "  SLURM_X=1\n  Without their values, which may be secret: HOME\n" in text


def test_plain_script_says_that_nothing_was_found_and_whether_it_was_cut() -> None:
    assert "No problems were found in the script." in render_script_text("12", JobScript(text="x"))
    assert "only its beginning is shown" in render_script_text("12", JobScript(text="x", is_cut=True))
    assert "Environment" not in render_script_text("12", JobScript(text="x"))


def test_escape_codes_and_bidirectional_marks_are_spelled_out() -> None:
    text = render_script_text("12", JobScript(text="a\x1b[2Jb\u202ec\r\n", environment=()))

    assert "a\\u001b[2Jb\\u202ec" in text
    assert "\x1b" not in text


def test_number_of_lines_is_bounded() -> None:
    assert MAX_SHOWN_LINES == len(show_lines("x\n" * (MAX_SHOWN_LINES + 1)))
