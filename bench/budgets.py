# SPDX-License-Identifier: Apache-2.0
"""Measure what the limits cost that keep one user or client from blinding others: with and without them, in one run.

A reading of 64 jobs with 2,000 processes, as in ``bench/processes.py``: with the time that each user has, and in the
thread that is given up when a file hangs. A scrape of an idle node agent on a new connection: the shares of
connections and pages by address. A post of a sample: the posts that a job and a user may send.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.measure import cpu_seconds_of, judge_ratio, least_seconds, running_exporter, scrape
from bench.processes import GROUPS, PROCESSES, run_sleeping
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.http.server.page_slots import Page, PageSlots, find_rivals
from slurmscope.http.server.request import HttpRequest
from slurmscope.node.job_registry import ReadingTime
from slurmscope.node.kernel_files import HangGuard
from slurmscope.node.procfs.job_processes import JobProcesses
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.trace.callers import Caller
from slurmscope.trace.endpoint import TraceReceiver
from slurmscope.trace.samples import RunningJobOwner, TracedProcess
from slurmscope.trace.settings import TraceLimits
from slurmscope.trace.store import TraceStore

ROUNDS = 9
READING_LIMIT = 1.25
SCRAPES = 300
SCRAPE_LIMIT = 0.1
POSTS = 2000
POST_LIMIT = 2.0
CONNECTIONS = 30
_FAR = 10**9


def main() -> int:
    """Print the ratios and return 1 when the limits cost too much."""
    return 0 if all((_judge_reading(), _judge_scrape(), _judge_posts())) else 1


def _judge_reading() -> bool:
    root = Path("/proc")
    plain, guarded = ProcessReader(root), ProcessReader(root, HangGuard(root))
    with tempfile.TemporaryDirectory() as folder, run_sleeping(Path(folder), PROCESSES, GROUPS) as groups:
        free, limited = least_seconds(_read_freely(plain, groups), _read_limited(guarded, groups), rounds=ROUNDS)
    plain.close()
    guarded.close()
    figure = f"{limited * 1000:.1f} ms of CPU, without limits {free * 1000:.1f} ms"
    what = f"reading {GROUPS} jobs with {PROCESSES} processes within the time of their users"
    return judge_ratio(what, figure, limited / free, READING_LIMIT, "the reading without")


def _read_freely(reader: ProcessReader, groups: Sequence[Sequence[int]]) -> Callable[[], None]:
    jobs = [JobProcesses(reader) for _ in groups]

    def read() -> None:
        for job, pids in zip(jobs, groups, strict=True):
            assert job.read(pids, seconds=math.inf)

    return read


def _read_limited(reader: ProcessReader, groups: Sequence[Sequence[int]]) -> Callable[[], None]:
    jobs = [JobProcesses(reader) for _ in groups]
    guard, times = reader.guard, ReadingTime()
    assert guard is not None

    def read() -> None:
        for user, (job, pids) in enumerate(zip(jobs, groups, strict=True)):
            seconds = times.left(user)
            with times.charged(user):
                assert guard.run(lambda: job.read(pids, seconds=seconds))  # noqa: B023 - called at once

    return read


def _judge_scrape() -> bool:
    with running_exporter("--node.interval", "1h", role="node") as (pid, address):
        scrape(address)
        before = cpu_seconds_of(pid)
        for _ in range(SCRAPES):
            scrape(address)
        whole = (cpu_seconds_of(pid) - before) / SCRAPES
    share = least_seconds(_share_clients, rounds=ROUNDS)[0] / SCRAPES
    figure = f"{share * 1e6:.1f} µs of {whole * 1000:.2f} ms of CPU"
    return judge_ratio("sharing connections and pages by address", figure, share / whole, SCRAPE_LIMIT, "a scrape")


def _share_clients() -> None:
    """Do what the server does for the limits of each scrape while so many other connections are open."""
    slots, buckets = PageSlots(40), TokenBuckets(_FAR, _FAR)
    connections = [Page(slots, f"192.0.2.{number}") for number in range(CONNECTIONS)]
    for number in range(SCRAPES):
        group = f"192.0.2.{number % CONNECTIONS}"
        assert not buckets.take(group)
        assert not find_rivals(connections, group, 500)
        page = slots.take(group)
        assert page is not None
        page.start((b"page",))
        assert not list(page)
        page.close()


def _judge_posts() -> bool:
    free, limited = least_seconds(_post(0), _post(_FAR), rounds=ROUNDS)
    figure = f"{limited / POSTS * 1e6:.1f} µs of CPU, without limits {free / POSTS * 1e6:.1f} µs"
    return judge_ratio("checking and storing a post of a sample", figure, limited / free, POST_LIMIT, "it without")


def _post(most: int) -> Callable[[], None]:
    owner = RunningJobOwner(4711, 1000, "ada", "physics", "RUNNING", "n1", 8, 1 << 30)
    limits = TraceLimits(posts_per_job=most, posts_per_user=most)
    store = TraceStore(limits, time.monotonic)
    receiver = TraceReceiver(
        find_caller=lambda _: Caller(way="token", uid=1000, job_id=4711, node="n1"),
        check=lambda caller, sample: TracedProcess(owner, "n1", caller.way, sample),
        deliver=store.put,
        count_refusal=store.count_refusal,
        limits=limits,
    )
    body = json.dumps({"job_id": 4711, "pid": 17, "hostname": "n1", "cpu_seconds": 3.5, "rss": 1 << 20}).encode()
    request = HttpRequest(method="POST", path="/trace", headers={"content-type": "application/json"}, body=body)

    def post() -> None:
        for _ in range(POSTS):
            assert receiver.receive(request).status == 204

    return post


if __name__ == "__main__":
    sys.exit(main())
