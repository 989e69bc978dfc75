# SPDX-License-Identifier: Apache-2.0
"""What holds up a whole job is named: a process with its node, PID and task, or a network that is not used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.processes import HeldTask
from slurmscope.jobs.rule import Finding, Severity
from slurmscope.jobs.series import Measured
from slurmscope.jobs.summarize import summarize
from slurmscope.jobs.summary import JobSummary
from tests.fakes.job_summaries import all_findings, make_summary
from tests.fakes.measured import curve
from tests.fakes.reports import START, make_record

STOPPED = HeldTask("n2", "412", "hpl", "3", "stopped", 300.0)
WAITING = HeldTask("n1", "77", "cp", "", "disk_sleep", 150.0)


def found(summary: JobSummary, rule: str = "process_held") -> Finding | None:
    return next((finding for finding in all_findings(summary) if finding.rule == rule), None)


def test_process_is_named_with_node_pid_and_task() -> None:
    finding = found(make_summary(held=(STOPPED, WAITING)))

    assert finding is not None
    assert (
        "Process 412 (hpl) (task 3) on n2 was stopped by a signal for 5 min; "
        "Process 77 (cp) on n1 waited for a disk or file system for 2 min 30 s. "
        "The other processes of the job may have waited for it."
    ) == finding.explanation
    assert (Severity.WARNING, {"held_seconds": 300.0, "held_processes": 2.0}) == (
        finding.severity,
        {name: finding.numbers[name] for name in ("held_seconds", "held_processes")},
    )
    # There is nothing left to continue.
    assert "kill -CONT" not in finding.advice


def test_running_job_is_stuck_now() -> None:
    running = make_summary(held=(STOPPED,), record={"state": "RUNNING", "end_seconds": None})

    finding = found(running)

    assert finding is not None
    assert Severity.CRITICAL == finding.severity
    assert "kill -CONT" in finding.advice


def test_running_job_that_was_held_hours_ago_is_not_stuck_now() -> None:
    running = {"state": "RUNNING", "end_seconds": None}
    over = STOPPED._replace(is_over=True, seconds=4000.0)
    past, both = (
        found(make_summary(held=(over,), record=running)),
        found(make_summary(held=(over, WAITING), record=running)),
    )

    assert past is not None
    assert both is not None
    assert (Severity.WARNING, False) == (past.severity, "kill -CONT" in past.advice)
    # The one that waits now comes first.
    assert (Severity.CRITICAL, True) == (both.severity, both.explanation.startswith("Process 77 (cp) on n1 waited"))


@pytest.mark.parametrize(("seconds", "is_found"), [(119.9, False), (120.0, True)])
def test_short_stops_are_ignored(seconds: float, is_found: bool) -> None:
    assert is_found == (found(make_summary(held=(STOPPED._replace(seconds=seconds),))) is not None)


def test_suspended_job_is_not_stuck() -> None:
    was = make_summary(held=(STOPPED,))
    assert found(replace(was, record=replace(was.record, suspended_seconds=301))) is None
    assert found(make_summary(held=(STOPPED,), record={"state": "SUSPENDED", "end_seconds": None})) is None


def test_many_processes_are_counted() -> None:
    finding = found(make_summary(held=tuple(STOPPED._replace(pid=str(pid)) for pid in range(5))))

    assert finding is not None
    assert "; and 2 more processes. " in finding.explanation


@pytest.mark.parametrize(("last", "is_over"), [(7200.0, False), (7140.0, False), (7110.0, True)])
def test_held_processes_come_from_the_series_of_the_agents(last: float, is_over: bool) -> None:
    labels = ("n1", "412", "hpl", "3", "stopped")
    held: dict[tuple[str, ...], float] = {labels: 240.0, ("n1", "9", "cp", "", "disk_sleep"): 300.0}
    # A point every 30 seconds, of which two may be lost.
    curves = {"cpu": (curve(("n1",), 1.0),), "held": (curve(labels, 200.0, first=last - 60, last=last),)}

    record = make_record(7, nodes=("n1",), state="RUNNING", end_seconds=None)
    summary = summarize(record, Measured(totals={"held": held}, curves=curves), now_seconds=START + 7200.0)

    waits = HeldTask("n1", "9", "cp", "", "disk_sleep", 300.0)
    assert (waits, HeldTask(*labels, 240.0, is_over)) == summary.held


def sent(nodes: int = 2, **transports: float) -> JobSummary:
    return make_summary(record={"node_count": nodes}, run_seconds=1000.0, sent_bytes=transports)


def test_job_that_fell_back_to_ethernet_is_found() -> None:
    # 200 GB each from two nodes in 1,000 s.
    finding = found(sent(ethernet=400e9, infiniband=4e9), "network_fallback")

    assert finding is not None
    assert {"ethernet_bytes_per_second": 200e6, "fast_bytes": 4e9}.items() <= finding.numbers.items()
    assert "over Ethernet" in finding.explanation


@pytest.mark.parametrize(
    "summary",
    [
        sent(ethernet=400e9),  # has no other network
        sent(ethernet=400e9, infiniband=4.1e9),
        sent(ethernet=199e9, infiniband=0.0),
        sent(nodes=1, ethernet=400e9, infiniband=0.0),
        sent(infiniband=400e9),
        make_summary(),
    ],
)
def test_job_that_uses_the_network_it_has_is_not_found(summary: JobSummary) -> None:
    assert found(summary, "network_fallback") is None


def test_network_counts_where_the_job_was_alone_on_all_nodes() -> None:
    totals: dict[tuple[str, ...], float] = {("n1", "ethernet"): 5.0, ("n2", "ethernet"): 6.0, ("n2", "infiniband"): 1.0}
    record = make_record(7, nodes=("n1", "n2"))

    whole = summarize(record, Measured(totals={"network": totals}), now_seconds=START + 10_000.0)
    part = summarize(record, Measured(totals={"network": {("n1", "ethernet"): 5.0}}), now_seconds=START + 10_000.0)

    assert ({"ethernet": 11.0, "infiniband": 1.0}, {}) == (whole.sent_bytes, part.sent_bytes)
