# SPDX-License-Identifier: Apache-2.0
"""The report of a heterogeneous job has all its parts, and that of a requeued job its earlier runs."""

from __future__ import annotations

import json

from slurmscope.archive.interface import JobFilter
from slurmscope.core.config import load
from slurmscope.jobs.record import JobRecord
from slurmscope.reports.chosen_jobs import ChosenJobs
from slurmscope.reports.job_choice import JobChoice
from slurmscope.reports.settings import command_sections
from tests.fakes.reporting import FakeAccounting
from tests.fakes.reports import START, make_record
from tests.unit.reports.test_local_jobs import make_jobs

PARTS = [make_record(12 + part, het_job_id=12, het_offset=part, cpus=4 + part) for part in (0, 1)]


def render(records: list[JobRecord], shown_id: str, format: str = "text") -> str:
    chosen = ChosenJobs(
        source=make_jobs(FakeAccounting(records)),
        config=load(command_sections(), flags={}, environment={}),
        choice=JobChoice(shown_ids=(shown_id,)),
        wanted=JobFilter(shown_ids=(shown_id,)),
        format=format,
    )
    return chosen.find(10)(width=80, use_color=False).decode()


def test_report_of_a_heterogeneous_job_has_all_its_parts() -> None:
    text = render(PARTS, "12")

    assert (1, 1) == (text.count("Job 12+0"), text.count("Job 12+1"))
    assert [4, 5] == [part["summary"]["record"]["cpus"] for part in json.loads(render(PARTS, "12", "json"))]


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
