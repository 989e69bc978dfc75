# SPDX-License-Identifier: Apache-2.0
"""Measure lists, sums, saving and retention of an archive of a million jobs, with 20 people at once.

``python -m bench archive --database postgresql --jobs 10000000`` takes another database and more jobs: the servers are
private ones, started for the measurement. Where something is too slow, its query plan is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Select, text

from bench.archive_rows import ACCOUNTS, END, PARTITIONS, RULES, STATES, USERS, YEAR_SECONDS, fill, insert_rows
from bench.measure import judge, judge_seconds, reference_seconds
from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.archive.queries import pages
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.stored_reports import encode_report
from slurmscope.archive.tables import CURVES, REPORTS
from slurmscope.archive.totals import total_statements
from slurmscope.core.process import PAGE_OBJECTS, settle_memory, shorten_thread_turns
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.viewer import EVERYTHING, Viewer
from slurmscope.reports.sources import open_archive

JOBS_COUNT = 1_000_000
DATABASES = ("sqlite", "postgresql", "mariadb")
PEOPLE = 20
PAGES_EACH = 5
LIST_LIMIT = 1.6  # references; 50 ms on a quiet core
LARGE_LIMITS = {"sqlite": 9.4, "postgresql": 4.7, "mariadb": 4.7}  # 300 ms and 150 ms, for more than a million jobs
# References for each report saved: 1,000 reports a second. A server works beside us, however quick our own core is: for
# it, the reference is that of a core that takes 24 ms.
REPORTS_LIMITS = {"sqlite": 0.031, "postgresql": 0.042, "mariadb": 0.042}
OLD_JOBS = 10_000
RETENTION_LIMIT = 155.0  # 5 s for the 10,000 jobs of one call
LARGE_RETENTION_LIMIT = 310.0  # for more than a million jobs: most of it is reading indexes that are not in memory
SERVER_OPTIONS = (
    "shared_buffers=1GB",
    "effective_cache_size=4GB",
    "fsync=on",
    "max_wal_size=8GB",
    "random_page_cost=1.1",
)

Ask = Callable[[random.Random], tuple[Viewer, JobFilter]]
"""Choose who opens a list next, and which."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Hold the archive that is measured."""

    archive: SqlArchive
    jobs: int

    @property
    def list_limit(self) -> float:
        """Return the target of a page, in references."""
        return LIST_LIMIT if self.jobs <= JOBS_COUNT else LARGE_LIMITS[self.archive.database.dialect]

    @property
    def retention_limit(self) -> float:
        """Return the target of deleting 10,000 jobs, in references."""
        return RETENTION_LIMIT if self.jobs <= JOBS_COUNT else LARGE_RETENTION_LIMIT


def main(argv: Sequence[str] = ()) -> int:
    """Print the figures of lists, sums, saving and retention."""
    parser = argparse.ArgumentParser(prog="python -m bench archive")
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument("--jobs", type=int, default=JOBS_COUNT)
    given = parser.parse_args(argv)
    with open_private_archive(given.database) as archive:
        fill(archive, given.jobs)
        _be_like_the_portal()
        bench = Bench(archive, given.jobs)
        judged = [_judge_lists(bench), _judge_sums(bench), _judge_saving(bench), _judge_retention(bench)]
    return 0 if all(judged) else 1


@contextlib.contextmanager
def open_private_archive(database: str) -> Iterator[SqlArchive]:
    """Open an empty archive in a file or on a server of its own."""
    with contextlib.ExitStack() as stack:
        if database == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            settings = ArchiveSettings(url=f"sqlite:///{folder}/archive.db", timeout=60.0)
        else:
            from lab.databases import run_mariadb, run_postgresql

            run = run_postgresql(SERVER_OPTIONS) if database == "postgresql" else run_mariadb("1G")
            server = stack.enter_context(run)
            settings = ArchiveSettings(url=server.url, password_file=server.password_file, timeout=60.0)
        archive = open_archive(settings)
        stack.callback(archive.close)
        yield archive


