# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmscope.cluster.licenses import License, Licenses
from slurmscope.cluster.limits import AssociationLimits, Limit, LimitKind, Limits
from slurmscope.cluster.reservations import Reservation, Reservations
from slurmscope.cluster.rpc import StatisticsValues
from slurmscope.cluster.scheduler import Diag
from slurmscope.cluster.sinfo import Node, Nodes
from slurmscope.jobs.pending.blockers import QueueFacts, needed_facts
from slurmscope.jobs.pending.queue import JobPriorities, JobPriority, PendingJob
from slurmscope.jobs.summary import Coverage, MemorySummary, NodeSummary
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import FakeBackend
from tests.fakes.reports import HOSTILE_NAME, make_record, make_report
from tests.fakes.waiting import NOW, make_queue, make_waiting

GIB = 1 << 30
NODE = Node(
    name="n1", base_state="mixed", flags=frozenset(), state_text="mixed", partitions=("batch",), cpus_total=16,
    cpus_allocated=14, cpus_idle=2, memory_bytes=64 * GIB, allocated_memory_bytes=24 * GIB, weight=1, gres=(),
)  # fmt: skip
DIAG = Diag(backfill=StatisticsValues.of([f"Last cycle when: a moment ago ({NOW - 20})"]))


def show(backend: FakeBackend, job: PendingJob, *others: PendingJob, viewer: str = "ada") -> Page:
    backend.waiting = make_queue(job, *others)
    answer = PortalClient(backend.make_app(), viewer).get(f"/jobs/{job.job_id}")
    assert 200 == answer.status_code
    return Page(answer.text)


def test_page_explains_the_reason_and_has_no_gauges(backend: FakeBackend) -> None:
    page = show(backend, make_waiting(9001, reason="Priority"))
    assert "Jobs with a higher priority are ahead in this partition." in page.text
    assert "Slurm has not estimated it yet" in page.text
    assert "not measured" not in page.text
    assert [] == page.open


def test_expected_start_is_shown_with_the_age_of_the_estimate(backend: FakeBackend) -> None:
    backend.facts = QueueFacts(diag=DIAG)
    page = show(backend, make_waiting(9001, start_seconds=NOW + 5400, evaluated_seconds=NOW - 40))
    assert "in 1 h 30 min" in page.text
    assert "Last considered by the scheduler 40 s ago" in page.text
    assert "Last backfill cycle 20 s ago" in page.text


def test_estimate_that_has_passed_says_so(backend: FakeBackend) -> None:
    assert "which has passed" in show(backend, make_waiting(9001, start_seconds=NOW - 5)).text


def test_position_and_priority_name_no_other_user(backend: FakeBackend) -> None:
    backend.facts = QueueFacts(
        priorities=JobPriorities(
            priorities=(
                JobPriority(job_id=9002, partition="batch", total=5000.0, factors={"age": 5000.0}),
                JobPriority(job_id=9001, partition="batch", total=1000.0, factors={"fairshare": 1000.0}),
            )
        )
    )
    other = make_waiting(9002, user="bob", account="bio", name="secret", priority=5000, cpus=64)
    page = show(backend, make_waiting(9001), other)
    assert "2 of 2 pending jobs in batch" in page.text
    assert "those ahead request 64 cores" in page.text
    assert "priority 1,000 3,000 5,000 –" in page.text
    assert "fairshare 1,000 500 0 –" in page.text
    for hidden in ("bob", "secret", "9002", "bio"):
        assert hidden not in page.text


def test_request_is_compared_with_what_is_free(backend: FakeBackend) -> None:
    backend.facts = QueueFacts(nodes=Nodes(nodes=(NODE,)))
    page = show(backend, make_waiting(9001, reason="Resources", cpus=8))
    assert "No node has room for what the job requests on one node." in page.text
    assert "A smaller request" not in page.text


