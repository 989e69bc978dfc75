# SPDX-License-Identifier: Apache-2.0
"""Measure the portal as 20 people see it at once: a large running job, lists out of a million jobs, and other pages.

``python -m bench portal --database postgresql --jobs 5000000`` takes another database and number of jobs.

The portal is a process of its own, as people run it. A job of 64 nodes has run for a day, and everything that a report
queries was recorded every 15 seconds. Times are those of the client, from the request to the last byte.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import math
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.archive import DATABASES, JOBS_COUNT, open_private_archive
from bench.archive_rows import ACCOUNTS, END, PARTITIONS, RULES, STATES, USERS, YEAR_SECONDS, fill
from bench.measure import cpu_seconds_of, judge_seconds, reference_seconds, resident_bytes_of
from slurmscope.archive.engine import Database
from slurmscope.archive.interface import NotedKind, NotedThing, SortColumn
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.staff import SqlSavedViews, SqlStaffNotes
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.jobs.record import JobAccounting, JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.series import JOB_LABEL, NODE_LABEL
from slurmscope.jobs.viewer import Viewer, ViewerRole
from slurmscope.recorder.recorder import RecordedSample, Recorder
from slurmscope.recorder.settings import RecorderSettings

JOB = 50_000_001
ENDED_JOB = 50_000_002
NODES = 64
CORES = 16
DAY_SECONDS = 86_400
INTERVAL_SECONDS = 15
PEOPLE = 20
ENDED_JOBS = 100
VISITS = 8
OWNER = USERS[0]
PAGE_LIMIT = 4.7  # references; 150 ms on a quiet core
LIST_LIMIT = 1.6  # 50 ms
SORTED_LIMIT = 2.5  # 80 ms
PDF_LIMIT = 62.0  # 2 s
PATIENCE_SECONDS = 120.0
SERVE = "serve"
"""First argument of the process that is the portal."""

Ask = Callable[[random.Random], tuple[str, str]]
"""Return who sends the next request, and for what."""


def main(argv: Sequence[str] = ()) -> int:
    """Print every figure with its target and return 1 when one is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench portal")
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument("--jobs", type=int, default=JOBS_COUNT)
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, open_private_archive(given.database) as archive:
        now = int(time.time())
        _record_day(Path(folder), now - DAY_SECONDS)
        _fill_archive(archive, given.jobs, now)
        with _running_portal(Path(folder), now - DAY_SECONDS, archive.database.settings) as (pid, port):
            is_met = [_judge_job(pid, port), _judge_lists(pid, port), _judge_pages(pid, port), _judge_pdf(port)]
            print(f"portal: {resident_bytes_of(pid) / 1e6:.0f} MB resident")
    return 0 if all(is_met) else 1


