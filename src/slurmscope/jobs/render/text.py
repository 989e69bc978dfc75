# SPDX-License-Identifier: Apache-2.0
"""Render a job report for a terminal, or for a mail in plain text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from slurmscope.jobs.curves import peak
from slurmscope.jobs.failure import TITLE as FAILURE
from slurmscope.jobs.failure import explain_failure
from slurmscope.jobs.rating import Rating
from slurmscope.jobs.render import contents, verdict
from slurmscope.jobs.render.contents import Gauge
from slurmscope.jobs.render.energy import energy_rows
from slurmscope.jobs.render.formatting import LabelledText, format_time, show
from slurmscope.jobs.render.resubmission import ResubmissionText, describe_resubmission
from slurmscope.jobs.render.tables import SourceSection, make_node_table, source_sections
from slurmscope.jobs.render.verdict import Verdict
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Finding, Severity

if TYPE_CHECKING:
    from slurmscope.jobs.pending.blockers import PendingExplanation


def measure(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_char_columns, text))


def cut(text: str, columns: int) -> str:
    """Shorten a text to this many columns, with an ellipsis where it was cut."""
    if measure(text) <= columns:
        return text
    return _head(text, columns - 1) + "…" if columns > 0 else ""


def pad(text: str, columns: int, *, is_right: bool = False) -> str:
    """Pad or cut a text to exactly this many columns."""
    text = cut(text, columns)
    blanks = " " * (columns - measure(text))
    return blanks + text if is_right else text + blanks


def wrap(text: str, columns: int) -> list[str]:
    """Break a text at blanks, and within words that are longer than a line."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if measure(joined) <= columns:
            lines[-1] = joined
        elif lines[-1]:
            lines += _pieces(word, columns)
        else:
            lines[-1:] = _pieces(word, columns)
    return lines