@pytest.mark.parametrize(
    ("values", "facts", "expected"),
    [
        (
            {"reason": "AssocGrpCpuLimit"},
            QueueFacts(
                limits=Limits(
                    associations=(
                        AssociationLimits(
                            account="physics",
                            limits=(Limit(name="GrpTRES", kind=LimitKind.TRES, tres="cpu", limit=16.0, used=15.0),),
                        ),
                    ),
                    qos=(),
                )
            ),
            "GrpTRES of account physics: cpu: 15 of 16 in use",
        ),
        (
            {"reason": "Dependency", "dependency": "afterok:4711(unfulfilled),afterany:4712_*(unfulfilled)"},
            QueueFacts(),
            "Dependency: starts after job 4711 has completed successfully (unfulfilled)",
        ),
        ({"reason": "Dependency", "dependency": "singleton(unfulfilled)"}, QueueFacts(), "singleton(unfulfilled)"),
        (
            {"reason": "Licenses", "licenses": "matlab:4,other"},
            QueueFacts(licenses=Licenses(licenses=(License(name="matlab", total=10, used=8, free=2),))),
            "not met Licenses: 4 matlab licenses requested, 2 of 10 free Licenses: 1 other license requested",
        ),
        (
            {"reason": "Reservation", "reservation": "maint"},
            QueueFacts(
                reservations=Reservations(
                    reservations=(
                        Reservation(name="maint", is_active=False, start_timestamp=NOW + 60, end_timestamp=NOW + 99),
                    )
                )
            ),
            "not active now",
        ),
        ({"reason": "Reservation", "reservation": "gone"}, QueueFacts(), "the job starts in this reservation only"),
        ({"reason": "ReqNodeNotAvail, UnavailableNodes:n[1-3]"}, QueueFacts(), "UnavailableNodes:n[1-3]"),
    ],
)
def test_page_shows_what_blocks_the_job(
    backend: FakeBackend, values: dict[str, object], facts: QueueFacts, expected: str
) -> None:
    backend.facts = facts
    assert expected in show(backend, make_waiting(9001, **values)).text


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({}, {"priorities", "diag"}),
        ({"reason": "QOSMaxJobsPerUserLimit"}, {"priorities", "diag", "limits"}),
        ({"licenses": "a:1"}, {"priorities", "diag", "licenses"}),
        ({"reservation": "r"}, {"priorities", "diag", "reservations"}),
    ],
)
def test_only_what_explains_a_job_is_read(values: dict[str, object], names: set[str]) -> None:
    assert names == needed_facts(make_waiting(1, **values))


def test_hostile_names_are_escaped(backend: FakeBackend) -> None:
    page = show(backend, make_waiting(9001, name=HOSTILE_NAME, reason=HOSTILE_NAME, features=HOSTILE_NAME))
    assert [] == page.open


def test_page_of_a_job_that_is_not_in_the_queue_yet_comes_from_accounting(backend: FakeBackend) -> None:
    backend.live["9001"] = make_report(
        make_record(9001, state="PENDING", start_seconds=None, end_seconds=None, reason="Resources", nodes=())
    )
    page = Page(PortalClient(backend.make_app(), "ada").get("/jobs/9001").text)
    assert "The job waits until enough resources are free." in page.text


def test_update_replaces_itself_and_reloads_once_the_job_has_started(backend: FakeBackend) -> None:
    backend.waiting = make_queue(make_waiting(9001))
    portal = PortalClient(backend.make_app(), "ada")
    answer = portal.get("/jobs/9001/waiting")
    assert answer.text.count('id="waiting"') == 1
    assert "<html" not in answer.text
    started = portal.get("/jobs/4711/waiting")
    assert (204, "true") == (started.status_code, started.headers["HX-Refresh"])
    assert 404 == portal.get("/jobs/1/waiting").status_code


def test_array_without_started_tasks_has_a_page_and_so_have_its_tasks(backend: FakeBackend) -> None:
    job = make_waiting(9100, array_job_id=9100, tasks=(range(25),), tasks_text="0-24")
    backend.waiting = make_queue(job)
    portal = PortalClient(backend.make_app(), "ada")
    assert "25 pending tasks" in Page(portal.get("/arrays/9100").text).text
    task = Page(portal.get("/jobs/9100_3").text).text
    assert "9100_3" in task
    assert "one of 25 pending tasks" in task
    assert portal.get("/jobs/9100").headers["location"].endswith("/arrays/9100")
    assert 404 == portal.get("/jobs/9100_25").status_code


def test_api_explains_a_pending_job(backend: FakeBackend) -> None:
    backend.waiting = make_queue(make_waiting(9001, start_seconds=NOW + 60))
    portal = PortalClient(backend.make_app(), "ada")
    answer = portal.get("/api/v2/jobs/9001/waiting").json()
    assert ("9001", "Priority", NOW + 60) == (answer["shown_id"], answer["reason"], answer["start_seconds"])
    assert [{"partition": "batch", "position": 1, "jobs": 1, "cores_ahead": 0, "gpus_ahead": 0}] == answer["positions"]
    assert 404 == portal.get("/api/v2/jobs/4711/waiting").status_code


