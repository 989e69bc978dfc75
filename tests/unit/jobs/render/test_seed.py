# SPDX-License-Identifier: Apache-2.0
"""Check the older application's mail text: its sections, its warnings, its last line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.render.compat import render_seed_text, render_seed_usage
from slurmscope.jobs.rule import Severity, Subject
from tests.fakes.reports import (
    HOSTILE_NAME,
    make_finding,
    make_gpu_report,
    make_record,
    make_report,
    make_unmeasured_report,
)


def test_sections_come_in_their_order_and_the_last_line_is_for_the_mailer() -> None:
    lines = render_seed_text(make_report(), pdf_url="https://portal.example.org/pdf/4711").splitlines()

    assert [
        "----------General Data----------",
        "----------I/O Data----------",
        "----------Usage Data----------",
        "----------Thread Data----------",
    ] == [line for line in lines if line.startswith("---")]
    assert "Charts of this job: https://portal.example.org/pdf/4711" in lines
    assert "WARNING=true" == lines[-1]


def test_general_data_is_that_of_the_job() -> None:
    lines = render_seed_text(make_gpu_report()).splitlines()

    assert [
        "Sponsor: physics",
        "User: bob",
        "Allocated CPUS: 4",
        "Allocated TRES: cpu=4, mem=8192M, node=1, gres/gpu=2",
        "Node(s): n1",
        "Elapsed Time: 02:00:00",
    ] == lines[1:7]


def test_findings_stand_in_the_section_of_their_subject() -> None:
    report = make_report(
        findings=(
            make_finding("threads", Subject.THREADS, Severity.WARNING),
            replace(make_finding("files", Subject.FILES, Severity.WARNING), suggestion=""),
            make_finding("memory", Subject.MEMORY, Severity.INFO),
        )
    )
    text = render_seed_text(report)
    io, usage, threads = (text.index(f"----------{name} Data") for name in ("I/O", "Usage", "Thread"))

    assert io < text.index("Title of files -- WARNING") < usage
    assert usage < text.index("Title of memory\n") < threads
    assert threads < text.index("Title of threads -- WARNING")


def test_numbers_of_use_are_right() -> None:
    text = render_seed_text(make_report())

    assert "CPU use: 50 % of 4 cores\n" in text
    assert "Memory: 819 MiB at most, 10 % of what was requested\n" in text
    assert "relax: 2 threads at most\n" in text


def test_without_warning_the_last_line_says_false() -> None:
    report = make_report(findings=(make_finding(severity=Severity.INFO),))

    assert "WARNING=false" == render_seed_text(report).splitlines()[-1]
    assert " -- WARNING" not in render_seed_text(report)


@pytest.mark.parametrize("rule", ["scratch_unused", "cpu_uneven_over_time", "too_many_threads"])
def test_rules_of_the_older_application_are_warnings_as_there(rule: str) -> None:
    text = render_seed_text(make_report(findings=(make_finding(rule, severity=Severity.INFO),)))

    assert f"Title of {rule} -- WARNING\n" in text
    assert "WARNING=true" == text.splitlines()[-1]


def test_resources_of_the_allocation_are_as_there() -> None:
    record = make_record(nodes=("n1", "n2"), node_count=2, billing=12)

    assert {"billing": 12, "alloc_cpu": 4, "alloc_mem": "8192M", "alloc_nodes": "n1,n2"} == render_seed_usage(
        make_report(record)
    )["alloc_tres"]


def test_what_was_not_measured_is_said() -> None:
    text = render_seed_text(make_unmeasured_report(make_record(nodes=(), memory_bytes=None)))

    assert "Threads: not measured\n" in text
    assert "Node(s): none\n" in text
    assert "Allocated TRES: cpu=4, node=1\n" in text


def test_unknown_cores_are_not_zero() -> None:
    report = make_unmeasured_report(make_record(cpus=None))
    text, usage = render_seed_text(report), render_seed_usage(report)

    assert "Allocated CPUS: unknown\nAllocated TRES: mem=8192M, node=1\n" in text
    assert (None, None) == (usage["alloc_tres"]["alloc_cpu"], usage["cpu"]["available"]["amount"])  # type: ignore[index]


def test_a_hostile_name_cannot_forge_the_last_line() -> None:
    forged = "x\nWARNING=false"
    report = make_report(
        make_record(account=HOSTILE_NAME, user=forged, nodes=(forged,)),
        findings=(replace(make_finding(), title=forged, suggestion=forged),),
    )
    report = replace(report, summary=replace(report.summary, program_threads={forged: 1.0}))
    lines = render_seed_text(report, pdf_url=forged).split("\n")

    assert ["WARNING=true"] == [line for line in lines if line.startswith("WARNING=")]
