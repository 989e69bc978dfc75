# SPDX-License-Identifier: Apache-2.0
"""Measure lists and sums over an archive of a million jobs, with 20 people at once.

The rows are made here and written straight into the tables; that reports become such rows is what the tests show.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, text

from bench.measure import judge_seconds, reference_seconds
from slurmscope.model.archive import GroupBy, JobFilter
from slurmscope.model.finding import Severity
from slurmscope.model.viewer import EVERYTHING, Viewer
from slurmscope.services.runtime.memory import PAGE_OBJECTS, settle_memory
from slurmscope.services.runtime.threads import shorten_thread_turns
from slurmscope.store.archive.archive import SqlArchive
from slurmscope.store.archive.daily_sums import SumChanges
from slurmscope.store.archive.dimension_sums import total_rows
from slurmscope.store.archive.opening import open_archive
from slurmscope.store.archive.schema import FINDINGS, JOB_NODES, JOBS
from slurmscope.store.archive.settings import ArchiveSettings
from slurmscope.store.archive.sum_tables import DAILY, TOTALS
from slurmscope.store.archive.waiting_times import WaitChanges

JOBS_COUNT = 1_000_000
YEAR_SECONDS = 365 * 86_400
END = 1_790_000_000
PEOPLE = 20
PAGES_EACH = 10
LIST_LIMIT = 1.6  # references; 50 ms on a quiet core
SUM_LIMIT = 62.0  # 2 s
REPORTS_LIMIT = 0.31  # references for each report saved: 100 reports a second
BLOCK_ROWS = 20_000

USERS = [f"user{number}" for number in range(500)]
ACCOUNTS = [f"account{number}" for number in range(60)]
PARTITIONS = ["batch", "long", "gpu", "debug"]
STATES = ["COMPLETED"] * 85 + ["FAILED"] * 8 + ["TIMEOUT"] * 4 + ["CANCELLED"] * 2 + ["OUT_OF_MEMORY"]
RULES = ["cpu_idle", "memory_over_asked", "time_over_asked", "gpu_idle", "too_short"]

Ask = Callable[[random.Random], Iterable[None]]
"""Ask for one page after the other."""


def main() -> int:
    """Print the figures of lists, sums and saving."""
    with tempfile.TemporaryDirectory() as folder:
        archive = open_archive(ArchiveSettings(url=f"sqlite:///{folder}/archive.db", timeout=60.0))
        try:
            fill(archive, Path(folder) / "archive.db")
            _be_like_the_portal()
            is_kept = all([_judge_lists(archive), _judge_sums(archive), _judge_saving(archive)])
        finally:
            archive.close()
    return 0 if is_kept else 1


def _be_like_the_portal() -> None:
    """Let threads take turns, and the collector rest, as in the process that people ask."""
    settle_memory(PAGE_OBJECTS)
    shorten_thread_turns()


def _judge_lists(archive: SqlArchive) -> bool:
    verdicts = []
    for name, ask in _queries(archive).items():
        reference = reference_seconds()
        middle, high = _measure(ask)
        what = f"list of {name}, p50 {middle * 1000:.1f} ms, p95"
        verdicts.append(judge_seconds(what, high, LIST_LIMIT, max(reference, reference_seconds())))
    return all(verdicts)


def _queries(archive: SqlArchive) -> Mapping[str, Ask]:
    """Return the lists that people open: each query goes two pages deep, where there are two."""

    def walk(viewer: Viewer, wanted: JobFilter) -> Iterator[None]:
        page = archive.list_jobs(viewer, wanted)
        yield
        if page.next_key is not None:
            archive.list_jobs(viewer, wanted, after=page.next_key)
            yield

    def me(dice: random.Random) -> Viewer:
        # The user who runs most jobs is asked for as often as all others.
        return Viewer(name=USERS[min(dice.randrange(500), dice.randrange(500))])

    def coordinator(dice: random.Random) -> Viewer:
        return Viewer(name=dice.choice(USERS), coordinates=frozenset(dice.sample(ACCOUNTS, 3)))

    return {
        "my jobs": lambda dice: walk(me(dice), JobFilter()),
        "my failed jobs": lambda dice: walk(me(dice), JobFilter(state="FAILED")),
        "my jobs of one rule": lambda dice: walk(me(dice), JobFilter(rule=dice.choice(RULES))),
        "my jobs of one name": lambda dice: walk(me(dice), JobFilter(name="job7")),
        "accounts of a coordinator": lambda dice: walk(coordinator(dice), JobFilter()),
        "everything": lambda _: walk(EVERYTHING, JobFilter()),
        "one user": lambda dice: walk(EVERYTHING, JobFilter(user=dice.choice(USERS))),
        "one account": lambda dice: walk(EVERYTHING, JobFilter(account=dice.choice(ACCOUNTS))),
        "one partition": lambda dice: walk(EVERYTHING, JobFilter(partition=dice.choice(PARTITIONS))),
        "one node": lambda dice: walk(EVERYTHING, JobFilter(node=f"n{dice.randrange(500)}")),
        "one state": lambda dice: walk(EVERYTHING, JobFilter(state=dice.choice(STATES))),
        "one user's failed jobs": lambda dice: walk(EVERYTHING, JobFilter(user=dice.choice(USERS), state="FAILED")),
        "one rule": lambda dice: walk(EVERYTHING, JobFilter(rule=dice.choice(RULES))),
        "one rule in an account": lambda dice: walk(
            EVERYTHING, JobFilter(rule=dice.choice(RULES), account=dice.choice(ACCOUNTS))
        ),
        "the worst": lambda _: walk(EVERYTHING, JobFilter(worst=Severity.CRITICAL)),
        "one name": lambda dice: walk(EVERYTHING, JobFilter(name=f"job{dice.randrange(1000)}")),
        "one day": lambda dice: walk(EVERYTHING, _one_day(dice)),
        "an unused name": lambda _: walk(EVERYTHING, JobFilter(name="nothing")),
    }


def _one_day(dice: random.Random) -> JobFilter:
    since = END - dice.randrange(YEAR_SECONDS)
    return JobFilter(since_seconds=since, until_seconds=since + 86_400, partition=dice.choice(PARTITIONS))


def _measure(ask: Ask) -> tuple[float, float]:
    """Return the median and the 95th percentile of the seconds that a page takes while all users ask."""
    seconds: list[float] = []

    def be_somebody(number: int) -> None:
        dice = random.Random(number)
        for _ in range(PAGES_EACH):
            # People look at what they got, if only for a moment: otherwise this would measure a queue.
            time.sleep(dice.uniform(0.5, 1.5))
            started = time.perf_counter()
            for _ in ask(dice):
                seconds.append(time.perf_counter() - started)
                started = time.perf_counter()

    threads = [threading.Thread(target=be_somebody, args=(number,)) for number in range(PEOPLE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds.sort()
    return seconds[len(seconds) // 2], seconds[len(seconds) * 95 // 100]


def _judge_sums(archive: SqlArchive) -> bool:
    reference = reference_seconds()
    year = JobFilter(since_seconds=END - YEAR_SECONDS + 12_345)
    verdicts = []
    for who, viewer in (("all users", EVERYTHING), ("one user", Viewer(name=USERS[0]))):
        for by in GroupBy:
            started = time.perf_counter()
            archive.total(viewer, year, by)
            took = time.perf_counter() - started
            verdicts.append(judge_seconds(f"a year of {who} by {by}", took, SUM_LIMIT, reference))
    return all(verdicts)


def _judge_saving(archive: SqlArchive) -> bool:
    from tests.fakes.reports import make_record, make_report

    reports = [make_report(make_record(5_000_000 + number)) for number in range(1000)]
    started = time.perf_counter()
    for start in range(0, len(reports), 100):
        archive.save(reports[start : start + 100])
    each = (time.perf_counter() - started) / len(reports)
    print(f"saving: {1 / each:.0f} reports a second")
    return judge_seconds("saving one report", each, REPORTS_LIMIT, reference_seconds())


def fill(archive: SqlArchive, path: Path) -> None:
    """Write the rows first and the indexes afterwards, which is several times faster."""
    started = time.perf_counter()
    rows = _rows(random.Random(1))
    indexes = [index for table in (JOBS, FINDINGS, JOB_NODES, DAILY) for index in table.indexes]
    with archive.database.writing() as connection:
        connection.execute(text("PRAGMA cache_size=-300000"))
        for index in indexes:
            index.drop(connection)
        changes, waits = SumChanges(), WaitChanges()
        while block := list(islice(rows, BLOCK_ROWS)):
            changes.add(block)
            _insert(connection, JOBS, block)
            _insert(connection, FINDINGS, [found for row in block for found in _findings(row)])
            _insert(connection, JOB_NODES, [_nodes(row) for row in block])
            waits.add(block)
        sums = changes.rows()
        _insert(connection, DAILY, sums)
        _insert(connection, TOTALS, total_rows(sums))
        waits.write(connection)
        for index in indexes:
            index.create(connection)
    archive.database.refresh_statistics()
    took = time.perf_counter() - started
    print(f"archive of {JOBS_COUNT} jobs: made in {took:.0f} s, {path.stat().st_size / 1e6:.0f} MB without reports")


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    names = [column.name for column in table.c]
    columns, marks = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(names))
    pick = itemgetter(*names)
    connection.exec_driver_sql(f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", [pick(row) for row in rows])


def _rows(dice: random.Random) -> Iterator[dict[str, Any]]:
    for number in range(1, JOBS_COUNT + 1):
        user = min(dice.randrange(500), dice.randrange(500))
        cpus, run_seconds = dice.choice((1, 4, 16, 64)), float(dice.randrange(1, 90_000))
        used_seconds = round(cpus * run_seconds * dice.random(), 3)
        rules = dice.sample(RULES, dice.choice((0, 0, 1, 1, 2)))
        submit_seconds = END - YEAR_SECONDS + number * YEAR_SECONDS // JOBS_COUNT
        yield {
            "run_id": number, "cluster": "lab", "job_id": number, "submit_seconds": submit_seconds,
            "shown_id": str(number), "array_job_id": None, "name": f"job{dice.randrange(1000)}",
            "user": USERS[user], "account": ACCOUNTS[user % len(ACCOUNTS)], "partition": dice.choice(PARTITIONS),
            "state": dice.choice(STATES), "start_seconds": submit_seconds + 60,
            "end_seconds": submit_seconds + 60 + int(run_seconds), "is_unfinished": False, "run_seconds": run_seconds,
            "nodes": 1, "cpus": cpus, "gpus": 0, "memory_bytes": 8e9, "cpu_ratio": used_seconds / (cpus * run_seconds),
            "memory_ratio": 0.5, "gpu_ratio": None, "time_ratio": 0.5, "core_seconds": cpus * run_seconds,
            "used_core_seconds": used_seconds, "wasted_core_seconds": cpus * run_seconds - used_seconds,
            "gpu_seconds": 0.0, "used_gpu_seconds": None, "wasted_gpu_seconds": None,
            "worst": dice.choice(("critical", "warning", "info")) if rules else None, "rules": ",".join(rules),
            "eligible_seconds": submit_seconds, "wait_seconds": float(dice.randrange(1, 100_000)),
            "time_limit_seconds": dice.choice((3600, 14_400, 86_400, 259_200)), "exit_code": 0, "exit_signal": 0,
            "derived_exit_code": 0, "derived_exit_signal": 0, "het_job_id": None, "het_offset": None, "tasks": 1,
            "blocked_core_seconds": None,
        }  # fmt: skip


def _findings(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for rule in row["rules"].split(",") if row["rules"] else ():
        shared = {name: row[name] for name in ("run_id", "user", "account", "submit_seconds", "job_id")}
        yield {"rule": rule, "severity": row["worst"], "suggestion": "#SBATCH --mem=4G", **shared}


def _nodes(row: Mapping[str, Any]) -> dict[str, Any]:
    shared = {name: row[name] for name in ("run_id", "user", "account", "submit_seconds", "job_id")}
    return {"node": f"n{row['job_id'] % 500}", **shared}


if __name__ == "__main__":
    sys.exit(main())
