# SPDX-License-Identifier: Apache-2.0
"""Record what the next run of the same user and name made of the advice of the run before it, and read it.

It is done when a run is saved that has ended, by one query of an index for each name. The advised run must have ended
before the next one was submitted: else its user could not know. Once advice is followed, further runs that keep to it
are compared with the advised run as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, and_, delete, func, insert, select

from slurmscope.archive.daily_sums import ADVICE_SUMS, change_sums
from slurmscope.archive.engine import Database
from slurmscope.archive.job_columns import MOST_SECONDS
from slurmscope.archive.job_rows import ColumnValues, rules_of, run_key
from slurmscope.archive.queries import MAX_ROWS, visible_at_all
from slurmscope.archive.tables import ADVICE, FINDINGS, JOBS
from slurmscope.archive.texts import cluster_name, person_name
from slurmscope.core.units import DAY_SECONDS, GIB
from slurmscope.jobs.advice import (
    COMMON_NAMES,
    AdviceGroup,
    AdviceOutcome,
    AdviceTotal,
    ComparedRun,
    Savings,
    compute_savings,
    find_resources,
    is_followed,
)
from slurmscope.jobs.rule import MIN_JUDGED_SECONDS
from slurmscope.jobs.runs import RunId
from slurmscope.jobs.viewer import Viewer

MAX_AGE_SECONDS = 180 * DAY_SECONDS
"""Runs further apart are not compared."""

_SUM_KEYS = tuple(column.name for column in ADVICE_SUMS.primary_key)
_SUMS = tuple(column.name for column in ADVICE_SUMS.c if column.name not in _SUM_KEYS)
_RUN_COLUMNS = tuple(
    JOBS.c[name]
    for name in (
        "run_id", "job_id", "submit_seconds", "account", "shown_id", "state", "run_seconds", "nodes", "cpus", "gpus",
        "memory_bytes", "time_limit_seconds",
    )
)  # fmt: skip


class Advice(NamedTuple):
    """One suggestion with the run that got it."""

    rule: str
    suggestion: str
    advised: Mapping[str, Any]
    is_first: bool


def record_outcomes(
    connection: Connection, saved: Sequence[tuple[int, ColumnValues]], replaced: Sequence[ColumnValues]
) -> None:
    """Compare runs, by their number and row, with the runs before them.

    A run that is saved after the next one of its name, as when an archive is filled from the newest job on, replaces
    what that one was compared with; so does one whose findings are ``replaced``, even by none.
    """
    compared = [pair for pair in saved if _is_compared(pair[1])]
    _compare_with_earlier(connection, compared)
    advised = {run_key(row) for row in (*replaced, *(values for _, values in compared)) if row["rules"]}
    following = _find_following(connection, compared, advised)
    if following:
        forget_outcomes(connection, following)
        connection.execute(delete(ADVICE).where(ADVICE.c.run_id.in_([row["run_id"] for row in following])))
        _compare_with_earlier(connection, [(row["run_id"], row) for row in following])


def _compare_with_earlier(connection: Connection, runs: Iterable[tuple[int, ColumnValues]]) -> None:
    later = sorted(runs, key=lambda pair: pair[1]["submit_seconds"])
    earlier = _find_earlier(connection, [values for _, values in later])
    advice = _read_advice(connection, earlier.values())
    rows: list[ColumnValues] = []
    for run_id, values in later:
        if (run := earlier.get(_name_key(values))) is not None:
            made = _compare(run_id, values, advice[run["run_id"]])
            # The run after this one, in the same batch, goes on from here.
            known = {given.rule for given in advice[run_id]}
            advice[run_id] += [_carry(row) for row in made if row["is_followed"] and row["rule"] not in known]
            rows += made
    if rows:
        connection.execute(insert(ADVICE), rows)
    by_run = dict(later)
    _change_sums(connection, ((by_run[row["run_id"]], row) for row in rows), 1)


def forget_outcomes(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Subtract the outcomes of runs that are about to be replaced."""
    by_run = {row["run_id"]: row for row in rows}
    statement = select(ADVICE).where(ADVICE.c.run_id.in_(by_run))
    found = [row._asdict() for row in connection.execute(statement)] if by_run else []
    _change_sums(connection, ((by_run[row["run_id"]], row) for row in found), -1)


