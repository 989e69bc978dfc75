# SPDX-License-Identifier: Apache-2.0
"""The pages of pending jobs agree with squeue, squeue --start, sprio and sdiag of a real cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lab import ALICE, BOB, SlurmLab
from tests.processes import Exporter, get_as, running, until

PATIENCE_SECONDS = 180
TASKS = 25


@dataclass(frozen=True, kw_only=True)
class Queue:
    """Hold a cluster that is full, and the jobs that wait there."""

    lab: SlurmLab
    portal: Exporter
    first: int
    array: int
    dependent: int

    def get(self, user: str, path: str) -> tuple[int, str]:
        """Request a page as the proxy does for this user."""
        return get_as(self.portal, user, path)

    def waiting(self, user: str, job: object) -> dict[str, Any]:
        """Return what the portal says of a pending job; empty if it knows none."""
        status, body = self.get(user, f"/api/v2/jobs/{job}/waiting")
        return json.loads(body) if status == 200 else {}

    def ask(self, *argv: str) -> list[list[str]]:
        """Return the rows of a Slurm command, split at bars; times are seconds since 1970."""
        answer = self.lab.run("env", "SLURM_TIME_FORMAT=%s", *argv)
        return [[field.strip() for field in line.split("|")] for line in answer.splitlines()]


@pytest.fixture(scope="module")
def queue(slurm_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    lab = slurm_lab
    lab.reset()
    private = tmp_path_factory.mktemp("waiting")
    everything = (f"--nodes={len(lab.nodes)}", "--exclusive", "--mem=0")
    runs = lab.submit(ALICE, *everything, "--time=30", script="sleep 1800")
    lab.wait_state(runs, {"RUNNING"}, timeout=PATIENCE_SECONDS)
    first = lab.submit(BOB, *everything, "--time=10", "--job-name=secret-of-bob")
    array = lab.submit(ALICE, f"--array=0-{TASKS - 1}%3", "--time=5", "--mem=50M")
    dependent = lab.submit(ALICE, f"--dependency=afterok:{runs}", "--time=5", "--mem=50M")
    with running(
        "portal",
        *("--portal.listen-address", "127.0.0.1:0", "--portal.mode", "proxy", "--portal.proxy-peers", "127.0.0.1"),
        *("--portal.admins", "root", "--archive.url", str(private / "archive.db")),
        *("--slurm.bin-path", str(lab.bin_path), "--slurm.timeout", "30s"),
        environment=lab.environment,
        wait_for="msg=listening",
    ) as portal:
        yield Queue(lab=lab, portal=portal, first=first, array=array, dependent=dependent)
    lab.cancel_all(timeout=PATIENCE_SECONDS)


def test_expected_start_is_that_of_squeue_start(queue: Queue) -> None:
    def starts() -> tuple[str, str]:
        rows = queue.ask("squeue", "--start", "--noheader", f"--jobs={queue.first}", "--format=%S")
        return rows[0][0], str(queue.waiting(BOB, queue.first).get("start_seconds"))

    def agree() -> bool:
        slurm, portal = starts()
        return slurm.isdigit() and slurm == portal

    # Slurm estimates the start in its next backfill cycle, the portal reads it again after 30 s.
    until(agree, PATIENCE_SECONDS)
    assert "Slurm has not estimated it yet" not in queue.get(BOB, f"/jobs/{queue.first}")[1]


def test_reason_and_request_are_those_of_squeue(queue: Queue) -> None:
    columns = "Reason:|,NumNodes:|,NumCPUs:|,PriorityLong:|,SubmitTime:|,LastSchedEval:"

    def agrees() -> bool:
        rows = queue.ask("squeue", "--noheader", f"--jobs={queue.first}", f"--Format={columns}")
        reason, nodes, cpus, priority, submit, _ = rows[0]
        found = queue.waiting(BOB, queue.first)
        values = (found.get("reason"), found.get("nodes"), found.get("cores"), found.get("priority"))
        return (reason, int(nodes), int(cpus), int(priority)) == values and int(submit) == found.get("submit_seconds")

    until(agrees, PATIENCE_SECONDS)
    evaluated = queue.waiting(BOB, queue.first)["estimated_seconds"]
    last = int(queue.ask("squeue", "--noheader", f"--jobs={queue.first}", "--Format=LastSchedEval:")[0][0])
    assert 0 <= last - evaluated <= PATIENCE_SECONDS
    assert "The job waits until enough resources are free." in queue.get(BOB, f"/jobs/{queue.first}")[1]


def test_priority_factors_are_those_of_sprio(queue: Queue) -> None:
    def factors() -> tuple[list[float], list[float]]:
        rows = queue.ask("sprio", "--noheader", f"--jobs={queue.first}", "--format=%Y|%A|%F|%Q")
        tables = queue.waiting(BOB, queue.first).get("priorities") or [{"rows": []}]
        own = {row["factor"]: row["own"] for row in tables[0]["rows"]}
        portal = [own.get(name, 0.0) for name in ("priority", "age", "fairshare", "qos")]
        return [float(text) for text in rows[0]], portal

    def agree() -> bool:
        slurm, portal = factors()
        return slurm == portal and slurm[0] > 0

    until(agree, PATIENCE_SECONDS)


def test_position_counts_tasks_with_a_higher_priority(queue: Queue) -> None:
    def positions() -> tuple[int, int, int, int]:
        rows = queue.ask("squeue", "--noheader", "--array", "--states=PENDING", "--format=%A|%F|%Q|%r|%P")
        considered = [row for row in rows if row[4] == "debug" and row[3] not in {"Dependency", "BeginTime"}]
        # Of equal priorities the older job is first.
        own = min((-int(row[2]), int(row[1])) for row in rows if row[1] == str(queue.array))
        ahead = sum((-int(row[2]), int(row[1])) < own for row in considered)
        found = queue.waiting(ALICE, f"{queue.array}_{TASKS - 1}").get("positions") or [{}]
        return ahead + 1, len(considered), found[0].get("position", 0), found[0].get("jobs", 0)

    def agree() -> bool:
        *slurm, position, jobs = positions()
        return slurm == [position, jobs] and jobs == TASKS + 1

    until(agree, PATIENCE_SECONDS)


def test_backfill_cycle_is_one_of_sdiag(queue: Queue) -> None:
    def last_cycle() -> int:
        lines = queue.lab.run("sdiag").partition("Backfilling stats")[2].splitlines()
        (line,) = [line for line in lines if "Last cycle when" in line]
        return int(line.rpartition("(")[2].rstrip(")"))

    until(lambda: queue.waiting(BOB, queue.first).get("backfill_seconds"), PATIENCE_SECONDS)
    portal = queue.waiting(BOB, queue.first)["backfill_seconds"]
    assert 0 <= last_cycle() - portal <= PATIENCE_SECONDS


def test_array_has_all_its_tasks_and_dependency_its_link(queue: Queue) -> None:
    until(lambda: queue.waiting(ALICE, f"{queue.array}_0").get("tasks") == TASKS, PATIENCE_SECONDS)
    status, page = queue.get(ALICE, f"/arrays/{queue.array}")
    assert (200, True) == (status, f"{TASKS} pending tasks" in page)
    (blocker,) = queue.waiting(ALICE, queue.dependent)["blockers"]
    assert ("Dependency", "has completed successfully (unfulfilled)") == (blocker["title"], blocker["text"])


def test_list_has_every_pending_job_of_squeue_and_users_see_their_own(queue: Queue) -> None:
    def pending(user: str) -> int:
        jobs = json.loads(queue.get(user, "/api/v2/jobs?state=PENDING")[1])["jobs"]
        assert user == "root" or {user} >= {job["user"] for job in jobs}
        return sum(job["array_tasks"] for job in jobs)

    def expected(*more: str) -> int:
        return len(queue.ask("squeue", "--noheader", "--array", "--states=PENDING", *more))

    until(lambda: expected() == pending("root") > 0, PATIENCE_SECONDS)
    assert expected(f"--user={ALICE}") == pending(ALICE) == TASKS + 1
    assert 404 == queue.get(ALICE, f"/jobs/{queue.first}")[0]
    assert 404 == queue.get(ALICE, f"/jobs/{queue.first}/waiting")[0]
    for path in ("/", "/jobs", f"/jobs/{queue.array}_0", f"/arrays/{queue.array}", "/cluster"):
        assert "secret-of-bob" not in queue.get(ALICE, path)[1]
