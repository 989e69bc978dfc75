# SPDX-License-Identifier: Apache-2.0
"""Our counts of ended jobs are those of Slurm's accounting, through outages and restarts."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab import ALICE, BOB, SlurmLab
from tests.e2e.scrape import scrape
from tests.processes import Samples

ENDINGS = "CD,F,TO,CA,NF,OOM,RQ,PR,BF,DL"
COLUMNS = "Partition%30,Account%30,State%30,Elapsed,AllocCPUS"


def begin_second() -> int:
    """Return the second that begins now: jobs of an earlier test may have been cancelled in the one before."""
    start = int(time.time()) + 1
    time.sleep(max(0.0, start - time.time()))
    return start


def count_ended(lab: SlurmLab, state_file: Path, *flags: str, is_success: bool = True) -> Samples:
    """Start the exporter anew, read accounting once, and return the counters that continue in the file."""
    flags = (f"--completions.state-file={state_file}", *flags)
    return scrape(lab, "completions", flags=flags, is_success=is_success)


def accounting_rows(lab: SlurmLab, start: int, columns: str) -> list[list[str]]:
    """Ask with local times and padded columns, for people: not the way we ask."""
    window = [
        datetime.fromtimestamp(second, UTC).astimezone().strftime("%Y-%m-%dT%H:%M:%S")
        for second in (start, int(time.time()) + 60)
    ]
    answer = lab.run(
        "sacct", "-a", "-X", "-D", "-n", "-S", window[0], "-E", window[1], "-s", ENDINGS, f"--format={columns}"
    )
    # A column may be empty: a job cancelled before accounting knew of it has no partition there.
    widths = [int(column.partition("%")[2] or 10) for column in columns.split(",")]
    begins = [sum(widths[:place]) + place for place in range(len(widths))]
    # Who cancelled a job is told after the state.
    return [
        [
            re.sub(r" by \d+", "", line[begin : begin + width]).strip()
            for begin, width in zip(begins, widths, strict=True)
        ]
        for line in answer.splitlines()
    ]


def as_seconds(elapsed: str) -> int:
    hours, minutes, seconds = map(int, elapsed.split(":"))
    return 3600 * hours + 60 * minutes + seconds


def wait_for_rows(lab: SlurmLab, start: int, count: int) -> None:
    lab.wait_for(
        lambda: len(accounting_rows(lab, start, "JobID%30")) >= count, what=f"{count} ended jobs in accounting"
    )


@contextmanager
def down(lab: SlurmLab, daemon: str) -> Iterator[None]:
    lab.kill(daemon)
    try:
        yield
    finally:
        lab.start_daemon(daemon)


def test_totals_equal_those_of_accounting(clean_lab: SlurmLab, tmp_path: Path) -> None:
    start = begin_second()
    begun = tmp_path / "begun.json"
    count_ended(clean_lab, begun)
    timing_out = clean_lab.submit(ALICE, "--partition=long", script="sleep 300")
    clean_lab.wait_state(timing_out, {"RUNNING"})
    # The shortest time limit is a minute; an end in a second is found at the controller's next look.
    clean_lab.run("scontrol", "update", f"JobId={timing_out}", "EndTime=now+1")
    cancelled = clean_lab.submit(BOB, "--partition=gpus", "--gres=gpu:2", "--cpus-per-task=2", script="sleep 300")
    requeued = clean_lab.submit(BOB, script="sleep 300")
    waiting = clean_lab.submit(ALICE, "--hold", "--array=1-4")
    clean_lab.submit(ALICE, script="true")
    clean_lab.submit(ALICE, script="exit 3")
    clean_lab.submit(BOB, script="kill -SEGV $$")
    clean_lab.submit(BOB, "--mem=50M", script="python3 -c 'bytearray(300 << 20)'")
    clean_lab.submit(ALICE, "--array=1-5", script="sleep 1")
    for job in (cancelled, requeued):
        clean_lab.wait_state(job, {"RUNNING"})
    time.sleep(2)
    clean_lab.run("scancel", str(cancelled), str(waiting))
    clean_lab.run("scontrol", "requeue", str(requeued))
    clean_lab.wait_state(requeued, {"PENDING"})
    clean_lab.run("scancel", str(requeued))
    clean_lab.wait_state(timing_out, {"TIMEOUT"}, timeout=180)
    wait_for_rows(clean_lab, start, 14)

    # The controller sends some of what it knows of a job only seconds after the job has ended.
    for attempt in range(10):
        before = accounting_rows(clean_lab, start, COLUMNS)
        served = count_ended(clean_lab, Path(shutil.copy(begun, tmp_path / f"{attempt}.json")))
        rows = accounting_rows(clean_lab, start, COLUMNS)
        if before == rows:
            break
    # The second life of the requeued job may end before accounting has heard of its begin: it then has no partition.
    expected_ends = Counter(tuple(row[:3]) for row in rows if row[0])
    # The array that never started is one record of accounting, and four jobs.
    expected_ends["debug", "physics", "CANCELLED"] += 3
    ended = served["slurm_jobs_ended_total"]
    ends: Counter[tuple[str, ...]] = Counter()
    for (partition, account, state, _), count in ended.items():
        ends[partition, account, state] += int(count) if partition else 0
    assert +expected_ends == +ends

    expected_cpu_seconds: Counter[tuple[str, ...]] = Counter()
    for partition, account, _, elapsed, cpus in rows:
        expected_cpu_seconds[partition, account] += as_seconds(elapsed) * int(cpus)
    cpu_seconds = {key: seconds for key, seconds in served["slurm_ended_job_cpu_seconds_total"].items() if seconds}
    assert +expected_cpu_seconds == cpu_seconds

    assert {"error": 1, "signal": 1} == {key[3]: count for key, count in ended.items() if key[2] == "FAILED"}
    assert 1 == ended["debug", "chemistry", "REQUEUED", "none"]
    gpu_run = as_seconds(next(elapsed for partition, _, _, elapsed, _ in rows if partition == "gpus"))
    assert {("gpus", "chemistry"): 2 * gpu_run} == served["slurm_ended_job_gpu_seconds_total"]
    # All but the array and the second life of the requeued job have run.
    assert len(rows) - 2 == sum(served["slurm_job_run_seconds_count"].values())


@pytest.mark.parametrize("daemon", ["slurmdbd", "mariadbd"])
def test_outage_of_accounting_loses_and_doubles_nothing(clean_lab: SlurmLab, tmp_path: Path, daemon: str) -> None:
    start = begin_second()
    file = tmp_path / "completions.json"
    (began,) = count_ended(clean_lab, file)["slurm_completions_since_timestamp_seconds"].values()
    assert start <= began <= time.time()
    with down(clean_lab, daemon):
        jobs = [clean_lab.submit(ALICE, script="true") for _ in range(3)]
        for job in jobs:
            clean_lab.wait_state(job, {"COMPLETED"})
        failed = count_ended(clean_lab, file, is_success=False)
        assert {("completions", "refused"): 1} == failed["slurmscope_reading_errors_total"]
        # The controller does not mind, and neither do we.
        assert scrape(clean_lab, "jobs")["slurm_jobs"]

    # Accounting answers again before it has been told of the jobs.
    count_ended(clean_lab, file)
    wait_for_rows(clean_lab, start, 3)
    for _ in range(3):
        served = count_ended(clean_lab, file)
        assert {("debug", "physics", "COMPLETED", "ok"): 3} == served["slurm_jobs_ended_total"]
        assert {(): began} == served["slurm_completions_since_timestamp_seconds"]


def test_frozen_accounting_costs_its_own_timeout(clean_lab: SlurmLab, tmp_path: Path) -> None:
    file = tmp_path / "completions.json"
    clean_lab.suspend("slurmdbd")
    try:
        began = time.monotonic()
        failed = count_ended(clean_lab, file, "--slurm.timeout=2s", is_success=False)
        # sacct itself would wait for 45 s.
        assert time.monotonic() - began < 20
    finally:
        clean_lab.resume("slurmdbd")

    assert {("completions", "timeout"): 1} == failed["slurmscope_reading_errors_total"]
    assert {(): 0} == count_ended(clean_lab, file)["slurm_completions_unreadable_rows"]
