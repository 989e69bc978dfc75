# SPDX-License-Identifier: Apache-2.0
"""Write reports into the tables, in place of older ones of the same runs, and read them again; thin curves of old jobs.

Bytes are read by this release or a later one: keys that are not known any more are passed over, and what an older
report does not have gets its default. Curves are stored separately, because they are deleted earlier.

A point becomes the mean of those that it replaces; of memory it becomes the highest, so that a peak near the limit is
still seen. What was not measured in any of them stays unknown.
"""

from __future__ import annotations

import logging
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Connection, delete, insert, select

from slurmscope.archive.advice import forget_outcomes, record_outcomes
from slurmscope.archive.daily_sums import change_all_sums
from slurmscope.archive.engine import Database
from slurmscope.archive.job_rows import ColumnValues, finding_values, job_values, node_values, run_key
from slurmscope.archive.tables import CURVES, FINDINGS, INCOMPLETE, JOB_NODES, JOBS, REPORTS, RUN_TABLES
from slurmscope.archive.texts import cluster_name
from slurmscope.core.errors import ArchiveTooLarge, UnreadableReport
from slurmscope.core.log import fields
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import Chart, ChartLine, HeatMap, JobReport
from slurmscope.jobs.runs import RunId

logger = logging.getLogger(__name__)

DIGITS = 4
MEMORY_UNIT = "bytes"

Combine = Callable[[Sequence[float]], float]

CHUNK_ROWS = 500
"""How many rows are named in one statement."""

T = TypeVar("T")

RECORDS_AT_ONCE = 100
"""MariaDB reads the whole table when there are more than 200 numbers."""


def thin_chart(chart: Chart, points: int) -> Chart:
    """Return a chart with at most so many points; each is in the middle of those that it replaces."""
    size = _group_size(len(chart.times), points)
    combine = max if chart.unit == MEMORY_UNIT else fmean
    times = tuple(round(fmean(group), 1) for group in _groups(chart.times, size))
    return replace(chart, times=times, lines=_thin_lines(chart.lines, size, combine))


def thin_heat_map(heat_map: HeatMap, points: int) -> HeatMap:
    """Return a heat map with at most so many columns; each begins with the first that it replaces."""
    size = _group_size(len(heat_map.times), points)
    times = tuple(group[0] for group in _groups(heat_map.times, size))
    return replace(heat_map, times=times, rows=_thin_lines(heat_map.rows, size, fmean))


