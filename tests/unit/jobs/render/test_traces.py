# SPDX-License-Identifier: Apache-2.0
"""Check that traced processes are shown in every form, and that disagreements are sentences."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from pypdf import PdfReader

from slurmscope.jobs.processes import TraceDifference, TraceSummary
from slurmscope.jobs.render.html import render_html, render_mail_html
from slurmscope.jobs.render.json import render_json
from slurmscope.jobs.render.pdf import render_pdf
from slurmscope.jobs.render.tables import make_trace_table, trace_sentences
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.report import JobReport
from tests.fakes.reports import GIB, HOSTILE_NAME, make_report, make_traced_report

CPU_SENTENCE = (
    "Traced processes used 2 h of CPU time, 50 % less than the 4 h that the node agents measured: processes that do "
    "not run under slurmscope run are not traced."
)
MEMORY_SENTENCE = (
    "Traced processes had up to 1.2 GiB of memory, 50 % more than the 819 MiB that the node agents measured: resident "
    "memory counts pages that processes share once for each of them, counts mapped files, and an ended process until "
    "its last sample expires."
)


def read_pdf(report: JobReport) -> str:
    return " ".join(page.extract_text() for page in PdfReader(io.BytesIO(render_pdf(report))).pages)


FORMS: dict[str, Callable[[JobReport], str]] = {
    "text": render_text,
    "html": render_html,
    "mail": render_mail_html,
    "pdf": read_pdf,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_shows_processes_and_disagreements(form: str) -> None:
    text = " ".join(FORMS[form](make_traced_report()).split())

    for words in ("Traced processes", "solver", "1 h", "30 min", "512 MiB", "4.66 GiB", "10 more with less CPU time.",
                  CPU_SENTENCE, MEMORY_SENTENCE):  # fmt: skip
        assert words in text


@pytest.mark.parametrize("form", FORMS)
def test_job_without_traces_has_no_word_about_them(form: str) -> None:
    assert "raced" not in FORMS[form](make_report())


def test_table_has_a_row_for_each_process() -> None:
    assert (
        ("solver", "0", "n1", "1 h", "512 MiB", "4", "4.66 GiB", "–"),
        ("solver", "1", "n1", "30 min", "512 MiB", "4", "4.66 GiB", "–"),
    ) == make_trace_table(make_traced_report()).rows


def test_steps_are_named_where_there_are_several() -> None:
    report = make_traced_report()
    first, second = report.summary.traces.processes
    traces = TraceSummary(processes=(replace(first, step="1"), second, replace(first, step="", rank="", command="")))
    rows = make_trace_table(replace(report, summary=replace(report.summary, traces=traces))).rows

    assert [("solver (step 1)", "0"), ("solver (step 0)", "1"), ("–", "–")] == [row[:2] for row in rows]


def test_json_has_the_numbers() -> None:
    traces = json.loads(render_json(make_traced_report()))["summary"]["traces"]

    assert ("810", 3600.0, None) == tuple(traces["processes"][0][key] for key in ("pid", "cpu_seconds", "write_bytes"))
    assert (10, "cpu_seconds") == (traces["others"], traces["differences"][0]["quantity"])
    assert {"processes": [], "others": 0, "differences": []} == (
        json.loads(render_json(make_report()))["summary"]["traces"]
    )


WRONG = "the node agents missed part of the run, or the senders' values are wrong."
UNTRACED = "processes that do not run under slurmscope run are not traced, and a peak between two samples is missed."


@pytest.mark.parametrize(
    ("quantity", "traced", "measured", "expected"),
    [
        ("cpu_seconds", 5400.0, 3600.0, f"used 1 h 30 min of CPU time, 50 % more than the 1 h that {{}}: {WRONG}"),
        ("cpu_seconds", 60.0, 0.0, f"used 1 min of CPU time, more than the 0 s that {{}}: {WRONG}"),
        (
            "memory_bytes",
            float(GIB),
            4.0 * GIB,
            f"had up to 1 GiB of memory, 75 % less than the 4 GiB that {{}}: {UNTRACED}",
        ),
    ],
)
def test_sentence_says_which_by_how_much_and_why(quantity: str, traced: float, measured: float, expected: str) -> None:
    report = make_report()
    difference = TraceDifference(quantity=quantity, traced=traced, measured=measured)
    traces = TraceSummary(differences=(difference,))

    assert (f"Traced processes {expected.format('the node agents measured')}",) == trace_sentences(
        replace(report, summary=replace(report.summary, traces=traces))
    )


def test_hostile_command_stays_text() -> None:
    report = make_traced_report(command=HOSTILE_NAME)

    assert "\x1b" not in render_text(report)
    assert "<script" not in render_html(report)
    assert "<script" not in render_mail_html(report)
    assert "calc" in read_pdf(report)
