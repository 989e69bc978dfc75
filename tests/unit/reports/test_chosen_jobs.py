# SPDX-License-Identifier: Apache-2.0
"""The report of a heterogeneous job has all its parts, and that of a requeued job its earlier runs."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from pypdf import PdfReader

from slurmscope.archive.interface import JobFilter
from slurmscope.core.config import load
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.render.compat import render_seed_text
from slurmscope.jobs.rule import Severity
from slurmscope.reports.chosen_jobs import ChosenJobs
from slurmscope.reports.job_choice import JobChoice
from slurmscope.reports.settings import command_sections
from tests.fakes.reporting import FakeAccounting
from tests.fakes.reports import START, make_finding, make_record, make_report
from tests.unit.reports.test_local_jobs import make_jobs

PARTS = [make_record(12 + part, het_job_id=12, het_offset=part, cpus=4 + part) for part in (0, 1)]


REQUEUED = [
    make_record(7, state="REQUEUED", start_seconds=START, end_seconds=START + 600),
    make_record(7, submit_seconds=START + 600, start_seconds=START + 720, end_seconds=START + 4000),
]


def render(records: list[JobRecord], shown_id: str, format: str = "text", *, is_full: bool = False) -> str:
    return render_bytes(records, shown_id, format, is_full=is_full).decode()


def render_bytes(records: list[JobRecord], shown_id: str, format: str, *, is_full: bool = False) -> bytes:
    chosen = ChosenJobs(
        source=make_jobs(FakeAccounting(records)),
        config=load(command_sections(), flags={}, environment={}),
        choice=JobChoice(shown_ids=(shown_id,)),
        wanted=JobFilter(shown_ids=(shown_id,)),
        format=format,
        is_full=is_full,
    )
    return chosen.find(10)(width=80, use_color=False)


def read_pdf(records: list[JobRecord], shown_id: str) -> list[str]:
    """Return the text of each page."""
    pages = PdfReader(io.BytesIO(render_bytes(records, shown_id, "pdf"))).pages
    return [" ".join(page.extract_text().split()) for page in pages]


def test_report_of_a_heterogeneous_job_has_all_its_parts() -> None:
    text = render(PARTS, "12")

    assert (1, 1) == (text.count("Job 12+0"), text.count("Job 12+1"))
    assert [4, 5] == [part["summary"]["record"]["cpus"] for part in json.loads(render(PARTS, "12", "json"))]


def test_documents_of_a_heterogeneous_job_have_all_its_parts() -> None:
    page = render(PARTS, "12", "html")
    assert [1, 1, 2, 2] == [page.count(text) for text in ("<h1>Job 12+0", "<h1>Job 12+1", "<h2>Memory<", "<article>")]
    # One document.
    assert [1, 1, 1] == [page.count(text) for text in ("<!DOCTYPE", "<main>", "</html>")]
    assert page.rstrip().endswith("</html>")

    pages = read_pdf(PARTS, "12")
    begins = [number for number, text in enumerate(pages) if text.startswith("Job 12+")]
    assert [True, True] == [pages[number].startswith(f"Job 12+{part}") for part, number in enumerate(begins)]
    assert f"page 1 of {len(pages)}" in pages[0]

    text = render(PARTS, "12", "seed")
    assert 2 == text.count("----------General Data----------")
    assert 1 == text.count("WARNING=")
    assert text.splitlines()[-1].startswith("WARNING=")


def test_older_text_warns_if_one_part_does() -> None:
    quiet = replace(make_report(PARTS[0]), findings=())
    loud = replace(make_report(PARTS[1]), findings=(make_finding("cpu_idle", severity=Severity.WARNING),))

    for first, second, expected in ((quiet, loud, "true"), (loud, quiet, "true"), (quiet, quiet, "false")):
        assert f"WARNING={expected}" == render_seed_text(first, parts=(second,)).splitlines()[-1]


def test_document_of_one_part_has_no_other() -> None:
    page = render(PARTS, "12+1", "html")
    assert [0, 1, 0, 1] == [page.count(text) for text in ("<h1>Job 12+0", "<h1>Job 12+1", "<article>", "<main>")]
    assert not [text for text in read_pdf(PARTS, "12+1") if text.startswith("Job 12+0")]


def test_documents_of_a_requeued_job_list_its_earlier_runs() -> None:
    # date -u -d @1790000000
    said = "started at 2026-09-21 14:13:20 UTC and was REQUEUED after 10 min"

    assert said in render(REQUEUED, "7", "html")
    assert said in " ".join(read_pdf(REQUEUED, "7"))
    (run,) = json.loads(render(REQUEUED, "7", "json"))["earlier_runs"]
    assert {"state": "REQUEUED", "start_seconds": START, "run_seconds": 600.0} == run
    assert [] == json.loads(render(REQUEUED[1:], "7", "json"))["earlier_runs"]
    full = " ".join(render(REQUEUED, "7", is_full=True).split())
    assert (1, 1) == (full.count("Earlier runs"), full.count("REQUEUED after 10 min"))


def test_one_part_can_be_chosen() -> None:
    text = render(PARTS, "12+1")

    assert (0, 1) == (text.count("Job 12+0"), text.count("Job 12+1"))


def test_report_of_a_requeued_job_lists_its_earlier_runs() -> None:
    first = make_record(7, state="REQUEUED", start_seconds=START, end_seconds=START + 600)
    last = make_record(7, submit_seconds=START + 600, start_seconds=START + 720, end_seconds=START + 4000)
    other = make_record(7, user="bob", submit_seconds=START - 10**6, start_seconds=START - 10**6)

    text = " ".join(render([first, last, other], "7").split())

    assert 1 == text.count("An earlier run of this job")
    assert "and was REQUEUED after 10 min" in text
    assert "An earlier run" not in render([last], "7")