def lay_table(head: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Lay out a table; its last columns are left out where the terminal is too narrow for them.

    The first column is left-aligned and cut where it is long, the others are right-aligned.
    """
    widths = [max(measure(row[index]) for row in (head, *rows)) for index in range(len(head))]
    widths[0] = min(widths[0], max(8, columns // 3))
    while len(widths) > 1 and sum(widths) + 2 * (len(widths) - 1) > columns:
        widths.pop()
    return [
        "  ".join(pad(row[index], width, is_right=index > 0) for index, width in enumerate(widths)).rstrip()
        for row in (head, *rows)
    ]


def _pieces(word: str, columns: int) -> list[str]:
    pieces = list[str]()
    while word:
        # A character that is wider than the whole line still has to go somewhere.
        pieces.append(_head(word, columns) or word[0])
        word = word[len(pieces[-1]) :]
    return pieces


def _head(text: str, columns: int) -> str:
    taken = 0
    for index, char in enumerate(text):
        taken += _char_columns(char)
        if taken > columns:
            return text[:index]
    return text


def _char_columns(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-:=+*#"
"""For terminals that have no block characters."""


def draw_sparkline(values: Sequence[float | None], columns: int, marks: str = BLOCKS) -> str:
    """Draw values from 0 to the highest in at most this many columns; a gap is a blank.

    Where values share a column, their highest counts: a short peak stays visible.
    """
    peaks = [peak(values[first:last]) for first, last in _slices(len(values), columns)]
    top = max((peak for peak in peaks if peak is not None), default=0.0)
    return "".join(" " if peak is None else marks[_level(peak, top, len(marks))] for peak in peaks)


def _slices(count: int, columns: int) -> list[tuple[int, int]]:
    width = min(count, max(1, columns))
    return [(count * index // width, count * (index + 1) // width) for index in range(width)]


def _level(value: float, top: float, levels: int) -> int:
    return 0 if top <= 0 else min(levels - 1, int(value / top * levels))


MIN_WIDTH = 40
MAX_WIDTH = 200

_RESET = "\x1b[0m"
_BOLD = "\x1b[1m"
_COLORS = {Severity.CRITICAL: "\x1b[1;31m", Severity.WARNING: "\x1b[33m", Severity.INFO: "\x1b[36m"}
_RATED = {
    Rating.CRITICAL: _COLORS[Severity.CRITICAL],
    Rating.WARNING: _COLORS[Severity.WARNING],
    Rating.FINE: "\x1b[32m",
    Rating.UNRATED: "",
}


def render_text(
    report: JobReport,
    *,
    width: int = 80,
    use_color: bool = False,
    url: str = "",
    zone: tzinfo | None = UTC,
    known: PendingExplanation | None = None,
) -> str:
    """Return the report in lines of at most ``width`` columns, with no escape codes but our own.

    Findings come first. Times are in ``zone``; None is the time zone of this host. ``known`` is what the queue says
    about a pending job.
    """
    page = TextPage(width, use_color=use_color)
    if why := contents.pending_rows(report, known, zone):
        pending = [
            *page.top(contents.title(report)),
            *page.heading("Why it is pending"),
            *page.rows(why),
            *page.heading("Job"),
            *page.rows(contents.facts(report, zone)),
            *page.bottom(report, url, zone),
        ]
        return "\n".join(pending) + "\n"
    lines = [
        *page.top(contents.title(report)),
        *page.outcome(verdict.make_verdict(report, zone), has_failed=explain_failure(report) is not None),
        *page.resubmission(describe_resubmission(report)),
        *page.heading("Use of requested resources"),
        *(line for gauge in contents.gauges(report) for line in page.gauge(gauge)),
        *page.heading("Job"),
        *page.rows(contents.facts(report, zone)),
        *page.heading("Memory"),
        *page.rows(contents.memory_rows(report)),
        *page.sentence(contents.memory_note(report)),
        *page.heading("CPU"),
        *page.rows(contents.cpu_rows(report)),
        *page.heading("Files"),
        *page.rows(contents.io_rows(report)),
        *page.energy(report),
        *page.nodes(report),
        *(line for section in source_sections(report) for line in page.source(section)),
        *page.missing(report),
        *page.bottom(report, url, zone),
    ]
    return "\n".join(lines) + "\n"


class TextPage:
    """Lay out lines for a page width, with or without colours."""

    def __init__(self, width: int, *, use_color: bool) -> None:
        self.width = max(MIN_WIDTH, min(width, MAX_WIDTH))
        self._use_color = use_color

    def top(self, title: str) -> Iterator[str]:
        yield self._paint("=" * self.width, _BOLD)
        yield self._paint(cut(title, self.width), _BOLD)
        yield self._paint("=" * self.width, _BOLD)

    def heading(self, text: str) -> Iterator[str]:
        yield ""
        yield self._paint(f"{text} ".ljust(self.width, "-"), _BOLD)

    def rows(self, rows: tuple[LabelledText, ...]) -> Iterator[str]:
        label_width = min(max(measure(row.label) for row in rows), self.width // 2 - 2)
        for row in rows:
            for index, line in enumerate(wrap(row.text, self.width - label_width - 4)):
                yield f"  {pad('' if index else row.label, label_width)}  {line}"

    def gauge(self, gauge: Gauge) -> Iterator[str]:
        label = f"  {pad(gauge.label, 10)}  "
        if gauge.ratio is None:
            yield from self._under(label, gauge.text)
            return
        # On a wide terminal the text is right of the bar, on a narrow one below it.
        bar_width = 36 if self.width >= 72 else self.width - len(label) - 2
        line = f"{label}{self.bar(gauge, bar_width)}"
        if len(label) + bar_width + 4 + measure(gauge.text) <= self.width:
            yield f"{line}  {gauge.text}"
        else:
            yield line
            yield from self._under(" " * len(label), gauge.text)

    def bar(self, gauge: Gauge, columns: int) -> str:
        """Draw a share with its percentage, in brackets."""
        filled = round(max(0.0, min(gauge.ratio or 0.0, 1.0)) * columns)
        percent = gauge.percent
        bar = "|" * filled + " " * (columns - filled)
        return f"[{self._paint(bar[: columns - len(percent) - 1] + ' ' + percent, _RATED[gauge.rating])}]"

    def bold(self, text: str) -> str:
        return self._paint(text, _BOLD)

    def paint_severity(self, text: str, severity: Severity) -> str:
        return self._paint(text, _COLORS[severity])

    def findings(self, found: Sequence[Finding], no_findings: str) -> Iterator[str]:
        if not found:
            yield from self.sentence(no_findings)
        for index, finding in enumerate(found):
            if index:
                yield ""
            yield from self._finding(finding)

    def outcome(self, said: Verdict, *, has_failed: bool) -> Iterator[str]:
        """Yield what went wrong and the worst finding, each sentence once, then the other findings."""
        yield from self.heading(FAILURE if has_failed else "Findings")
        yield from self._titled(said.severity, said.title)
        for sentence in said.sentences:
            yield from self._under("    ", sentence)
        if said.rows:
            yield from self.rows(said.rows)
        yield from self._more(said.suggestion, said.consequences)
        if said.others:
            yield from self.heading("Findings") if has_failed else [""]
            yield from self.findings(said.others, "")

    def resubmission(self, header: ResubmissionText | None) -> Iterator[str]:
        if header is None:
            return
        yield from self.heading(header.title)
        yield from (f"    {line}" for line in header.diff)
        for sentence in header.sentences:
            yield from self.sentence(sentence)

    def sentence(self, text: str) -> Iterator[str]:
        if text:
            yield from self._under("  ", text)

    def energy(self, report: JobReport) -> Iterator[str]:
        if rows := energy_rows(report):
            yield from self.heading("Energy")
            yield from self.rows(rows)

    def nodes(self, report: JobReport) -> Iterator[str]:
        table = make_node_table(report)
        if table.rows:
            yield from self.heading("Nodes")
            yield from (f"  {line}" for line in lay_table(table.head, table.rows, self.width - 2))
        yield from self.sentence(table.note)

    def source(self, section: SourceSection) -> Iterator[str]:
        yield from self.heading(section.title)
        yield from (f"  {line}" for line in lay_table(section.table.head, section.table.rows, self.width - 2))
        for sentence in (section.table.note, *section.sentences):
            yield from self.sentence(sentence)

    def missing(self, report: JobReport) -> Iterator[str]:
        sentences = contents.missing(report)
        if sentences:
            yield from self.heading("Missing data")
        for sentence in sentences:
            yield from self._under("  - ", sentence)

    def bottom(self, report: JobReport, url: str, zone: tzinfo | None = UTC) -> Iterator[str]:
        yield ""
        yield from self.sentence(f"Made by slurmscope at {format_time(report.made_seconds, zone)}.")
        if url:
            yield from self._under("  ", f"Charts and more: {show(url)}")

    def _finding(self, finding: Finding) -> Iterator[str]:
        yield from self._titled(finding.severity, finding.title)
        yield from self._under("    ", finding.explanation)
        yield from self._under("    ", finding.advice)
        yield from self._more(finding.suggestion, finding.consequences)

    def _titled(self, severity: Severity | None, title: str) -> Iterator[str]:
        if severity is None:
            yield from self.sentence(title)
            return
        for index, line in enumerate(wrap(f"{severity.value.upper()}: {title}", self.width - 2)):
            yield f"  {self._paint(line, _COLORS[severity])}" if not index else f"  {line}"

    def _more(self, suggestion: str, consequences: Sequence[Finding]) -> Iterator[str]:
        if suggestion:
            yield from self._under("        ", suggestion)
        if consequences:
            yield from self._under("    ", contents.CONSEQUENCES)
        for other in consequences:
            yield from self._under("    - ", f"{other.title}. {other.explanation}")

    def _under(self, prefix: str, text: str) -> Iterator[str]:
        """Wrap a text after a prefix, and indent further lines."""
        for index, line in enumerate(wrap(text, self.width - len(prefix))):
            yield f"{' ' * len(prefix) if index else prefix}{line}"

    def _paint(self, text: str, code: str) -> str:
        return f"{code}{text}{_RESET}" if self._use_color and code else text