def _group_size(count: int, points: int) -> int:
    return max(1, -(-count // max(1, points)))


def _groups(values: Sequence[float], size: int) -> list[Sequence[float]]:
    return [values[begin : begin + size] for begin in range(0, len(values), size)]


def _thin_lines(lines: Sequence[ChartLine], size: int, combine: Combine) -> tuple[ChartLine, ...]:
    return tuple(replace(line, values=_thin_values(line.values, size, combine)) for line in lines)


def _thin_values(values: Sequence[float | None], size: int, combine: Combine) -> tuple[float | None, ...]:
    thinned: list[float | None] = []
    for begin in range(0, len(values), size):
        known = [value for value in values[begin : begin + size] if value is not None]
        thinned.append(float(f"{combine(known):.{DIGITS}g}") if known else None)
    return tuple(thinned)


BODY_LIMIT_BYTES = 8 * 1024 * 1024
"""Under the largest packet that MariaDB takes by default, 16 MiB."""
UNPACKED_LIMIT_BYTES = 256 * 1024 * 1024
FORGOTTEN = "The curves of this job are not kept any more."
THINNED = "The curves of this job were thinned: each point is the mean, for memory the maximum, of a longer interval."
TOO_LARGE = "The curves of this job were too large to be kept."

_LEVEL = 3
_BEST_LEVEL = 9
_HALF_PAIR = re.compile("[\ud800-\udfff]")

ReportType = TypeVar("ReportType")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCurves:
    """All curves of a report; without heat maps, and where nothing was thinned, only the charts are stored."""

    charts: tuple[Chart, ...]
    heat_maps: tuple[HeatMap, ...] = ()
    is_thinned: bool = False


_decode_report = msgspec.json.Decoder(JobReport).decode
_decode_curves = msgspec.json.Decoder(tuple[Chart, ...] | StoredCurves).decode


class Encoded(NamedTuple):
    """A report in two parts; ``curves`` is empty where there are none."""

    body: bytes
    curves: bytes


def encode_report(report: JobReport) -> Encoded:
    """Write a report; curves that are too large are left out, and the report says so.

    Raises ArchiveTooLarge if the rest is too large.
    """
    curves = _pack(_curves(report), _decode_curves) if report.charts else b""
    missing = report.missing
    if len(curves) > BODY_LIMIT_BYTES:
        curves, missing = b"", (*missing, TOO_LARGE)
    body = _pack(replace(report, charts=(), heat_maps=(), missing=missing, resubmission=None), _decode_report)
    if len(body) > BODY_LIMIT_BYTES:
        raise ArchiveTooLarge(f"the report of job {report.record.shown_id} is too large for the archive")
    return Encoded(body, curves)


def decode_report(body: bytes, curves: bytes | None) -> JobReport:
    """Decode a report; without its curves it says that they were deleted."""
    report = _unpack(body, _decode_report)
    if curves is None:
        return replace(report, missing=(*report.missing, FORGOTTEN))
    if not curves:
        return report
    found = _unpack(curves, _decode_curves)
    if not isinstance(found, StoredCurves):
        return replace(report, charts=found)
    missing = (*report.missing, THINNED) if found.is_thinned else report.missing
    return replace(report, charts=found.charts, heat_maps=found.heat_maps, missing=missing)


def thin_curves(curves: bytes, points: int) -> bytes | None:
    """Return curves with at most so many points, packed as well as possible; None if they were thinned before."""
    found = _unpack(curves, _decode_curves)
    if not isinstance(found, StoredCurves):
        found = StoredCurves(charts=found)
    if found.is_thinned:
        return None
    thinned = StoredCurves(
        charts=tuple(thin_chart(chart, points) for chart in found.charts),
        heat_maps=tuple(thin_heat_map(heat_map, points) for heat_map in found.heat_maps),
        is_thinned=True,
    )
    return zlib.compress(msgspec.json.encode(thinned), _BEST_LEVEL)


def _curves(report: JobReport) -> tuple[Chart, ...] | StoredCurves:
    return StoredCurves(charts=report.charts, heat_maps=report.heat_maps) if report.heat_maps else report.charts


def _pack(value: object, decode: Callable[[bytes], object]) -> bytes:
    """Encode a report and check that it decodes: else the fault would show only when the report is opened."""
    try:
        text = msgspec.json.encode(value)
        decode(text)
    except (UnicodeEncodeError, msgspec.MsgspecError):
        text = msgspec.json.encode(_clean(msgspec.to_builtins(value)))
    return zlib.compress(text, _LEVEL)


def _clean(value: Any) -> Any:
    """Make texts valid, for a name may hold bytes that were not UTF-8, and leave out numbers that are none."""
    if isinstance(value, str):
        return _HALF_PAIR.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items() if not _is_no_number(item)}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


def _is_no_number(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _unpack(packed: bytes, decode: Callable[[bytes], ReportType]) -> ReportType:
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, UNPACKED_LIMIT_BYTES)
        if not unpacker.eof:
            raise UnreadableReport("a report in the archive is truncated or too large")
        return decode(text)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise UnreadableReport("cannot read a report in the archive: it was written by another release") from error


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
    change_all_sums(connection, taken, added)


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


def read_ended_records(database: Database, cluster: str, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
    """Yield the jobs of a cluster that ran and ended in a period, without its last second, that can be decoded."""
    # By the primary key alone: with more conditions, planners choose an index and sort all jobs for every part.
    some = select(JOBS.c.run_id, JOBS.c.cluster, JOBS.c.is_unfinished, JOBS.c.start_seconds, JOBS.c.end_seconds)
    some = some.order_by(JOBS.c.run_id).limit(RECORDS_AT_ONCE)
    name = cluster_name(cluster)
    reports = select(REPORTS.c.body).order_by(REPORTS.c.run_id)
    last = -1
    while True:
        # A connection for each part: one that is open for hours would keep SQLite's log from being cut.
        with database.reading() as connection:
            rows = connection.execute(some.where(JOBS.c.run_id > last)).all()
            runs = [
                run_id
                for run_id, of_cluster, is_unfinished, start, end in rows
                if of_cluster == name and not is_unfinished and start is not None and end is not None
                if since_seconds <= end < until_seconds
            ]
            bodies = connection.scalars(reports.where(REPORTS.c.run_id.in_(runs))).all() if runs else ()
        for body in bodies:
            try:
                record = decode_report(body, b"").record
            except UnreadableReport as error:
                logger.warning("a job is left out", extra=fields("unreadable report", error=str(error)))
                continue
            yield record
        if len(rows) < RECORDS_AT_ONCE:
            return
        last = rows[-1].run_id