def as_compared_run(row: Mapping[str, Any], prefix: str = "") -> ComparedRun:
    """Return the run of a row of the jobs, or with a prefix of the advice."""
    values = {name: row[prefix + name] for name in ComparedRun.__dataclass_fields__}
    return ComparedRun(**{**values, "cpus": values["cpus"] or None})


def month_of(seconds: int) -> int:
    """Return the number of a month: twelve times the year, and the month from 0."""
    day = datetime.fromtimestamp(seconds, UTC)
    return 12 * day.year + day.month - 1


def _is_compared(values: Mapping[str, Any]) -> bool:
    has_run = values["start_seconds"] is not None and values["end_seconds"] is not None
    return has_run and not values["is_unfinished"] and values["name"].lower() not in COMMON_NAMES


def _name_key(values: Mapping[str, Any]) -> tuple[Any, ...]:
    return values["cluster"], values["user"], values["name"], values["submit_seconds"]


def _find_earlier(connection: Connection, later: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], Any]:
    """Return the newest run of the same name that had ended; all tasks of an array have the same one."""
    found: dict[tuple[Any, ...], Any] = {}
    for key in dict.fromkeys(map(_name_key, later)):
        cluster, user, name, submit_seconds = key
        statement = select(*_RUN_COLUMNS).where(JOBS.c.user == user, JOBS.c.name == name, JOBS.c.cluster == cluster)
        statement = statement.where(
            JOBS.c.submit_seconds < submit_seconds,
            JOBS.c.submit_seconds > submit_seconds - MAX_AGE_SECONDS,
            JOBS.c.end_seconds <= submit_seconds,
            JOBS.c.start_seconds.is_not(None),
            JOBS.c.is_unfinished.is_(False),
        )
        statement = statement.order_by(JOBS.c.submit_seconds.desc(), JOBS.c.job_id.desc()).limit(1)
        if (row := connection.execute(statement).mappings().first()) is not None:
            found[key] = row
    return found


def _find_following(
    connection: Connection, saved: Sequence[tuple[int, ColumnValues]], advised: Set[RunId]
) -> list[ColumnValues]:
    """Return runs, saved before, whose newest earlier run is an advised one: until a later one had ended."""
    known = {run_id for run_id, _ in saved}
    found: dict[int, ColumnValues] = {}
    for _, values in saved:
        if run_key(values) not in advised:
            continue
        same = (JOBS.c[name] == values[name] for name in ("user", "name", "cluster"))
        runs = select(JOBS).where(*same, JOBS.c.submit_seconds > values["submit_seconds"]).subquery()
        has_ended = and_(runs.c.start_seconds.is_not(None), runs.c.is_unfinished.is_(False))
        next_end: int | None = connection.scalar(select(func.min(runs.c.end_seconds)).where(has_ended))
        end_seconds = values["end_seconds"]
        until = end_seconds + MAX_AGE_SECONDS if next_end is None else next_end - 1
        statement = select(runs).where(runs.c.submit_seconds.between(end_seconds, until)).limit(MAX_ROWS)
        rows = (row._asdict() for row in connection.execute(statement))
        found |= {row["run_id"]: row for row in rows if row["run_id"] not in known and _is_compared(row)}
    return list(found.values())


def _read_advice(connection: Connection, runs: Iterable[Mapping[str, Any]]) -> defaultdict[int, list[Advice]]:
    """Return the findings of runs, and the advice that they followed themselves."""
    by_run = {run["run_id"]: run for run in runs}
    advice: defaultdict[int, list[Advice]] = defaultdict(list)
    if not by_run:
        return advice
    found = select(FINDINGS.c.run_id, FINDINGS.c.rule, FINDINGS.c.suggestion).where(FINDINGS.c.run_id.in_(by_run))
    for run_id, rule, suggestion in connection.execute(found.order_by(FINDINGS.c.run_id, FINDINGS.c.rule)):
        advice[run_id].append(Advice(rule, suggestion, by_run[run_id], is_first=True))
    kept = select(ADVICE).where(ADVICE.c.run_id.in_(by_run), ADVICE.c.is_followed.is_(True))
    for row in connection.execute(kept.order_by(ADVICE.c.run_id, ADVICE.c.rule)):
        values = row._asdict()
        if values["rule"] not in {given.rule for given in advice[values["run_id"]]}:
            advice[values["run_id"]].append(_carry(values))
    return advice


