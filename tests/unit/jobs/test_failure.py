# SPDX-License-Identifier: Apache-2.0
"""What went wrong is at the top of every rendering of a report."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta, timezone

import pytest

from slurmscope.archive.stored_reports import decode_report, encode_report
from slurmscope.jobs.failure import TITLE, failure_rows
from slurmscope.jobs.record import StepRecord
from slurmscope.jobs.render.formatting import format_time
from slurmscope.jobs.render.json import render_json
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Severity, Subject
from tests.fakes.reports import HOSTILE_NAME, START, make_finding, make_record, make_report
from tests.unit.jobs.render.test_consequences import RENDERINGS

SEGFAULT = StepRecord(name="0", state="FAILED", end_seconds=START + 3600, exit_code=0, exit_signal=11, node_list="n2")
OWN_DOCUMENTS = {"seed", "run text", "run html"}
WITH_VERDICT = {"html", "mail html", "pdf"}
"""Renderings whose verdict needs no title."""


def failed(**changed: object) -> JobReport:
    record = make_record(state="FAILED", nodes=("n1", "n2"), node_count=2, steps=(SEGFAULT,))
    return make_report(replace(record, **changed))  # type: ignore[arg-type]


def rows(report: JobReport) -> dict[str, str]:
    return {row.label: row.text for row in failure_rows(report)}


def test_rows_say_what_where_and_where_to_look() -> None:
    report = replace(
        failed(),
        findings=(
            make_finding("oom_kill", Subject.MEMORY, Severity.CRITICAL),
            make_finding("memory_near_limit", Subject.MEMORY, Severity.WARNING),
            make_finding("scratch_unused", Subject.FILES, Severity.INFO),
        ),
    )

    assert {
        "Cause": "Step 0 was killed by SIGSEGV, signal 11 (segmentation fault).",
        "Failed first": f"Step 0 on n2, at {format_time(START + 3600)}",
        "What to do": "The program used memory that is not its own: run it in a debugger or with a smaller input, and "
        "check ulimit -s and that its libraries fit together.",
        "Also found": "Title of memory_near_limit",
        "Output": "/home/ada/relax/slurm-4711.out (Slurm's default; the script may set another file with --output)",
    } == rows(report)


def test_output_and_errors_in_two_files() -> None:
    made = rows(failed(stdout="%j.out", stderr="/var/%j.err"))

    assert ("/home/ada/relax/4711.out", "/var/4711.err") == (made["Output"], made["Error output"])


def test_error_file_of_a_job_on_a_terminal() -> None:
    made = rows(failed(submit_line="srun -e e.txt ./a.out"))

    assert "/home/ada/relax/e.txt" == made["Error output"]
    assert "Output" not in made


def test_time_is_in_the_zone_of_the_reader() -> None:
    zone = timezone(timedelta(hours=2))

    assert dict(failure_rows(failed(), zone)) != dict(failure_rows(failed()))


def test_step_without_time_and_job_without_step() -> None:
    without_time = replace(SEGFAULT, end_seconds=None, node_list="")

    assert "Step 0" == rows(make_report(replace(failed().record, steps=(without_time,))))["Failed first"]
    assert "Failed first" not in rows(make_report(replace(failed().record, steps=())))


@pytest.mark.parametrize("rendering", RENDERINGS.keys() - OWN_DOCUMENTS)
def test_every_rendering_begins_with_what_went_wrong(rendering: str) -> None:
    text = " ".join(RENDERINGS[rendering](failed()).split())

    parts = ("killed by SIGSEGV", "slurm-4711.out", "Use of requested")
    places = [text.find(part) for part in (parts if rendering in WITH_VERDICT else (TITLE, *parts))]
    assert sorted(places) == places
    assert -1 not in places
    assert TITLE not in RENDERINGS[rendering](make_report())


def test_json_has_the_failure_or_null() -> None:
    plain = json.loads(render_json(failed()))["failure"]

    assert ("0", "n2", 0, 11) == (plain["step"], plain["nodes"], plain["exit_code"], plain["exit_signal"])
    assert json.loads(render_json(make_report()))["failure"] is None


def test_archived_report_keeps_where_it_failed() -> None:
    report = failed(stdout="o", stderr="e", failed_node="n2")

    assert failure_rows(report) == failure_rows(decode_report(*encode_report(report)))


def test_names_from_users_are_made_safe() -> None:
    made = rows(failed(stdout=HOSTILE_NAME))

    assert "\x1b" not in made["Output"]
