# SPDX-License-Identifier: Apache-2.0
"""Compare two reports that were stored as JSON, and render the comparison as text and as JSON."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from slurmscope.core.units import NOT_MEASURED, format_bytes, format_count, format_energy, format_ratio
from slurmscope.jobs.render.formatting import show
from slurmscope.jobs.render.json import as_plain, encode_json
from slurmscope.jobs.render.text import cut, lay_table
from slurmscope.jobs.report import REPORT_VERSION
from slurmscope.run.render import precise


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One number of both reports; None is not measured. ``unit`` is seconds, bytes, joules, ratio or count."""

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


# Name, label, unit, and where it is in a report.
FIGURES = (
    ("run_seconds", "Wall time", "seconds", "summary.run_seconds"),
    ("cpu_seconds", "CPU time", "seconds", "summary.cpu.time.used"),
    ("cpu_user_seconds", "CPU time, user", "seconds", "summary.cpu.user_seconds"),
    ("cpu_system_seconds", "CPU time, system", "seconds", "summary.cpu.system_seconds"),
    ("cpu_ratio", "CPU efficiency", "ratio", "summary.cpu.time.ratio"),
    ("cores", "Cores", "count", "summary.record.cpus"),
    ("mean_cores", "Busy cores, mean", "count", "summary.cpu.mean_cores"),
    ("peak_cores", "Busy cores, peak", "count", "summary.cpu.peak_cores"),
    ("memory_bytes", "Memory, peak", "bytes", "summary.memory.best_peak_bytes"),
    ("threads", "Threads, peak", "count", "run.peak_threads"),
    ("processes", "Processes, peak", "count", "run.peak_processes"),
    ("read_bytes", "Read", "bytes", "summary.io.read_bytes"),
    ("write_bytes", "Written", "bytes", "summary.io.write_bytes"),
    ("reads", "Read calls", "count", "summary.io.reads"),
    ("writes", "Write calls", "count", "summary.io.writes"),
    ("gpu_ratio", "GPU utilization", "ratio", "summary.gpu.mean_utilization"),
    ("gpu_sm_ratio", "GPU multiprocessors", "ratio", "summary.gpu.work.sm_ratio"),
    ("gpu_tensor_ratio", "Tensor cores", "ratio", "summary.gpu.work.tensor_ratio"),
    ("gpu_energy_joules", "GPU energy", "joules", "summary.gpu.work.energy_joules"),
    ("gpu_memory_bytes", "GPU memory, peak", "bytes", "summary.gpu.peak_memory_bytes"),
)


def compare(first: object, second: object) -> ComparedRuns:
    """Compare two decoded reports; what neither of them measured is left out."""
    made = (
        ComparedFigure(name, label, unit, _number(_find(first, path)), _number(_find(second, path)))
        for name, label, unit, path in FIGURES
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
    figures = [{**asdict(figure), "ratio": figure.ratio} for figure in comparison.figures]
    plain = as_plain({"first": show(comparison.first), "second": show(comparison.second), "figures": figures})
    return encode_json(plain)


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


_FORMATS = {
    "seconds": precise,
    "bytes": format_bytes,
    "joules": format_energy,
    "ratio": format_ratio,
    "count": _format_number,
}
