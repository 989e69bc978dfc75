# SPDX-License-Identifier: Apache-2.0
"""Write reports into the tables, in place of older ones of the same runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, delete, insert, select

from slurmscope.archive.advice import forget_outcomes, record_outcomes
from slurmscope.archive.daily_sums import change_daily_sums
from slurmscope.archive.job_rows import ColumnValues, finding_values, job_values, node_values, run_key
from slurmscope.archive.report_coding import Encoded, encode_report
from slurmscope.archive.tables import CURVES, FINDINGS, INCOMPLETE, JOB_NODES, JOBS, REPORTS, RUN_TABLES
from slurmscope.archive.wait_times import change_waits
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.runs import RunId

CHUNK_ROWS = 500
"""How many rows are named in one statement."""

T = TypeVar("T")


class Prepared(NamedTuple):
    """All that is written of one report."""

    report: JobReport
    values: ColumnValues
    encoded: Encoded


def prepare_reports(reports: Iterable[JobReport]) -> Mapping[RunId, Prepared]:
    """Do the work that needs no connection; of two reports of one run the later counts."""
    prepared = (Prepared(report, job_values(report), encode_report(report)) for report in reports)
    return {run_key(one.values): one for one in prepared}


def write_reports(connection: Connection, prepared: Mapping[RunId, Prepared]) -> None:
    """Write reports within the caller's transaction."""
    taken, added = list[ColumnValues](), list[ColumnValues]()
    # Always in the same order, so that two writers cannot deadlock.
    for keys in _chunks(sorted(prepared)):
        older = _rows_of_runs(connection, keys)
        forget_outcomes(connection, older)
        _delete_runs(connection, older)
        newer = [prepared[key] for key in keys]
        run_ids = _insert_runs(connection, newer)
        record_outcomes(connection, [(run_ids[run_key(one.values)], one.values) for one in newer], older)
        taken += older
        added += (one.values for one in newer)
    change_daily_sums(connection, taken, added)
    change_waits(connection, taken, added)


def _rows_of_runs(connection: Connection, keys: Sequence[RunId]) -> list[ColumnValues]:
    """Find runs by their job numbers, which every database does quickly, and sort out the others here."""
    statement = select(JOBS).where(JOBS.c.job_id.in_({key.job_id for key in keys})).with_for_update()
    wanted = set(keys)
    rows = (row._asdict() for row in connection.execute(statement))
    return [row for row in rows if run_key(row) in wanted]


def _ids_of_runs(connection: Connection, keys: Sequence[RunId]) -> Mapping[RunId, int]:
    """Return the IDs of rows that this transaction wrote: they need no lock, which would write each of them again."""
    columns = [JOBS.c[name] for name in RunId._fields]
    statement = select(JOBS.c.run_id, *columns).where(JOBS.c.job_id.in_({key.job_id for key in keys}))
    return {RunId(*key): run_id for run_id, *key in connection.execute(statement)}


def _delete_runs(connection: Connection, rows: Sequence[ColumnValues]) -> None:
    run_ids = [row["run_id"] for row in rows]
    if run_ids:
        for table in RUN_TABLES:
            connection.execute(delete(table).where(table.c.run_id.in_(run_ids)))


def _insert_runs(connection: Connection, chunk: Sequence[Prepared]) -> Mapping[RunId, int]:
    connection.execute(insert(JOBS), [one.values for one in chunk])
    run_ids = _ids_of_runs(connection, [run_key(one.values) for one in chunk])
    named = [(run_ids[run_key(one.values)], one) for one in chunk]
    findings = [row for run_id, one in named for row in finding_values(one.report, one.values, run_id)]
    if findings:
        connection.execute(insert(FINDINGS), findings)
    nodes = [row for run_id, one in named for row in node_values(one.report, one.values, run_id)]
    if nodes:
        connection.execute(insert(JOB_NODES), nodes)
    incomplete = [
        {"run_id": run_id, "end_seconds": one.values["end_seconds"]}
        for run_id, one in named
        if one.report.is_incomplete and one.report.record.has_ended and one.values["end_seconds"] is not None
    ]
    if incomplete:
        connection.execute(insert(INCOMPLETE), incomplete)
    connection.execute(
        insert(REPORTS),
        [{"run_id": run_id, "version": one.report.version, "body": one.encoded.body} for run_id, one in named],
    )
    connection.execute(
        insert(CURVES),
        [
            {"run_id": run_id, "submit_seconds": one.values["submit_seconds"], "body": one.encoded.curves}
            for run_id, one in named
        ],
    )
    return run_ids


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, CHUNK_ROWS)):
        yield chunk
