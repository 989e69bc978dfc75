# SPDX-License-Identifier: Apache-2.0
"""Check that Slurm's own samples are shown in every form, beside what the node agents measured."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from slurmscope.jobs.processes import ProfileComparison, ProfileSummary, StepProfile
from slurmscope.jobs.render.html import render_html, render_mail_html
from slurmscope.jobs.render.json import render_json
from slurmscope.jobs.render.tables import make_profile_table, profile_sentences
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.report import JobReport
from tests.fakes.reports import HOSTILE_NAME, make_profiled_report, make_report
from tests.unit.jobs.render.test_traces import FORMS, read_pdf

CPU_SENTENCE = "CPU time: 1 h 30 min in Slurm's samples, 3 h measured by the node agents; the samples have 50 % less."
MEMORY_SENTENCE = (
    "Highest memory of all tasks: 1.5 GiB in Slurm's samples, 1 GiB measured by the node agents; the samples have 50 % "
    "more."
)
NODE_SENTENCE = (
    "Nodes of step 0 while it ran: mean power 412 W, 250 W (GPU0); Lustre 6.52 GiB read, 7.45 GiB written; network "
    "8.38 GiB received, 9.31 GiB sent."
)
READ_SENTENCE = "Bytes read: 4.66 GiB in Slurm's samples, 4.66 GiB measured by the node agents; no difference."


@pytest.mark.parametrize("form", FORMS)
def test_every_form_shows_steps_tasks_and_both_sources(form: str) -> None:
    text = " ".join(FORMS[form](make_profiled_report()).replace("&#39;", "'").split())

    for words in (
        "Slurm's own samples", "batch", "all 2", "1 h 30 min", "512 MiB", "1 more step with less CPU time.",
        "30 more tasks of these steps with less CPU time.", CPU_SENTENCE, MEMORY_SENTENCE, READ_SENTENCE, NODE_SENTENCE,
    ):  # fmt: skip
        assert words in text


@pytest.mark.parametrize("form", FORMS)
def test_job_without_samples_has_no_word_about_them(form: str) -> None:
    assert "own samples" not in FORMS[form](make_report()).replace("&#39;", "'")


def test_table_has_steps_with_their_tasks() -> None:
    table = make_profile_table(make_profiled_report())

    assert ("Step", "Task", "Node", "CPU time", "Memory", "Read", "Written", "GPUs", "GPU memory") == table.head
    assert (
        ("batch", "0", "n1", "3 s", "8 MiB", "–", "–", "–", "–"),
        ("0", "all 2", "2 nodes", "1 h 30 min", "512 MiB", "4.66 GiB", "0 B", "1.5", "3 GiB"),
        ("0", "0", "n1", "1 h", "256 MiB", "4.66 GiB", "–", "0.75", "2 GiB"),
        ("0", "1", "n2", "30 min", "512 MiB", "–", "0 B", "–", "–"),
    ) == table.rows


def with_steps(*steps: StepProfile) -> JobReport:
    report = make_report()
    return replace(report, summary=replace(report.summary, profile=ProfileSummary(steps=steps)))


def test_step_without_tasks_has_a_row_and_a_sentence_about_its_nodes() -> None:
    sensors = {f"P{number}": 1.0 for number in range(9)}
    report = with_steps(StepProfile(step="0", mean_power_watts=sensors, sent_bytes=1024.0), StepProfile(step="1"))
    table = make_profile_table(report)

    assert ("Step", "Task", "Node", "CPU time", "Memory", "Read", "Written") == table.head
    assert (("0", "", "", "–", "–", "–", "–"), ("1", "", "", "–", "–", "–", "–")) == table.rows
    assert (
        "Nodes of step 0 while it ran: mean power 1 W (P0), 1 W (P1), 1 W (P2), 1 W (P3), …; network 1 KiB sent.",
    ) == profile_sentences(report)


def test_only_task_that_is_not_shown_leaves_its_step_without_number() -> None:
    report = with_steps(StepProfile(step="7", tasks=1, nodes=("n1",)), StepProfile(step="8", tasks=2, nodes=("n1",)))

    assert [("7", "", "n1"), ("8", "all 2", "n1")] == [row[:3] for row in make_profile_table(report).rows]


def test_number_that_the_agents_have_as_zero_has_no_share() -> None:
    report = with_steps()
    profile = ProfileSummary(comparisons=(ProfileComparison(quantity="write_bytes", sampled=1024.0, measured=0.0),))

    assert (
        "Bytes written: 1 KiB in Slurm's samples, 0 B measured by the node agents; the samples have more.",
    ) == profile_sentences(replace(report, summary=replace(report.summary, profile=profile)))


def test_json_has_the_numbers() -> None:
    profile = json.loads(render_json(make_profiled_report()))["summary"]["profile"]

    assert ("0", 2, {"node": 412.0, "GPU0": 250.0}) == tuple(
        profile["steps"][1][key] for key in ("step", "tasks", "mean_power_watts")
    )
    assert ("n2", "1", 1800.0, None) == tuple(
        profile["tasks"][2][key] for key in ("node", "task", "cpu_seconds", "read_bytes")
    )
    assert {"quantity": "cpu_seconds", "sampled": 5403.0, "measured": 10806.0} == profile["comparisons"][0]


def test_hostile_sensor_stays_text() -> None:
    report = make_profiled_report(sensor=HOSTILE_NAME)

    assert "\x1b" not in render_text(report, width=200)
    assert "<script" not in render_html(report)
    assert "<script" not in render_mail_html(report)
    assert "412 W" in " ".join(read_pdf(report).split())