def test_staff_access_to_a_pending_job_is_audited(backend: FakeBackend) -> None:
    show(backend, make_waiting(9001), viewer="sue")
    assert ("sue", "/jobs/{shown_id}", "job 9001") in backend.audited


def test_search_finds_a_pending_job_by_its_number(backend: FakeBackend) -> None:
    backend.waiting = make_queue(make_waiting(9001))
    portal = PortalClient(backend.make_app(), "ada")
    assert portal.get("/search?q=9001").headers["location"].endswith("/jobs/9001")
    assert (
        "9001"
        not in PortalClient(backend.make_app(), "bob").get("/search?q=9001").headers["location"].partition("?")[0]
    )


def test_limits_without_use_and_of_memory_are_shown(backend: FakeBackend) -> None:
    limits = [
        Limit(name="MaxTRESPJ", kind=LimitKind.TRES, tres="mem", limit=8.0 * GIB),
        Limit(name="GrpTRESMins", kind=LimitKind.TRES_SECONDS, tres="cpu", limit=7200.0, used=3600.0),
        Limit(name="GrpWall", kind=LimitKind.WALL_SECONDS, limit=7200.0, used=60.0),
    ]
    for limit, reason, text in zip(
        limits,
        ("AssocMaxMemPerJob", "AssocGrpCPUMinutesLimit", "AssocGrpWallLimit"),
        ("mem: limit 8 GiB", "cpu: 1 hours of 2 hours in use", "1 min of 2 h in use"),
        strict=True,
    ):
        association = AssociationLimits(account="physics", limits=(limit,))
        backend.facts = replace(QueueFacts(), limits=Limits(associations=(association,), qos=()))
        assert text in show(backend, make_waiting(9001, reason=reason)).text


MATLAB = Licenses(
    licenses=(License(name="matlab", total=56, used=56, free=0), License(name="c", total=9, used=0, free=9))
)


@pytest.mark.parametrize("reason", ["Priority", "Resources", "None", "Licenses"])
def test_missing_license_is_the_headline_whatever_slurm_reports_first(backend: FakeBackend, reason: str) -> None:
    backend.facts = QueueFacts(nodes=Nodes(nodes=(NODE,)), licenses=MATLAB)
    page = show(backend, make_waiting(9001, reason=reason, licenses="c:1,matlab:2", cpus=1))

    assert (
        f"Licenses: 2 matlab licenses requested, 0 of 56 free. {reason} Wait until other jobs return licenses"
        in page.text
    )
    assert (
        "not met Licenses: 2 matlab licenses requested, 0 of 56 free met Licenses: 1 c license requested, 9 of 9 free"
        in page.text
    )
    assert "Nodes have room for the request; the reason above keeps the job from starting." in page.text
    assert "higher priority" not in page.text


def test_one_of_several_licenses_is_enough(backend: FakeBackend) -> None:
    backend.facts = QueueFacts(licenses=MATLAB)
    page = show(backend, make_waiting(9001, reason="Priority", licenses="c:1|matlab:2"))

    assert "Jobs with a higher priority are ahead" in page.text
    assert "not met" not in page.text


def test_reason_that_is_no_turn_stays_the_headline(backend: FakeBackend) -> None:
    backend.facts = QueueFacts(licenses=MATLAB)
    page = show(backend, make_waiting(9001, reason="JobHeldUser", licenses="matlab:2"))

    assert "The job is held by its user." in page.text


def test_infinite_priority_is_no_number(backend: FakeBackend) -> None:
    # NO_VAL and INFINITE of slurm.h.
    first, second = JobPriority(job_id=9001, partition="batch", total=4294967294.0), 4294967295.0
    others = (
        JobPriority(job_id=9002, partition="batch", total=second),
        JobPriority(job_id=9, partition="batch", total=7),
    )
    backend.facts = QueueFacts(priorities=JobPriorities(priorities=(first, *others)))
    page = show(
        backend, make_waiting(9001, priority=4294967294), make_waiting(9002, priority=4294967295), make_waiting(9)
    )
    answer = PortalClient(backend.make_app(), "ada").get("/api/v2/jobs/9001/waiting")

    assert "priority highest highest – 7" in page.text
    assert "429496729" not in page.text.replace(",", "") + answer.text


FORTNIGHT = 14 * 86_400


