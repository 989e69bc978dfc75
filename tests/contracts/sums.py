# SPDX-License-Identifier: Apache-2.0
"""Keep every sum of an archive equal to what its jobs add up to, whatever is saved, replaced and deleted."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sqlalchemy import select

from slurmscope.archive.daily_sums import ADVICE_SUMS, DAILY, NAMES, TOTALS, WAITS
from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.tables import ADVICE, FINDINGS, JOBS
from slurmscope.core.tres import Gres
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.jobs.wait_times import find_cores_class, find_limit_class, find_wait_class
from tests.contracts.model import ACCOUNTS, CLUSTERS, DAY, NEW_YEAR, PARTITIONS, RULES, USERS, Fact
from tests.fakes.reports import START, make_finding, make_record, make_report

STEPS = 25
LAST_DAY = 70
STATES = ("COMPLETED", "FAILED", "RUNNING", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED")
SUGGESTIONS = {"cpu_idle": "--cpus-per-task=2", "memory_over_requested": "--mem=1G", "gpu_idle": "--gres=gpu:0"}

Sums = dict[tuple[Any, ...], list[int]]


class SumContract:
    """Run these with a fixture ``archive`` that is empty at first."""

    def test_sums_are_those_of_the_jobs_after_any_changes(self, archive: SqlArchive) -> None:
        choose = random.Random(1)
        before = NEW_YEAR
        for _ in range(STEPS):
            kept = find_kept_advice(archive)
            if choose.random() < 0.75:
                archive.save([any_report(choose) for _ in range(choose.randint(1, 12))])
            elif choose.random() < 0.7:
                before += choose.randint(0, 5 * DAY)
                outcomes = read_sums(archive, ADVICE_SUMS)
                archive.delete_jobs(before)
                assert outcomes == read_sums(archive, ADVICE_SUMS)
                kept = find_kept_advice(archive)
            else:
                archive.thin_curves(before, 10)
                archive.delete_curves(before)
            assert kept == find_kept_advice(archive)
            check_sums(archive)

    def test_impossible_numbers_of_a_job_cost_its_own_sums_only(self, archive: SqlArchive) -> None:
        huge = make_record(
            1, cpus=2**62, memory_bytes=2**62, gres=(Gres(name="gpu", count=2**62),), end_seconds=2**63 - 1
        )
        odd = make_report(huge, findings=(replace(make_finding("cpu_idle"), suggestion="--cpus-per-task=2"),))
        odd = replace(odd, summary=replace(odd.summary, run_seconds=2e9))
        later = make_report(make_record(2, submit_seconds=START + DAY))

        for reports in ([odd, later], [odd], [later]):
            archive.save(reports)
            check_sums(archive)

        assert [2, 1] == [row.job_id for row in archive.list_jobs(EVERYTHING, JobFilter()).rows]
        (total,) = archive.total(EVERYTHING, JobFilter(), GroupBy.USER)
        assert 1e13 + 4 * 7200 == total.core_seconds


def check_sums(archive: SqlArchive) -> None:
    """Compare all tables of sums with the jobs."""
    jobs = read_jobs(archive)
    assert add_up((key, amounts) for job in jobs for key, amounts in _daily_rows(job)) == read_sums(archive, DAILY)
    assert add_up((key, amounts) for job in jobs for key, amounts in _total_rows(job)) == read_sums(archive, TOTALS)
    assert add_up((key, [1]) for job in jobs for key in _wait_keys(job)) == read_sums(archive, WAITS)
    assert add_up(((job["name"],), [1]) for job in jobs) == read_sums(archive, NAMES)


def read_jobs(archive: SqlArchive) -> list[dict[str, Any]]:
    """Return the rows of all jobs, with the rules that found something in each."""
    rules = defaultdict(list)
    with archive.database.reading() as connection:
        for run_id, rule in connection.execute(select(FINDINGS.c.run_id, FINDINGS.c.rule)):
            rules[run_id].append(rule)
        return [{**row._asdict(), "found": rules[row.run_id]} for row in connection.execute(select(JOBS))]


def read_sums(archive: SqlArchive, table: Any) -> Sums:
    """Return the rows of a table of sums by key."""
    keys = len(table.primary_key)
    with archive.database.reading() as connection:
        rows = connection.execute(select(*table.primary_key, *(c for c in table.c if not c.primary_key)))
        return {tuple(row[:keys]): [int(number or 0) for number in row[keys:]] for row in rows}


def add_up(rows: Iterator[tuple[tuple[Any, ...], list[int]]]) -> Sums:
    """Add the rows of each key up."""
    sums: Sums = {}
    for key, amounts in rows:
        sums[key] = [old + new for old, new in zip(sums.get(key, [0] * len(amounts)), amounts, strict=True)]
    return sums


def find_kept_advice(archive: SqlArchive) -> Counter[tuple[Any, ...]]:
    """Return by how many outcomes the sums of advice exceed the outcomes that are there: those of deleted jobs."""
    with archive.database.reading() as connection:
        statement = select(JOBS, ADVICE.c.rule, ADVICE.c.is_first).join(ADVICE, ADVICE.c.run_id == JOBS.c.run_id)
        rows = [row._asdict() for row in connection.execute(statement)]
    kept = Counter({key: amounts[0] for key, amounts in read_sums(archive, ADVICE_SUMS).items()})
    for row in rows:
        if row["is_first"] and row["array_job_id"] in {None, row["job_id"]}:
            # All jobs of this test are of 2026: twelve times the year, and the month.
            month = 12 * 2026 + _month(row["submit_seconds"])
            kept[month, row["rule"], row["user"], row["account"], row["cluster"]] -= 1
    return Counter({key: jobs for key, jobs in kept.items() if jobs})


def _month(seconds: int) -> int:
    ends = (31, 59, 90, 120)
    return next(month for month, end in enumerate(ends) if (seconds - NEW_YEAR) // DAY < end)


def any_report(choose: random.Random) -> JobReport:
    """Make a report of one of few runs: names, state, numbers and findings of a run change from report to report."""
    job_id = choose.randint(1, 60)
    submit = NEW_YEAR + job_id * LAST_DAY * DAY // 60 + choose.choice((0, 0, 0, DAY - 1))
    findings = tuple((rule, choose.choice(list(Severity))) for rule in RULES if choose.random() < 0.4)
    fact = Fact(
        cluster=CLUSTERS[job_id % 2], job_id=job_id, submit=submit, name=choose.choice(("relax", "train")),
        user=choose.choice(USERS), account=choose.choice(ACCOUNTS), partition=choose.choice(PARTITIONS),
        state=choose.choice(STATES), array_job_id=None, cpus=choose.randint(1, 64), gpus=choose.randint(0, 4),
        run_seconds=choose.choice((0.0, 0.0015, 3600.0, choose.random() * 1e6)),
        used_cores=choose.choice((None, 0.0, choose.random() * 70)),
        gpu_utilization=choose.choice((None, choose.random())), findings=findings, node="n1",
        memory_share=choose.choice((None, choose.random())), watts=choose.choice((None, 0.0, choose.random() * 3e5)),
        edges=choose.choice((None, (0.0, choose.random() / 2), (choose.random() / 2, choose.random() / 2))),
    )  # fmt: skip
    report = fact.report()
    end = None if fact.state == "RUNNING" else submit + 60 + choose.randint(0, 3 * DAY)
    eligible = choose.choice((None, submit, submit + 30))
    record = replace(report.record, end_seconds=end, eligible_seconds=eligible)
    advised = tuple(replace(found, suggestion=SUGGESTIONS[found.rule]) for found in report.findings)
    return replace(report, summary=replace(report.summary, record=record), findings=advised)


def _amounts(job: dict[str, Any]) -> list[int]:
    cores, used, gpus, used_gpus, blocked = (
        round((job[name] or 0.0) * 1000)
        for name in ("core_seconds", "used_core_seconds", "gpu_seconds", "used_gpu_seconds", "blocked_core_seconds")
    )
    measured = cores if job["used_core_seconds"] is not None else 0
    measured_gpus = gpus if job["used_gpu_seconds"] is not None else 0
    energy = [round((job[name] or 0.0) * 1000) for name in ("energy_joules", "carbon_grams", "energy_cost")]
    kinds = ("startup_core", "tail_core", "startup_gpu", "tail_gpu")
    edges = [round((job[f"{kind}_seconds"] or 0.0) * 1000) for kind in kinds]
    has_energy = int(job["energy_joules"] is not None)
    return [
        1,
        cores,
        measured,
        used,
        gpus,
        measured_gpus,
        used_gpus,
        int(bool(job["found"])),
        blocked,
        has_energy,
        *energy,
        *edges,
    ]


def _losses(job: dict[str, Any]) -> list[int]:
    _, cores, measured, used, gpus, measured_gpus, used_gpus, *_ = _amounts(job)
    losses = []
    for held, unused in ((cores, measured - used), (gpus, measured_gpus - used_gpus)):
        is_failed = job["state"] in {"FAILED", "OUT_OF_MEMORY"}
        is_late = job["state"] == "TIMEOUT"
        losses += [held if is_failed else 0, held if is_late else 0, 0 if is_failed or is_late else unused]
    return losses


def _times(job: dict[str, Any]) -> list[tuple[int, int]]:
    day = job["submit_seconds"] // DAY
    return [(1, day), (32, day // 32 * 32)]


def _daily_rows(job: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    for rule in ("", *job["found"]):
        for span, day in _times(job):
            names = (job[name] for name in ("cluster", "user", "account", "partition", "state"))
            yield (rule, span, day, *names), _amounts(job)


def _total_rows(job: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    names = [(name, job[name]) for name in ("user", "account", "partition", "state")]
    for dimension, name in (*names, *(("rule", rule) for rule in job["found"])):
        for span, day in _times(job):
            yield (dimension, span, day, job["cluster"], name), [*_amounts(job), *_losses(job)]


def _wait_keys(job: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    if job["wait_seconds"] is not None and job["cpus"]:
        shape = (find_cores_class(job["cpus"]), find_limit_class(job["time_limit_seconds"]))
        day = job["submit_seconds"] // DAY
        yield day, job["cluster"], job["partition"], *shape, find_wait_class(job["wait_seconds"])
