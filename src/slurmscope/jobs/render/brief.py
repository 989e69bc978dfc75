# SPDX-License-Identifier: Apache-2.0
"""Render a job report as a summary that fits a terminal of 24 lines and 80 columns: the verdict first.

::

    Job 4711: relax                                                        COMPLETED
    ada, physics; batch; 1 node (n1), 4 cores, 8 GiB
    Ran 2 h of 1 d, ended 2026-09-21 16:13:20 UTC; waited 10 min

    WARNING: Half of the cores were idle
        Of 4 cores, 2 were used.
    For the next run (submitted: --cpus-per-task=4):
    #SBATCH --cpus-per-task=2

    CPU         [||||||||   50 %]  ▆▆▇█▇▇▇▇▇▇▇▇▇▇▆  2 of 4 cores busy
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, tzinfo
from itertools import chain
from typing import TYPE_CHECKING

from slurmscope.core.units import format_bytes, format_ratio, format_seconds, format_some
from slurmscope.jobs.curves import mean_known
from slurmscope.jobs.render import contents, verdict
from slurmscope.jobs.render.contents import Gauge
from slurmscope.jobs.render.energy import describe_energy
from slurmscope.jobs.render.formatting import format_time, show
from slurmscope.jobs.render.text import TextPage, cut, draw_sparkline, measure, pad, wrap
from slurmscope.jobs.render.verdict import Verdict
from slurmscope.jobs.report import Chart, JobReport

if TYPE_CHECKING:
    from slurmscope.jobs.pending.blockers import PendingExplanation

MAX_LINES = 24
MAX_OPTIONS = 5
"""Lines for the job script; more of them are in the whole report."""
_BAR, _CURVE, _LABEL = 18, 16, 10
_WIDE = 72
"""From this width on, the curve and the text stand right of the bar."""
_CURVES = {
    "CPU": ("cpu",),
    "Memory": ("memory",),
    "GPU": ("gpu_busy", "gpu"),
    "GPU memory": ("gpu_held_memory", "gpu_memory"),
}
_FILES = ("read", "write")


def render_brief(
    report: JobReport,
    *,
    width: int = 80,
    use_color: bool = False,
    url: str = "",
    zone: tzinfo | None = UTC,
    known: PendingExplanation | None = None,
) -> str:
    """Return at most 24 lines of at most ``width`` columns; a pending job has its reason instead of measurements."""
    page = _BriefPage(width, use_color=use_color)
    head = [*page.head(report, zone), ""]
    tail = ["", *page.tail(report, url)]
    if why := contents.pending_rows(report, known, zone):
        rows = page.cut_lines(page.rows(why), MAX_LINES - len(head) - len(tail))
        return "\n".join([*head, *rows, *tail]) + "\n"
    use = [*page.use(report), *page.unmeasured(report)]
    room = MAX_LINES - len(head) - len(use) - len(tail) - 1
    return "\n".join([*head, *page.verdict(report, room, zone), "", *use, *tail]) + "\n"


class _BriefPage(TextPage):
    """Lay out the blocks of a summary."""

    def head(self, report: JobReport, zone: tzinfo | None) -> Iterator[str]:
        """Yield name and state in one line, then who and how large, then when."""
        state, title = show(report.record.state, 20), contents.title(report)
        line = f"{pad(title, self.width - measure(state) - 2)}  {state}"
        yield self.bold(cut(line, self.width))
        for text in (_describe_size(report), _describe_run(report, zone)):
            if text:
                yield cut(show(text), self.width)

    def verdict(self, report: JobReport, room: int, zone: tzinfo | None) -> list[str]:
        """Return what went wrong, with what to do about it where there is room, and the lines for the next run."""
        header = self.cut_lines(self._header(report), max(2, room - 2))
        room -= len(header)
        said = verdict.make_verdict(report, zone)
        explanation, *advice = [list(self._under("    ", text)) for text in said.sentences] or [[]]
        others = [cut("Also: " + "; ".join(other.title for other in said.others), self.width)] if said.others else []
        output = [cut(f"    Output: {row.text}", self.width) for row in said.rows if row.label == "Output"]
        begin, end = [*self._title(said), *explanation], [*output, *others]
        advised = self.cut_lines(list(chain.from_iterable(advice)), room - len(begin) - len(end))
        return [*self.cut_lines([*begin, *advised, *end], room), *header]

    def use(self, report: JobReport) -> Iterator[str]:
        """Yield a line for each requested resource, with its curve, and one for files."""
        curves = {chart.name: chart for chart in report.charts}
        for gauge in contents.gauges(report):
            yield from self._gauge(gauge, _draw(curves, _CURVES.get(gauge.label, ())))
        if work := _describe_gpu_work(report):
            yield from self._gauge(Gauge(label="GPU work", ratio=None, text=work), "")
        io = report.summary.io
        if io.read_bytes is not None or io.write_bytes is not None:
            text = f"read {format_bytes(io.read_bytes)}, wrote {format_bytes(io.write_bytes)}"
            yield from self._gauge(Gauge(label="Files", ratio=None, text=text), _draw(curves, _FILES))

        if energy := describe_energy(report.summary.energy):
            yield from self._gauge(Gauge(label="Energy", ratio=None, text=energy), "")

    def unmeasured(self, report: JobReport) -> Iterator[str]:
        """Yield one line about what is missing."""
        sentences = contents.missing(report)
        if sentences:
            more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
            yield cut(sentences[0], self.width - measure(more)) + more

    def tail(self, report: JobReport, url: str) -> Iterator[str]:
        shown_id = report.record.shown_id
        yield cut(f"Everything: slurmscope report {shown_id} --full", self.width)
        if url:
            # An address that is cut is of no use.
            yield from wrap(f"Charts and more: {show(url)}", self.width)[:3]

    def cut_lines(self, lines: Iterator[str] | Sequence[str], room: int) -> list[str]:
        """Return no more lines than there is room for; the last one says that there are more."""
        found = list(lines)
        if len(found) <= room:
            return found
        return [*found[: max(0, room - 1)], "    …"] if room > 0 else []

    def _title(self, said: Verdict) -> Iterator[str]:
        if said.severity is not None:
            line = cut(f"{said.severity.value.upper()}: {said.title}", self.width)
            yield self.paint_severity(line, said.severity)
            return
        for line in wrap(said.title, self.width)[:3]:
            yield line if said.tone in {verdict.FINE, verdict.QUIET} else self.bold(line)

    def _header(self, report: JobReport) -> Iterator[str]:
        """Yield the lines for the job script as they are, so that they can be copied."""
        header = report.resubmission
        if header is None:
            lines = list(dict.fromkeys(found.suggestion for found in verdict.findings(report) if found.suggestion))
            submitted = ""
        else:
            lines = [show(line) for line in header.lines]
            old = [f"--{change.option}={change.submitted}" for change in header.changes if change.submitted]
            submitted = f" (submitted: {show(' '.join(old))})" if old else ""
        if not lines:
            return
        yield cut(f"For the next run{submitted}:", self.width)
        for line in lines[:MAX_OPTIONS]:
            yield from wrap(line, self.width)
        if len(lines) > MAX_OPTIONS:
            yield f"    … and {format_some(len(lines) - MAX_OPTIONS, 'more line')}"

    def _gauge(self, gauge: Gauge, curve: str) -> Iterator[str]:
        bar = " " * _BAR if gauge.ratio is None else self.bar(gauge, _BAR - 2)
        label = pad(gauge.label, _LABEL)
        if self.width < _WIDE:
            yield f"{label}  {bar}" if gauge.ratio is not None else cut(f"{label}  {gauge.text}", self.width)
            if gauge.ratio is not None:
                yield cut(f"    {gauge.text}", self.width)
            return
        begin, room = f"{label}  {bar}  {pad(curve, _CURVE)}  ", self.width - _LABEL - _BAR - _CURVE - 6
        if not curve and gauge.ratio is None:
            begin, room = f"{label}  ", self.width - _LABEL - 2
        for index, line in enumerate(wrap(gauge.text, room)[:2]):
            yield f"{begin}{line}" if not index else " " * (self.width - room) + line


def _draw(charts: dict[str, Chart], names: Sequence[str]) -> str:
    """Draw the mean of all lines of some charts; blanks where nothing was measured."""
    found = [charts[name] for name in names if name in charts]
    lines = [line for chart in found if chart.times == found[0].times for line in chart.lines]
    # Of many nodes, a chart has the lowest, the median and the highest.
    median = [line for line in lines if line.label.startswith("median of ")]
    columns = zip(*(line.values for line in median or lines), strict=True)
    return draw_sparkline([mean_known(column) for column in columns], _CURVE) if lines else ""


def _describe_gpu_work(report: JobReport) -> str:
    """List what busy GPUs did, where they count it."""
    work = report.summary.gpu.work
    shares = (("SM", work.sm_ratio), ("tensor cores", work.tensor_ratio), ("memory bandwidth", work.dram_ratio))
    return ", ".join(f"{name} {format_ratio(ratio)}" for name, ratio in shares if ratio is not None)


def _describe_size(report: JobReport) -> str:
    record = report.record
    names = f" ({record.nodes[0]})" if len(record.nodes) == 1 else ""
    size = [
        f"{format_some(record.node_count, 'node')}{names}" if record.node_count else "",
        format_some(record.cpus, "core") if record.cpus else "",
        format_bytes(record.memory_bytes) if record.memory_bytes is not None else "",
        format_some(record.gpus, "GPU") if record.gpus else "",
    ]
    who = ", ".join(filter(None, (record.user, record.account)))
    return "; ".join(filter(None, (who, record.partition, ", ".join(filter(None, size)))))


def _describe_run(report: JobReport, zone: tzinfo | None) -> str:
    record = report.record
    limit = f" of {format_seconds(record.time_limit_seconds)}" if record.time_limit_seconds is not None else ""
    if record.start_seconds is None:
        limit_text = f", time limit {format_seconds(record.time_limit_seconds)}" if limit else ""
        return f"Submitted {format_time(record.submit_seconds, zone)}{limit_text}"
    waited = f"; waited {format_seconds(record.wait_seconds)}"
    ran = format_seconds(report.summary.run_seconds)
    if record.end_seconds is None:
        share = report.summary.time.ratio
        used = f" ({format_ratio(share)})" if share is not None else ""
        return f"Running for {ran}{limit}{used}{waited}"
    return f"Ran {ran}{limit}, ended {format_time(record.end_seconds, zone)}{waited}"