def _be_like_the_portal() -> None:
    """Let threads take turns, and the collector rest, as in the process that serves people."""
    settle_memory(PAGE_OBJECTS)
    shorten_thread_turns()


def _judge_lists(bench: Bench) -> bool:
    verdicts = []
    for name, ask in _queries().items():
        reference = reference_seconds()
        middle, high = _measure(bench.archive, ask)
        what = f"list of {name}, p50 {middle * 1000:.1f} ms, p95"
        verdicts.append(judge_seconds(what, high, bench.list_limit, max(reference, reference_seconds())))
        if not verdicts[-1]:
            _explain(bench.archive, pages(*ask(random.Random(1)), None, 50))
    return all(verdicts)


def _queries() -> Mapping[str, Ask]:
    """Return the lists that people open."""

    def me(dice: random.Random) -> Viewer:
        # The user who runs most jobs is requested as often as all others.
        return Viewer(name=USERS[min(dice.randrange(500), dice.randrange(500))])

    def coordinator(dice: random.Random) -> Viewer:
        return Viewer(name=dice.choice(USERS), coordinates=frozenset(dice.sample(ACCOUNTS, 3)))

    def everybody(**wanted: Any) -> tuple[Viewer, JobFilter]:
        return EVERYTHING, JobFilter(**wanted)

    return {
        "my jobs": lambda dice: (me(dice), JobFilter()),
        "my failed jobs": lambda dice: (me(dice), JobFilter(state="FAILED")),
        "my jobs of one rule": lambda dice: (me(dice), JobFilter(rule=dice.choice(RULES))),
        "my jobs of one name": lambda dice: (me(dice), JobFilter(name="job7")),
        "my jobs of a year": lambda dice: (me(dice), JobFilter(since_seconds=END - 366 * 86_400)),
        "accounts of a coordinator": lambda dice: (coordinator(dice), JobFilter()),
        "everything": lambda _: everybody(),
        "one user": lambda dice: everybody(user=dice.choice(USERS)),
        "one account": lambda dice: everybody(account=dice.choice(ACCOUNTS)),
        "one partition": lambda dice: everybody(partition=dice.choice(PARTITIONS)),
        "one node": lambda dice: everybody(node=f"n{dice.randrange(500)}"),
        "one state": lambda dice: everybody(state=dice.choice(STATES)),
        "one user's failed jobs": lambda dice: everybody(user=dice.choice(USERS), state="FAILED"),
        "one rule": lambda dice: everybody(rule=dice.choice(RULES)),
        "one rule in an account": lambda dice: everybody(rule=dice.choice(RULES), account=dice.choice(ACCOUNTS)),
        "the worst": lambda _: everybody(worst=Severity.CRITICAL),
        "one name": lambda dice: everybody(name=f"job{dice.randrange(1000)}"),
        "a common prefix of names": lambda dice: everybody(name=f"job{dice.randrange(1, 10)}"),
        "200 job IDs": lambda dice: everybody(shown_ids=tuple(map(str, dice.sample(range(1, JOBS_COUNT), 200)))),
        "a small cluster": lambda _: everybody(cluster="small"),
        "failed jobs of a small cluster": lambda _: everybody(cluster="small", state="FAILED"),
        "one rule in a small cluster": lambda dice: everybody(cluster="small", rule=dice.choice(RULES)),
        "one day": lambda dice: (EVERYTHING, _one_day(dice)),
        "an unused name": lambda _: everybody(name="nothing"),
    }


def _one_day(dice: random.Random) -> JobFilter:
    since = END - dice.randrange(YEAR_SECONDS)
    return JobFilter(since_seconds=since, until_seconds=since + 86_400, partition=dice.choice(PARTITIONS))


def _walk(archive: SqlArchive, viewer: Viewer, wanted: JobFilter) -> Iterator[None]:
    """Open a list two pages deep, where there are two."""
    page = archive.list_jobs(viewer, wanted)
    yield
    if page.next_key is not None:
        archive.list_jobs(viewer, wanted, after=page.next_key)
        yield


