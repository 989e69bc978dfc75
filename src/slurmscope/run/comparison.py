# SPDX-License-Identifier: Apache-2.0
"""Compare two reports that were stored as JSON, and render the comparison as text and as JSON."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from slurmscope.core.units import NOT_MEASURED, format_bytes, format_count, format_ratio
from slurmscope.jobs.render.formatting import show
from slurmscope.jobs.render.json import as_plain, encode_json
from slurmscope.jobs.render.text import cut, lay_table
from slurmscope.jobs.report import REPORT_VERSION
from slurmscope.run.render import precise


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Name one number of a report and where it is; ``unit`` is seconds, bytes, ratio, cores or count."""

    name: str
    label: str
    unit: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One number of both reports; None is not measured."""

    name: str
    label: str
    unit: str
    first: float | None
    second: float | None

    @property
    def ratio(self) -> float | None:
        """Return the second over the first; None where that says nothing."""
        if self.first is None or self.second is None or self.first <= 0:
            return None
        return self.second / self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """Two runs side by side."""

    first: str
    second: str
    """What ran, and where."""
    figures: tuple[ComparedFigure, ...]


FIGURES = (
    Figure(name="run_seconds", label="Wall time", unit="seconds", path="summary.run_seconds"),
    Figure(name="cpu_seconds", label="CPU time", unit="seconds", path="summary.cpu.time.used"),
    Figure(name="cpu_user_seconds", label="CPU time, user", unit="seconds", path="summary.cpu.user_seconds"),
    Figure(name="cpu_system_seconds", label="CPU time, system", unit="seconds", path="summary.cpu.system_seconds"),
    Figure(name="cpu_ratio", label="CPU efficiency", unit="ratio", path="summary.cpu.time.ratio"),
    Figure(name="cores", label="Cores", unit="count", path="summary.record.cpus"),
    Figure(name="mean_cores", label="Busy cores, mean", unit="count", path="summary.cpu.mean_cores"),
    Figure(name="peak_cores", label="Busy cores, peak", unit="count", path="summary.cpu.peak_cores"),
    Figure(name="memory_bytes", label="Memory, peak", unit="bytes", path="summary.memory.best_peak_bytes"),
    Figure(name="threads", label="Threads, peak", unit="count", path="run.peak_threads"),
    Figure(name="processes", label="Processes, peak", unit="count", path="run.peak_processes"),
    Figure(name="read_bytes", label="Read", unit="bytes", path="summary.io.read_bytes"),
    Figure(name="write_bytes", label="Written", unit="bytes", path="summary.io.write_bytes"),
    Figure(name="reads", label="Read calls", unit="count", path="summary.io.reads"),
    Figure(name="writes", label="Write calls", unit="count", path="summary.io.writes"),
    Figure(name="gpu_ratio", label="GPU utilization", unit="ratio", path="summary.gpu.mean_utilization"),
    Figure(name="gpu_memory_bytes", label="GPU memory, peak", unit="bytes", path="summary.gpu.peak_memory_bytes"),
)


def compare(first: object, second: object) -> ComparedRuns:
    """Compare two decoded reports; what neither of them measured is left out."""
    made = (
        ComparedFigure(
            name=figure.name,
            label=figure.label,
            unit=figure.unit,
            first=_number(_find(first, figure.path)),
            second=_number(_find(second, figure.path)),
        )
        for figure in FIGURES
    )
    return ComparedRuns(
        first=_describe(first),
        second=_describe(second),
        figures=tuple(figure for figure in made if figure.first is not None or figure.second is not None),
    )


def is_report(report: object) -> bool:
    """Return whether something decoded from JSON is the report of a command or of a job."""
    return _find(report, "version") == REPORT_VERSION and isinstance(_find(report, "summary.record"), Mapping)


def _find(report: object, path: str) -> object:
    found = report
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _number(found: object) -> float | None:
    """Return a measured number; whatever else a file may contain was not measured."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        number = float(found)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _describe(report: object) -> str:
    """Return the command or the name of the job, and the nodes."""
    words = _find(report, "run.command")
    is_command = isinstance(words, list) and words and all(isinstance(word, str) for word in words)
    name = shlex.join(words) if is_command and isinstance(words, list) else _find(report, "summary.record.name")
    nodes = _find(report, "summary.record.nodes")
    places = [node for node in nodes if isinstance(node, str)] if isinstance(nodes, list) else []
    where = f" on {places[0]}" if len(places) == 1 else f" on {len(places)} nodes" if places else ""
    return f"{name if isinstance(name, str) else 'unknown'}{where}"


NO_RATIO = "–"
_TINY = 0.005
"""Positive numbers below this would be shown as 0."""


def render_comparison_text(comparison: ComparedRuns, *, width: int = 80) -> str:
    """Return both runs side by side, with the ratio of B to A."""
    rows = [(figure.label, *_values(figure)) for figure in comparison.figures]
    lines = [
        cut(f"A: {show(comparison.first)}", width),
        cut(f"B: {show(comparison.second)}", width),
        "",
        *lay_table(("", "A", "B", "B / A"), rows, width),
    ]
    return "\n".join(lines) + "\n"


def render_comparison_json(comparison: ComparedRuns) -> bytes:
    """Return one JSON object; what was not measured is null."""
    figures = [{**_mapping(as_plain(figure)), "ratio": as_plain(figure.ratio)} for figure in comparison.figures]
    return encode_json({"first": show(comparison.first), "second": show(comparison.second), "figures": figures})


def _values(figure: ComparedFigure) -> tuple[str, str, str]:
    form = _FORMATS[figure.unit]
    return form(figure.first), form(figure.second), _format_quotient(figure)


def _format_quotient(figure: ComparedFigure) -> str:
    if figure.first is None or figure.second is None:
        return NOT_MEASURED
    if figure.ratio is None:
        return NO_RATIO
    return "under 0.01" if 0 < figure.ratio < _TINY else f"{figure.ratio:,.2f}"


def _format_number(amount: float | None) -> str:
    return "under 0.01" if amount is not None and 0 < amount < _TINY else format_count(amount)


_FORMATS = {"seconds": precise, "bytes": format_bytes, "ratio": format_ratio, "count": _format_number}


def _mapping(plain: object) -> dict[str, object]:
    return plain if isinstance(plain, dict) else {}