@pytest.mark.parametrize(
    ("past_seconds", "command"),
    [((), ""), ((7200, 3 * 86_400), "TimeLimit=4-12:00:00"), ((1800,), "TimeLimit=00:50:00")],
)
def test_smaller_request_is_one_that_past_runs_did_with(
    backend: FakeBackend, past_seconds: tuple[int, ...], command: str
) -> None:
    """The gap of 55 minutes until the next planned start is no reason to request 55 minutes."""
    job = make_waiting(9001, name="long", time_limit_seconds=FORTNIGHT)
    for index, run_seconds in enumerate(past_seconds):
        report = make_report(make_record(700 + index, name="long"))
        backend.archive.save([replace(report, summary=replace(report.summary, run_seconds=run_seconds))])
    backend.facts = QueueFacts(nodes=Nodes(nodes=(NODE,)))
    page = show(backend, job, make_waiting(9002, start_seconds=NOW + 55 * 60))
    answer = PortalClient(backend.make_app(), "ada").get("/api/v2/jobs/9001/waiting").json()

    assert command in page.text
    assert bool(command) == ("TimeLimit=" in page.text)
    assert bool(command) == bool(answer["suggestions"])
    assert all(each["text"] in page.text and command in each["command"] for each in answer["suggestions"])


def save_run(backend: FakeBackend, *, memory: dict[str, Any] | None = None, **record: Any) -> None:
    """Archive a run of half an hour on two nodes, of which one needed 2 GiB and the other 12."""
    report = make_report(make_record(700, **{"name": "train", "node_count": 2, "nodes": ("n1", "n2"), **record}))
    nodes = (
        NodeSummary(node="n1", working_peak_bytes=2.0 * GIB),
        NodeSummary(node="n2", working_peak_bytes=12.0 * GIB),
    )
    measured = Coverage(nodes=2, nodes_measured=2, run_ratio=1.0)
    known = MemorySummary(
        requested_bytes=128.0 * GIB, working_peak_bytes=14.0 * GIB, is_bounded=True, coverage=measured
    )
    summary = replace(report.summary, run_seconds=1800.0, nodes=nodes, memory=replace(known, **(memory or {})))
    backend.archive.save([replace(report, summary=summary)])


@pytest.mark.parametrize(
    ("run", "command"),
    [
        # 12 GiB x 1.2 = 14.4, up to 15 GiB for each node; half an hour and half as much again, up to 50 min.
        ({}, "TimeLimit=00:50:00 MinMemoryNode=15360"),
        # Slurm's samples, or those of the agent alone, may have missed any peak.
        ({"memory": {"is_bounded": False}}, "TimeLimit=00:50:00"),
        ({"memory": {"working_peak_bytes": None, "slurm_peak_bytes": 1.0 * GIB}}, "TimeLimit=00:50:00"),
        # On fewer cores, the job may take longer.
        ({"cpus": 9}, None),
        ({"cpus": 8}, "TimeLimit=00:50:00 MinMemoryNode=15360"),
        ({"state": "FAILED"}, None),
    ],
)
def test_smaller_request_is_enough_for_the_neediest_node(
    backend: FakeBackend, run: dict[str, Any], command: str | None
) -> None:
    save_run(backend, **run)
    backend.waiting = make_queue(
        make_waiting(9001, nodes=2, cpus=8, memory_bytes=128 * GIB, time_limit_seconds=FORTNIGHT)
    )
    answer = PortalClient(backend.make_app(), "ada").get("/api/v2/jobs/9001/waiting").json()
    commands = [each["command"] for each in answer["suggestions"]]

    assert ([] if command is None else [f"scontrol update JobId=9001 {command}"]) == commands


@pytest.mark.parametrize(
    ("state", "command"),
    [
        # Those that were ended at their limits needed more.
        ("TIMEOUT", "MinMemoryNode=15360"),
        ("OUT_OF_MEMORY", "TimeLimit=00:50:00"),
        ("CANCELLED", "TimeLimit=00:50:00 MinMemoryNode=15360"),
    ],
)
def test_run_that_was_ended_at_its_limit_is_no_reason_for_less(backend: FakeBackend, state: str, command: str) -> None:
    save_run(backend)
    report = make_report(make_record(701, name="train", node_count=2, nodes=("n1", "n2"), state=state))
    backend.archive.save([report])
    job = make_waiting(9001, nodes=2, cpus=8, memory_bytes=128 * GIB, time_limit_seconds=FORTNIGHT)
    backend.waiting = make_queue(job)
    answer = PortalClient(backend.make_app(), "ada").get("/api/v2/jobs/9001/waiting").json()

    assert [f"scontrol update JobId=9001 {command}"] == [each["command"] for each in answer["suggestions"]]