def _percentile(ordered: Sequence[float], percent: int) -> float:
    return ordered[len(ordered) * percent // 100]


def _judge_job(pid: int, port: int) -> bool:
    address = f"/jobs/{JOB}"
    _wait_for_reporter(port)
    first = _fetch(port, OWNER, address)
    print(f"job page, {NODES} nodes and a day: {first:.2f} s for the first visitor")
    parts = {"page": address, "curves": f"{address}/charts.json", "renewed part": f"{address}/live"}
    verdicts = []
    for name, part in parts.items():
        ask = partial(_ask_same, part)
        verdicts.append(_judge(pid, port, f"job of {NODES} nodes and a day, {name}", ask, PAGE_LIMIT))
    return all(verdicts)


def _wait_for_reporter(port: int) -> None:
    """Wait until the running job is in the list: most people come when the portal has been up for a while."""
    until = time.monotonic() + PATIENCE_SECONDS
    while f"/{JOB}".encode() not in _read(port, OWNER, "/jobs?state=RUNNING"):
        if time.monotonic() > until:
            raise RuntimeError("the running job was not archived")
        time.sleep(1)


def _ask_same(address: str, _: random.Random) -> tuple[str, str]:
    return OWNER, address


def _judge_lists(pid: int, port: int) -> bool:
    queries: dict[str, Ask] = {
        "my jobs": lambda dice: (_pick_user(dice), "/jobs"),
        "my failed jobs": lambda dice: (_pick_user(dice), "/jobs?state=FAILED"),
        "my jobs of one rule": lambda dice: (_pick_user(dice), f"/jobs?rule={dice.choice(RULES)}"),
        "one name": lambda dice: ("staff", f"/jobs?name=job{dice.randrange(1000)}"),
        "my jobs, sorted": lambda dice: (_pick_user(dice), f"/jobs?{_sort(dice)}"),
        "my failed jobs, sorted": lambda dice: (_pick_user(dice), f"/jobs?state=FAILED&{_sort(dice)}"),
        "all jobs, sorted": lambda dice: ("staff", f"/jobs?{_sort(dice)}"),
        "all jobs, filtered and sorted": lambda dice: ("staff", f"/jobs?{_filter(dice)}&{_sort(dice)}"),
        "a common part of names": lambda dice: ("staff", f"/jobs?name=B{dice.randrange(1, 10)}"),
        "a rare part of names": lambda dice: ("staff", f"/jobs?name=b{dice.randrange(100, 1000)}"),
        "a part of names of single jobs": lambda dice: ("staff", f"/jobs?name={dice.randrange(10**4, 10**5)}"),
        "a rare part of names, filtered": lambda dice: (
            "staff",
            f"/jobs?name=n_0{dice.randrange(100, 1000)}&{_filter(dice)}",
        ),
        "a rare part of names, sorted": lambda dice: (
            "staff",
            f"/jobs?name=b{dice.randrange(100, 1000)}&{_sort(dice)}",
        ),
        "a part of names of mine": lambda dice: (_pick_user(dice), f"/jobs?name=b{dice.randrange(100, 1000)}"),
        "all jobs, filtered": lambda dice: ("staff", f"/jobs?{_filter(dice)}"),
        "a later page": lambda dice: ("staff", f"/jobs?after={END - dice.randrange(YEAR_SECONDS)}-{JOBS_COUNT}"),
    }
    verdicts = []
    for name, ask in queries.items():
        limit = SORTED_LIMIT if "sorted" in name or "part" in name else LIST_LIMIT
        verdicts.append(_judge(pid, port, f"list of {name}", ask, limit))
    return all(verdicts)


def _judge_pages(pid: int, port: int) -> bool:
    """Judge pages of ended jobs, people, nodes and sums; those of jobs contain the header for the next run."""
    pages: dict[str, Ask] = {
        "first page of a user": lambda dice: (_pick_user(dice), "/"),
        "first page of staff": lambda _: ("staff", "/"),
        "ended job": lambda dice: (OWNER, f"/jobs/{ENDED_JOB + dice.randrange(ENDED_JOBS)}"),
        "ended job with notes and tags": lambda dice: ("staff", f"/jobs/{ENDED_JOB + dice.randrange(ENDED_JOBS)}"),
        "cluster with waiting times": lambda dice: (_pick_user(dice), "/cluster"),
        "waste of 30 days": lambda _: ("staff", "/waste?days=30"),
        "waste of any period": lambda dice: ("staff", f"/waste?days={dice.randrange(2, 367)}"),
        "waste of a year": lambda _: ("staff", "/waste?days=366"),
        "savings of a year": lambda _: ("staff", "/savings"),
        "my savings": lambda dice: (_pick_user(dice), "/savings"),
        "histogram of all jobs": lambda _: ("staff", "/histogram?metric=cpu"),
        "histogram of my jobs": lambda dice: (_pick_user(dice), "/histogram?metric=memory"),
        "user over a year": lambda dice: ("staff", f"/users/{_pick_user(dice)}?days=366"),
        "account over a year": lambda dice: ("staff", f"/accounts/{dice.choice(ACCOUNTS)}?days=366"),
        "node": lambda dice: ("staff", f"/nodes/n{dice.randrange(500)}"),
        "tagged users and jobs": lambda _: ("staff", "/tags"),
    }
    verdicts = [_judge(pid, port, f"page: {name}", ask, PAGE_LIMIT) for name, ask in pages.items()]
    return all(verdicts)


def _judge_pdf(port: int) -> bool:
    reference = reference_seconds()
    seconds = min(_fetch(port, OWNER, f"/jobs/{JOB}/report.pdf") for _ in range(3))
    return judge_seconds("PDF of that job", seconds, PDF_LIMIT, reference)


def _pick_user(dice: random.Random) -> str:
    return USERS[min(dice.randrange(500), dice.randrange(500))]


def _filter(dice: random.Random) -> str:
    kind, names = dice.choice(
        (("user", USERS), ("account", ACCOUNTS), ("partition", PARTITIONS), ("state", STATES), ("rule", RULES))
    )
    return f"{kind}={dice.choice(names)}"


def _sort(dice: random.Random) -> str:
    return f"sort={dice.choice(list(SortColumn)).key}&dir={dice.choice(('asc', 'desc'))}"


def _judge(pid: int, port: int, what: str, ask: Ask, limit: float) -> bool:
    reference, cpu, waits = reference_seconds(), cpu_seconds_of(pid), _waits(pid)
    seconds = _measure(port, ask)
    reference, visits = max(reference, reference_seconds()), len(seconds)
    cpu = (cpu_seconds_of(pid) - cpu) / visits
    # Threads that have ended took their counts with them.
    waited = sum(wait - waits.get(thread, 0) for thread, wait in _waits(pid).items()) / visits / 1e9
    middle, high = _percentile(seconds, 50), _percentile(seconds, 95)
    print(f"{what}: {cpu * 1000:.0f} ms of CPU each, at least {waited * 1000:.0f} ms of waiting for a core")
    return judge_seconds(f"{what}, p50 {middle * 1000:.0f} ms, p95", high, limit, reference)


def _waits(pid: int) -> dict[str, int]:
    """Return by thread for how many nanoseconds it could have run, had there been a core.

    A reference is CPU time and does not include it: where this is much, the machine was busy with other things,
    and a missed target means little.
    """
    waits: dict[str, int] = {}
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            waits[path.parent.name] = int(path.read_text().split()[1])
    return waits


def _measure(port: int, ask: Ask) -> list[float]:
    """Return the seconds of all visits, shortest first."""
    seconds: list[float] = []
    failures: list[str] = []

    def visit_as(number: int) -> None:
        dice = random.Random(number)
        try:
            for _ in range(VISITS):
                # People read what they got, if only for a moment: otherwise this would measure a queue.
                time.sleep(dice.uniform(0.5, 1.5))
                seconds.append(_fetch(port, *ask(dice)))
        except (OSError, AssertionError) as error:
            failures.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=visit_as, args=(number,)) for number in range(PEOPLE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError(failures[0])
    return sorted(seconds)


def _fetch(port: int, who: str, path: str) -> float:
    """Return the seconds from the request to the last byte."""
    began = time.perf_counter()
    _read(port, who, path)
    return time.perf_counter() - began


def _read(port: int, who: str, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path, headers={"X-Remote-User": who})
        answer = connection.getresponse()
        page = answer.read()
        assert answer.status == 200, f"{path}: {answer.status}"
        return page
    finally:
        connection.close()


def _fill_archive(archive: SqlArchive, jobs: int, now: int) -> None:
    fill(archive, jobs)
    archive.save(list(_ended_reports(now)))
    _write_notes(archive.database)


def _ended_reports(now: int) -> Iterator[JobReport]:
    from tests.fakes.reports import make_record, make_report

    for number in range(ENDED_JOBS):
        start = now - DAY_SECONDS + 60 * number
        times = {"submit_seconds": start - 60, "start_seconds": start, "end_seconds": start + 7200}
        yield make_report(make_record(ENDED_JOB + number, user=OWNER, account=ACCOUNTS[0], **times))


def _write_notes(database: Database) -> None:
    staff, notes, views = (
        Viewer(name="staff", role=ViewerRole.SUPPORT),
        SqlStaffNotes(database),
        SqlSavedViews(database),
    )
    for number in range(ENDED_JOBS):
        for thing in (
            NotedThing(NotedKind.JOB, "lab", str(ENDED_JOB + number)),
            NotedThing(NotedKind.USER, "", USERS[number]),
        ):
            notes.add_note(staff, thing, "Wrote to the user.")
            notes.set_tag(staff, thing, "contacted", is_set=True)
    for number in range(20):
        views.save_view(staff, f"view {number}", f"user={USERS[number]}", is_shared=True)


def _record_day(folder: Path, start: int) -> None:
    began = time.perf_counter()
    series = [(metric, labels, index) for index, (metric, labels) in enumerate(_series())]
    with Recorder(RecorderSettings(file=folder / "recorder.db")) as recorder:
        for turn in range(DAY_SECONDS // INTERVAL_SECONDS):
            recorder.record(start + turn * INTERVAL_SECONDS, _samples(series, turn))
        count = recorder.recorded
    print(f"recorded {count / 1e6:.1f} million samples in {time.perf_counter() - began:.0f} s")


def _series() -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """Yield what is recorded of the job; it has no GPUs."""
    values = {"core": [str(core) for core in range(CORES)], "state": ["running"], "event": ["oom_kill"]}
    each = {wanted.metric: wanted.each for wanted in (*CURVES.values(), *TOTALS.values())}
    for metric, labels in each.items():
        if "gpu" in metric:
            continue
        extra = next((label for label in labels if label != NODE_LABEL), "")
        for node in range(NODES):
            own = ((JOB_LABEL, str(JOB)), (NODE_LABEL, f"n{node:03}"))
            for value in values.get(extra, ["solve"]):
                yield metric, (*own, (extra, value)) if extra else own


def _samples(series: Sequence[tuple[str, tuple[tuple[str, str], ...], int]], turn: int) -> Iterator[RecordedSample]:
    wave = (1 << 30) * (1 + 0.2 * math.sin(turn / 100))
    for metric, labels, index in series:
        noise = _NOISE[(31 * turn + 7 * index) % len(_NOISE)]
        grows = metric.endswith("_total") and "events" not in metric
        yield metric, labels, 12.5 * turn + noise if grows else float(int(wave * (1 + 0.1 * noise)))


_NOISE = [round(random.Random(number).random(), 3) for number in range(1009)]


def serve(folder: Path, start: int, url: str, password_file: str) -> int:
    """Run the portal, and print its address to standard output."""
    from slurmscope.cli.options import load_config
    from slurmscope.portal.run import run_portal

    given: dict[str, object] = {
        "portal_listen_address": "127.0.0.1:0",
        "portal_mode": "proxy",
        "portal_proxy_peers": ("127.0.0.1",),
        "portal_support": ("staff",),
        "archive_url": url,
        **({"archive_password_file": password_file} if password_file else {}),
        "recorder_file": f"{folder}/recorder.db",
        "slurm_bin_path": f"{folder}/none",
        "log_level": "error",
    }
    config = load_config("up", given)
    with Recorder(config.of(RecorderSettings)) as recorder:
        return run_portal(
            config, {}, series=recorder.series(), accounting=_OneJob(start), ready=lambda url: print(url, flush=True)
        )


class _OneJob:
    """Be the accounting of a cluster on which one job runs."""

    def __init__(self, start: int) -> None:
        self._record = JobRecord(
            cluster="lab", job_id=JOB, name="solve", user=OWNER, account=ACCOUNTS[0], partition="batch",
            state="RUNNING", submit_seconds=start - 60, start_seconds=start, time_limit_seconds=2 * DAY_SECONDS,
            nodes=tuple(f"n{node:03}" for node in range(NODES)), node_count=NODES, cpus=NODES * CORES,
            memory_bytes=NODES * (64 << 30),
        )  # fmt: skip

    def clusters(self) -> tuple[str, ...]:
        return (self._record.cluster,)

    def of(self, cluster: str) -> JobAccounting:
        return self

    def read_jobs(self, job_ids: Sequence[int]) -> tuple[JobRecord, ...]:
        return (self._record,) if JOB in job_ids else ()

    def read_ended(self, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        return iter(())

    def read_current(self) -> Iterator[JobRecord]:
        return iter((self._record,))

    def read_user(self, user: str, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        return iter((self._record,) if user == OWNER else ())


@contextmanager
def _running_portal(folder: Path, start: int, archive: ArchiveSettings) -> Iterator[tuple[int, int]]:
    """Run the portal in a process of its own; give its process id and port."""
    where = [archive.url, str(archive.password_file or "")]
    argv = [sys.executable, "-m", "bench.portal", SERVE, str(folder), str(start), *where]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline()
            if not address:
                raise RuntimeError("the portal ended before it listened")
            yield process.pid, int(address.rstrip("/\n").rsplit(":", 1)[1])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


if __name__ == "__main__":
    if sys.argv[1:2] == [SERVE]:
        sys.exit(serve(Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
    sys.exit(main(sys.argv[1:]))
