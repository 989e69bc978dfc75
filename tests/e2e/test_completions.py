# SPDX-License-Identifier: Apache-2.0
"""Our counts of ended jobs are those of Slurm's accounting, through outages and restarts."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab import ALICE, BOB, SlurmLab
from slurmscope.cluster import completions as sacct
from slurmscope.cluster.completions import COLLECTOR, Completions
from slurmscope.cluster.completions_tracker import CompletionsTracker
from slurmscope.core.errors import CommandRefused, CommandTimedOut
from slurmscope.exporter.collector import NoOptions
from slurmscope.slurm.command import SlurmCommands, SlurmSettings

ENDINGS = "CD,F,TO,CA,NF,OOM,RQ,PR,BF,DL"
COLUMNS = "Partition%30,Account%30,State%30,Elapsed,AllocCPUS"
Counts = dict[tuple[str, ...], int]


class Clock:
    """Tell the time, which can be moved on by hand."""

    def __init__(self) -> None:
        self.offset = 0.0

    def __call__(self) -> float:
        return time.time() + self.offset


def begin_second() -> int:
    """Return the second that begins now: jobs of an earlier test may have been cancelled in the one before."""
    start = int(time.time()) + 1
    time.sleep(max(0.0, start - time.time()))
    return start


def commands(lab: SlurmLab, timeout: float = 10.0) -> SlurmCommands:
    return SlurmCommands(SlurmSettings(bin_path=lab.bin_path, timeout=timeout), lab.environment)


def served(completions: Completions) -> dict[str, Counts]:
    families = COLLECTOR.collect(NoOptions(), completions=completions)
    return {family.metric.name: dict(family.samples) for family in families if isinstance(family.samples, dict)}


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


def test_totals_equal_those_of_accounting(clean_lab: SlurmLab) -> None:
    start = begin_second()
    trackers = [CompletionsTracker(wall_clock=time.time) for _ in range(10)]
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
    for tracker in trackers:
        before = accounting_rows(clean_lab, start, COLUMNS)
        completions = tracker.update(commands(clean_lab).run)
        rows = accounting_rows(clean_lab, start, COLUMNS)
        if before == rows:
            break
    # The second life of the requeued job may end before accounting has heard of its begin: it then has no partition.
    expected_ends = Counter(tuple(row[:3]) for row in rows if row[0])
    # The array that never started is one record of accounting, and four jobs.
    expected_ends["debug", "physics", "CANCELLED"] += 3
    ends: Counter[tuple[str, ...]] = Counter()
    for (partition, account, state, _), count in completions.ended.items():
        ends[partition, account, state] += count if partition else 0
    assert +expected_ends == +ends

    expected_cpu_seconds: Counter[tuple[str, ...]] = Counter()
    for partition, account, _, elapsed, cpus in rows:
        expected_cpu_seconds[partition, account] += as_seconds(elapsed) * int(cpus)
    assert +expected_cpu_seconds == +Counter(completions.cpu_seconds)

    families = served(completions)
    failures = {key[3]: count for key, count in families["slurm_jobs_ended_total"].items() if key[2] == "FAILED"}
    assert {"error": 1, "signal": 1} == failures
    assert 1 == families["slurm_jobs_ended_total"]["debug", "chemistry", "REQUEUED", "none"]
    gpu_run = as_seconds(next(elapsed for partition, _, _, elapsed, _ in rows if partition == "gpus"))
    assert {("gpus", "chemistry"): 2 * gpu_run} == families["slurm_ended_job_gpu_seconds_total"]
    # All but the array and the second life of the requeued job have run.
    assert len(rows) - 2 == sum(sum(times.counts) for times in completions.run_times.values())


@pytest.mark.parametrize("daemon", ["slurmdbd", "mariadbd"])
def test_outage_of_accounting_loses_and_doubles_nothing(clean_lab: SlurmLab, tmp_path: Path, daemon: str) -> None:
    clock = Clock()
    start = begin_second()
    file = tmp_path / "completions.json"
    tracker = CompletionsTracker(wall_clock=clock, state_file=file)
    run = commands(clean_lab).run
    with down(clean_lab, daemon):
        jobs = [clean_lab.submit(ALICE, script="true") for _ in range(3)]
        for job in jobs:
            clean_lab.wait_state(job, {"COMPLETED"})
        with pytest.raises(CommandRefused):
            tracker.update(run)
        # The controller does not mind, and neither do we.
        assert commands(clean_lab).run("squeue", ["--noheader", "--all"]) is not None

    # Accounting answers again before it has been told of the jobs.
    tracker.update(run)
    wait_for_rows(clean_lab, start, 3)
    second_life = CompletionsTracker(wall_clock=clock, state_file=file)
    assert 3 == sum(second_life.update(run).ended.values())
    for _ in range(30):
        clock.offset += 60
        completions = second_life.update(run)
    assert 3 == sum(completions.ended.values())
    assert start <= completions.since <= start + 1


def test_frozen_accounting_costs_its_own_timeout(clean_lab: SlurmLab) -> None:
    tracker = CompletionsTracker(wall_clock=time.time)
    clean_lab.suspend("slurmdbd")
    try:
        began = time.monotonic()
        with pytest.raises(CommandTimedOut):
            tracker.update(commands(clean_lab, timeout=2.0).run)
        # sacct itself would wait for 45 s.
        assert time.monotonic() - began < 20
    finally:
        clean_lab.resume("slurmdbd")

    assert 0 == tracker.update(commands(clean_lab).run).unreadable_rows


def test_window_has_both_its_edges_and_nothing_beyond(clean_lab: SlurmLab) -> None:
    start = begin_second()
    jobs = []
    for _ in range(3):
        jobs.append(clean_lab.submit(ALICE, script="true"))
        clean_lab.wait_state(jobs[-1], {"COMPLETED"})
        time.sleep(2)
    wait_for_rows(clean_lab, start, 3)
    ends = {
        int(job): int(datetime.fromisoformat(end).timestamp())
        for job, end in accounting_rows(clean_lab, start, "JobID%30,End%30")
    }
    first, second, third = (ends[job] for job in jobs)

    def ended(window_start: int, window_end: int) -> list[int]:
        answer = commands(clean_lab).run(sacct.COMMAND, sacct.arguments(window_start, window_end, "c0ffee"))
        return [job.job_id for job in sacct.parse_ended_jobs(answer, "c0ffee")[0]]

    assert jobs[:2] == ended(first, second)
    assert jobs[1:2] == ended(first + 1, third - 1)
    assert jobs == ended(first - 1, third + 3600)
    assert [] == ended(third + 1, third + 3600)