def _carry(outcome: Mapping[str, Any]) -> Advice:
    """Return followed advice once more, for the next run."""
    advised = {column.name: outcome.get(f"advised_{column.name}") for column in _RUN_COLUMNS}
    return Advice(outcome["rule"], outcome["suggestion"], advised, is_first=False)


def _compare(run_id: int, values: Mapping[str, Any], advice: Sequence[Advice]) -> list[ColumnValues]:
    """Compare a run with all advice; what it saved of a resource counts for the first rule that is about it."""
    claimed: set[str] = set()
    rows: list[ColumnValues] = []
    later, found = as_compared_run(values), rules_of(values)
    for given in advice:
        earlier = as_compared_run(given.advised)
        verdict = is_followed(given.suggestion, earlier, later)
        if not given.is_first and not verdict:
            continue
        savings = Savings()
        if verdict:
            names = find_resources(given.suggestion, earlier) - claimed
            savings = compute_savings(earlier, later, names)
            claimed |= names
        is_gone = None if values["run_seconds"] < MIN_JUDGED_SECONDS else given.rule not in found
        rows.append(_outcome_values(run_id, values["cluster"], given, (verdict, is_gone), savings))
    return rows


def _outcome_values(
    run_id: int, cluster: str, given: Advice, verdicts: tuple[bool | None, bool | None], savings: Savings
) -> ColumnValues:
    advised = {f"advised_{column.name}": given.advised[column.name] for column in _RUN_COLUMNS[1:]}
    return {
        "run_id": run_id,
        "rule": given.rule,
        "cluster": cluster,
        "suggestion": given.suggestion,
        "is_followed": verdicts[0],
        "is_gone": verdicts[1],
        "is_first": given.is_first,
        "saved_core_seconds": savings.core_seconds,
        "saved_gpu_seconds": savings.gpu_seconds,
        "saved_memory_byte_seconds": savings.memory_byte_seconds,
        **advised,
    }


def _change_sums(
    connection: Connection, outcomes: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]], sign: int
) -> None:
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(_SUMS))
    for values, row in outcomes:
        key = (month_of(values["submit_seconds"]), row["rule"], values["user"], values["account"], values["cluster"])
        sums[key] = [old + sign * new for old, new in zip(sums[key], _amounts(values, row), strict=True)]
    changed = ((*key, *amounts) for key, amounts in sorted(sums.items()) if any(amounts))
    change_sums(connection, ADVICE_SUMS, [dict(zip(_SUM_KEYS + _SUMS, each, strict=True)) for each in changed])