def _measure(archive: SqlArchive, ask: Ask) -> tuple[float, float]:
    """Return the median and the 95th percentile of the seconds that a page takes while all users send requests."""
    seconds: list[float] = []

    def be_somebody(number: int) -> None:
        dice = random.Random(number)
        for _ in range(PAGES_EACH):
            # People read what they got, if only for a moment: otherwise this would measure a queue.
            time.sleep(dice.uniform(0.5, 1.5))
            started = time.perf_counter()
            for _ in _walk(archive, *ask(dice)):
                seconds.append(time.perf_counter() - started)
                started = time.perf_counter()

    threads = [threading.Thread(target=be_somebody, args=(number,)) for number in range(PEOPLE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds.sort()
    return seconds[len(seconds) // 2], seconds[len(seconds) * 95 // 100]


def _judge_sums(bench: Bench) -> bool:
    """Judge the sums of pages about waste, users and accounts: a year, from midnight on."""
    reference = reference_seconds()
    year = JobFilter(since_seconds=(END - YEAR_SECONDS) // 86_400 * 86_400)
    verdicts = []
    requests = (
        ("all users", EVERYTHING, year),
        ("one user", Viewer(name=USERS[0]), year),
        ("one account", EVERYTHING, replace(year, account=ACCOUNTS[0])),
    )
    for who, viewer, wanted in requests:
        for by in GroupBy:
            bench.archive.total(viewer, wanted, by)
            started = time.perf_counter()
            bench.archive.total(viewer, wanted, by)
            took = time.perf_counter() - started
            limit = LARGE_LIMITS[bench.archive.database.dialect]
            verdicts.append(judge_seconds(f"a year of {who} by {by}", took, limit, reference))
            if not verdicts[-1]:
                _explain(bench.archive, total_statements(viewer, wanted, by))
    return all(verdicts)


def _judge_saving(bench: Bench) -> bool:
    from tests.fakes.reports import make_record, make_report

    reports = [make_report(make_record(50_000_000 + number)) for number in range(2000)]
    started = time.perf_counter()
    for start in range(0, len(reports), 100):
        bench.archive.save(reports[start : start + 100])
    each = (time.perf_counter() - started) / len(reports)
    print(f"saving: {1 / each:.0f} reports a second")
    limit = REPORTS_LIMITS[bench.archive.database.dialect]
    return judge_seconds("saving one report", each, limit, reference_seconds())


def _judge_retention(bench: Bench) -> bool:
    """Delete the oldest jobs with their reports and curves."""
    from tests.fakes.reports import make_report

    encoded, old_jobs = encode_report(make_report()), min(OLD_JOBS, bench.jobs // 2)
    first, oldest = END - YEAR_SECONDS, YEAR_SECONDS * old_jobs // bench.jobs
    runs = range(1, old_jobs + 1)
    with bench.archive.database.writing() as connection:
        insert_rows(connection, REPORTS, [{"run_id": run, "version": 1, "body": encoded.body} for run in runs])
        insert_rows(
            connection, CURVES, [{"run_id": run, "submit_seconds": first, "body": encoded.curves} for run in runs]
        )
    reference, before = reference_seconds(), first + oldest + 3 * 86_400
    started = time.perf_counter()
    deleted = bench.archive.delete_jobs(before)
    took = time.perf_counter() - started
    print(f"retention: {deleted} jobs deleted, {deleted / took:.0f} a second")
    enough = judge("jobs deleted by one call", str(deleted), "at least 1", is_met=deleted > 0)
    return enough and judge_seconds(
        "retention of 10,000 jobs", took * 10_000 / deleted, bench.retention_limit, reference
    )


def _explain(archive: SqlArchive, statements: Iterator[Select[Any]] | Sequence[Select[Any]]) -> None:
    """Print the plans of statements."""
    prefix = "EXPLAIN QUERY PLAN" if archive.database.dialect == "sqlite" else "EXPLAIN"
    for statement in statements:
        with archive.database.reading() as connection:
            compiled = statement.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
            for row in connection.execute(text(f"{prefix} {compiled}".replace(":", "\\:"))):
                print("   ", *row)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
