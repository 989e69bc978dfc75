# SPDX-License-Identifier: Apache-2.0
"""The header for the next run is the same in every rendering."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from pypdf import PdfReader

from slurmscope.jobs.render.html import render_html
from slurmscope.jobs.render.json import render_json
from slurmscope.jobs.render.pdf import render_pdf
from slurmscope.jobs.render.resubmission import describe_resubmission
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.report import ExpectedWait, FreedResources, JobReport, OptionChange, RequestedSize, Resubmission
from slurmscope.mail.mail import make_mail
from tests.fakes.reports import HOSTILE_NAME, make_report

SIZE = RequestedSize(nodes=1, cpus=4, gpus=0, memory_bytes=None, limit_seconds=86400.0)
HOUR = 3600.0
MADE = Resubmission(
    changes=(
        OptionChange(option="mem", submitted="8G", suggested="1G", reason="Much was not needed"),
        OptionChange(option="time", submitted="", suggested="03:00:00", reason="This run took 2 h."),
    ),
    other_runs=24,
    submitted=SIZE,
    suggested=replace(SIZE, limit_seconds=3 * HOUR),
    freed=FreedResources(core_seconds=20 * HOUR, gpu_seconds=HOUR, memory_byte_seconds=7 * (1 << 30) * 2 * HOUR),
    wait=ExpectedWait(submitted_seconds=73 * 60.0, suggested_seconds=360.0, jobs=30),
    note="Remove the other line.",
)
DIFF = ("-#SBATCH --mem=8G", "+#SBATCH --mem=1G", "+#SBATCH --time=03:00:00")
WORTH = "Waits about 6 min instead of 1 h 13 min, frees 20 core-hours, 1 GPU-hour and 14 GiB-hours of memory per run."
BASIS = "Based on this run and 24 other runs with the same name and size."


def report_with(made: Resubmission | None) -> JobReport:
    return replace(make_report(), resubmission=made)


def test_sentences_say_why_and_what_it_is_worth() -> None:
    header = describe_resubmission(report_with(MADE))
    assert header is not None
    assert ("#SBATCH --mem=1G", "#SBATCH --time=03:00:00") == header.lines
    assert DIFF == header.diff
    assert (
        WORTH,
        "--mem: Much was not needed.",
        "--time: This run took 2 h.",
        BASIS,
        "Remove the other line.",
    ) == header.sentences


def test_unknown_worth_is_left_out() -> None:
    header = describe_resubmission(report_with(replace(MADE, freed=FreedResources(), wait=None, other_runs=0)))
    assert header is not None
    assert "" == header.worth
    assert "Based on this run alone: the next one may need more if its input is larger." == header.basis


def test_equal_waiting_time_is_said_once() -> None:
    wait = ExpectedWait(submitted_seconds=60.2, suggested_seconds=60.0, jobs=30)
    header = describe_resubmission(report_with(replace(MADE, freed=FreedResources(), wait=wait)))
    assert header is not None
    assert "Waits about 1 min, as before." == header.worth


def test_report_without_changes_has_no_header() -> None:
    assert describe_resubmission(report_with(None)) is None
    assert describe_resubmission(report_with(replace(MADE, changes=()))) is None


def test_header_is_in_the_text_and_replaces_the_lines_of_findings() -> None:
    text = render_text(report_with(MADE))
    assert "Header for the next run ---" in text
    assert "    -#SBATCH --mem=8G\n    +#SBATCH --mem=1G\n    +#SBATCH --time=03:00:00\n" in text
    assert "--cpus-per-task=2" not in text
    assert "--cpus-per-task=2" in render_text(make_report())


def test_header_is_in_html_and_mail() -> None:
    html = render_html(report_with(MADE))
    assert '<span class="removed">-#SBATCH --mem=8G</span>\n<span class="added">+#SBATCH --mem=1G</span>' in html
    assert WORTH in html
    mail = make_mail(report_with(MADE), sender="a@example.org", recipient="b@example.org")
    text, page, _pdf = [part for part in mail.walk() if not part.is_multipart()]
    assert all("#SBATCH --mem=1G" in str(part.get_payload(decode=True)) for part in (text, page))


def test_header_is_in_the_pdf() -> None:
    text = PdfReader(io.BytesIO(render_pdf(report_with(MADE)))).pages[0].extract_text()
    assert "Header for the next run" in text
    assert "+#SBATCH --time=03:00:00" in text


def test_header_is_in_json() -> None:
    made = json.loads(render_json(report_with(MADE)))["resubmission"]
    assert list(DIFF) == made["diff"]
    assert ["#SBATCH --mem=1G", "#SBATCH --time=03:00:00"] == made["lines"]
    expected = {
        "option": "mem",
        "submitted": "8G",
        "suggested": "1G",
        "reason": "Much was not needed",
        "line": "#SBATCH --mem=1G",
    }
    assert expected == made["changes"][0]
    assert 360.0 == made["wait"]["suggested_seconds"]
    assert json.loads(render_json(make_report()))["resubmission"] is None


def test_hostile_submitted_value_is_shown_as_text() -> None:
    change = OptionChange(option="mem", submitted=HOSTILE_NAME, suggested="1G", reason=HOSTILE_NAME)
    report = report_with(replace(MADE, changes=(change,)))
    assert "\x1b" not in render_text(report)
    assert "<script>" not in render_html(report)
    assert render_pdf(report).startswith(b"%PDF")
