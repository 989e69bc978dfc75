# SPDX-License-Identifier: Apache-2.0
"""The controller's figures move as jobs and questions do."""

from __future__ import annotations

import re
import time

from lab import ALICE, BOB, SlurmLab
from lab.users import find_user
from tests.e2e.scrape import scrape
from tests.processes import Samples, as_user


def number(served: Samples, name: str, *labels: str) -> float:
    """Return one sample; a series that is not there yet counts nothing."""
    return served[name].get(labels, 0)


def config(lab: SlurmLab, name: str) -> str:
    """Return a line of the running configuration."""
    lines = lab.run("env", "SLURM_TIME_FORMAT=%s", "scontrol", "show", "config").splitlines()
    return next(line.partition("=")[2].strip() for line in lines if line.startswith(name))


def cycles(lab: SlurmLab) -> tuple[int, int]:
    """Return the cycles of the main and of the backfill scheduler."""
    main, backfill = re.findall(r"Total cycles: (\d+)", lab.run("sdiag"))
    return int(main), int(backfill)


def test_jobs_are_counted_on_their_way(clean_lab: SlurmLab) -> None:
    before = scrape(clean_lab, "scheduler")
    done = [clean_lab.submit(ALICE, script="true") for _ in range(3)]
    stopped = clean_lab.submit(ALICE, script="sleep 300")
    for job in done:
        clean_lab.wait_state(job, {"COMPLETED"})
    clean_lab.wait_state(stopped, {"RUNNING"})
    clean_lab.run("scancel", str(stopped))
    clean_lab.wait_state(stopped, {"CANCELLED"})

    after = scrape(clean_lab, "scheduler")

    assert {"submitted": 4, "started": 4, "completed": 3, "canceled": 1, "failed": 0} == {
        event: number(after, f"slurm_scheduler_jobs_{event}_total")
        - number(before, f"slurm_scheduler_jobs_{event}_total")
        for event in ("submitted", "started", "completed", "canceled", "failed")
    }
    assert 4 == number(after, "slurm_rpc_requests_total", "REQUEST_SUBMIT_BATCH_JOB") - number(
        before, "slurm_rpc_requests_total", "REQUEST_SUBMIT_BATCH_JOB"
    )


def test_questions_are_counted_by_user_and_message(clean_lab: SlurmLab) -> None:
    uid = clean_lab.run("id", "--user", BOB).strip()
    before = scrape(clean_lab, "scheduler")
    for _ in range(5):
        clean_lab.run("scontrol", "ping", user=BOB)

    after = scrape(clean_lab, "scheduler")

    for name, labels in [
        ("slurm_rpc_user_requests_total", (BOB, uid)),
        ("slurm_rpc_user_count", (BOB,)),
        ("slurm_rpc_requests_total", ("REQUEST_PING",)),
        ("slurm_rpc_msg_type_count", ("REQUEST_PING",)),
    ]:
        assert 5 == number(after, name, *labels) - number(before, name, *labels), name
    for name, labels in [
        ("slurm_rpc_user_seconds_total", (BOB, uid)),
        ("slurm_rpc_seconds_total", ("REQUEST_PING",)),
    ]:
        assert 0 < number(after, name, *labels) - number(before, name, *labels) < 60, name


def test_our_own_question_is_one_and_free_for_all(clean_lab: SlurmLab) -> None:
    first, second = scrape(clean_lab, "scheduler"), scrape(clean_lab, "scheduler")

    assert {"REQUEST_STATS_INFO": 1} == {
        message: change
        for (message,) in second["slurm_rpc_requests_total"]
        if message.endswith("_INFO")
        and (
            change := number(second, "slurm_rpc_requests_total", message)
            - number(first, "slurm_rpc_requests_total", message)
        )
    }
    user = find_user(ALICE)
    assert scrape(clean_lab, "scheduler", prefix=as_user(user.uid, user.gid))["slurm_rpc_requests_total"]


def test_the_schedulers_are_at_work(clean_lab: SlurmLab) -> None:
    cpus = 8 * len(clean_lab.nodes)
    running = clean_lab.submit(ALICE, f"--ntasks={cpus}", "--time=5", script="sleep 300")
    clean_lab.wait_state(running, {"RUNNING"})
    waiting = [clean_lab.submit(BOB, f"--ntasks={cpus}", "--time=5") for _ in range(2)]
    before = cycles(clean_lab)
    clean_lab.wait_for(
        lambda: all(now > then + 1 for then, now in zip(before, cycles(clean_lab), strict=True)),
        what="cycles of both schedulers",
    )
    after = scrape(clean_lab, "scheduler")

    assert frozenset({"PENDING"}) == frozenset().union(*map(clean_lab.job_states, waiting))
    assert len(waiting) == number(after, "slurm_backfill_last_queue_length")
    assert len(waiting) == number(after, "slurm_backfill_last_depth")
    assert abs(time.time() - number(after, "slurm_backfill_last_cycle_timestamp_seconds")) < 120
    for scheduler in ("slurm_scheduler", "slurm_backfill"):
        assert 0 < number(after, f"{scheduler}_last_cycle_seconds") <= number(after, f"{scheduler}_max_cycle_seconds")


def test_totals_began_when_the_controller_did_or_later(clean_lab: SlurmLab) -> None:
    boot_time = int(config(clean_lab, "BOOT_TIME"))
    # Right after its start the controller does not know yet.
    clean_lab.wait_for(
        lambda: " (0)" not in clean_lab.run("sdiag").partition("Data since")[2].partition("\n")[0],
        what="the totals to begin",
    )

    since = number(scrape(clean_lab, "scheduler"), "slurm_scheduler_statistics_start_timestamp_seconds")

    assert boot_time <= since <= time.time()


def test_a_reset_of_slurm_is_seen(clean_lab: SlurmLab) -> None:
    clean_lab.wait_state(clean_lab.submit(ALICE, script="true"), {"COMPLETED"})
    before = scrape(clean_lab, "scheduler")
    clean_lab.run("sdiag", "--reset")

    after = scrape(clean_lab, "scheduler")

    assert number(before, "slurm_scheduler_jobs_submitted_total") > 0
    assert 0 == number(after, "slurm_scheduler_jobs_submitted_total")
    assert 0 == number(after, "slurm_rpc_requests_total", "REQUEST_SUBMIT_BATCH_JOB")
