# SPDX-License-Identifier: Apache-2.0
"""Write a report of a job as bytes and read it again, in this release or a later one; thin curves of old jobs.

Keys that are not known any more are passed over, and what an older report does not have gets its default. Curves are
stored separately, because they are deleted earlier.

A point becomes the mean of those that it replaces; of memory it becomes the highest, so that a peak near the limit is
still seen. What was not measured in any of them stays unknown.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

import msgspec

from slurmscope.core.errors import ArchiveTooLarge, UnreadableReport
from slurmscope.jobs.report import Chart, ChartLine, HeatMap, JobReport

DIGITS = 4
MEMORY_UNIT = "bytes"

Combine = Callable[[Sequence[float]], float]


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