def _amounts(values: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[int, ...]:
    """Return what one outcome adds, in the order of the columns; of an array, the task with its number counts."""
    is_counted = row["is_first"] and values["array_job_id"] in {None, values["job_id"]}
    is_completed = row["is_followed"] and row["advised_state"] != "COMPLETED" and values["state"] == "COMPLETED"
    saved = (row["saved_core_seconds"], row["saved_gpu_seconds"], row["saved_memory_byte_seconds"])
    cores, gpus, memory = (0.0 if amount is None else amount for amount in saved)
    return (
        int(is_counted),
        int(is_counted and row["is_followed"] is True),
        int(is_counted and row["is_followed"] is False),
        int(is_counted and row["is_gone"] is True),
        int(is_counted and bool(is_completed)),
        int(any(amount is not None for amount in saved)),
        *(round(1000 * max(-MOST_SECONDS, min(amount, MOST_SECONDS))) for amount in (cores, gpus, memory / GIB)),
    )


MAX_OUTCOMES = 100
MAX_GROUPS = 100_000
_READ_SUMS = tuple(column for column in ADVICE_SUMS.c if not column.primary_key)


class SqlAdviceReader:
    """Read outcomes from the archive, from any thread. Every failure is an ``ArchiveError``."""

    def __init__(self, database: Database) -> None:
        """Set the database, which its owner closes."""
        self._database = database

    def find_outcomes(
        self, viewer: Viewer, cluster: str, job_id: int, submit_seconds: int
    ) -> tuple[AdviceOutcome, ...]:
        """Return the outcomes in which this run is the earlier or the later one."""
        later = select(JOBS, ADVICE).join(ADVICE, ADVICE.c.run_id == JOBS.c.run_id)
        is_later = and_(JOBS.c.job_id == job_id, JOBS.c.submit_seconds == submit_seconds)
        is_earlier = and_(ADVICE.c.advised_job_id == job_id, ADVICE.c.advised_submit_seconds == submit_seconds)
        rows: list[Any] = []
        with self._database.reading() as connection:
            for condition in (is_later, and_(is_earlier, ADVICE.c.is_first.is_(True))):
                statement = later.where(condition, ADVICE.c.cluster == cluster_name(cluster))
                statement = statement.where(visible_at_all(viewer, JOBS)).order_by(JOBS.c.submit_seconds, ADVICE.c.rule)
                rows += connection.execute(statement.limit(MAX_OUTCOMES)).mappings()
        return tuple(
            _as_outcome(row)
            for row in rows
            if viewer.sees(row[JOBS.c.user], row[ADVICE.c.advised_account], row[ADVICE.c.cluster])
        )

    def total_outcomes(
        self,
        viewer: Viewer,
        by: AdviceGroup,
        *,
        since_seconds: int,
        user: str = "",
        cluster: str = "",
        limit: int = 100,
    ) -> tuple[AdviceTotal, ...]:
        """Return totals, largest saving of core time first; months in order."""
        group = ADVICE_SUMS.c[by.value]
        statement = select(group, *(func.sum(column) for column in _READ_SUMS)).group_by(group).limit(MAX_GROUPS)
        seen = visible_at_all(viewer, ADVICE_SUMS)
        statement = statement.where(ADVICE_SUMS.c.month >= month_of(max(0, since_seconds)), seen)
        if user:
            statement = statement.where(ADVICE_SUMS.c.user == person_name(user))
        if cluster:
            statement = statement.where(ADVICE_SUMS.c.cluster == cluster_name(cluster))
        with self._database.reading() as connection:
            totals = [_as_total(row, by) for row in connection.execute(statement)]
        limit = max(1, min(limit, MAX_ROWS))
        if by is AdviceGroup.MONTH:
            return tuple(sorted(totals, key=attrgetter("key"))[-limit:])
        return tuple(sorted(totals, key=lambda total: (-total.saved_core_seconds, -total.advised, total.key))[:limit])


def _as_outcome(row: Any) -> AdviceOutcome:
    values = {column.name: row[column] for column in JOBS.c}
    advice = {column.name: row[column] for column in ADVICE.c}
    return AdviceOutcome(
        rule=advice["rule"],
        suggestion=advice["suggestion"],
        earlier=as_compared_run(advice, "advised_"),
        later=as_compared_run(values),
        is_followed=advice["is_followed"],
        is_gone=advice["is_gone"],
        is_first=advice["is_first"],
        savings=Savings(
            core_seconds=advice["saved_core_seconds"],
            gpu_seconds=advice["saved_gpu_seconds"],
            memory_byte_seconds=advice["saved_memory_byte_seconds"],
        ),
    )


def _as_total(row: Row[Any] | Sequence[Any], by: AdviceGroup) -> AdviceTotal:
    key, *sums = row
    # PostgreSQL and MariaDB add whole numbers up as decimals.
    *counts, cores, gpus, memory = map(int, sums)
    return AdviceTotal(
        key=f"{key // 12:04}-{key % 12 + 1:02}" if by is AdviceGroup.MONTH else str(key),
        **dict(zip(_SUMS, counts, strict=False)),
        saved_core_seconds=cores / 1000,
        saved_gpu_seconds=gpus / 1000,
        saved_memory_byte_seconds=memory / 1000 * GIB,
    )
