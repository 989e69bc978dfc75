# SPDX-License-Identifier: Apache-2.0
"""Parse pages in Prometheus text format 0.0.4 and in OpenMetrics 1.0.

Pages come from other programs (node agents), so the parser is strict and bounded: one problem rejects the page with its
line number, time grows linearly with the size of the page, and lines and samples are limited. It checks the grammar and
that each family is one group. It does not check for duplicate series or the sums of histogram buckets; exemplars are
skipped.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isinf
from typing import NamedTuple

from slurmscope.core.errors import MalformedAnswer
from slurmscope.metrics.write import Format

_PIECE = 1024 * 1024
_EOF = "# EOF"

# Long repetitions are possessive: no backtracking, so no line can make a match slow. Repetitions of pairs are not:
# until Python 3.11.4 a possessive one that fails halfway skips what it had matched (gh-106052). A pair can be parsed in
# one way only, so backtracking over pairs takes one step each.
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_LABEL = r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*+"
_QUOTED = r'"(?:[^"\\]++|\\.)*+"'
_FINITE = r"[+-]?(?:\d{1,400}+(?:\.\d{0,400}+)?|\.\d{1,400}+)(?:[eE][+-]?\d{1,4}+)?"
_NUMBER = rf"(?:{_FINITE}|[+-]?(?i:inf(?:inity)?)|(?i:nan))"
_BLANK = r"[ \t]*+"
_FLAGS = re.ASCII | re.DOTALL

_TEXT_PAIR = rf"{_BLANK}{_LABEL}{_BLANK}={_BLANK}{_QUOTED}{_BLANK}"
_TEXT_LABELS = rf"(?:{_TEXT_PAIR}(?:,{_TEXT_PAIR})*,?)?{_BLANK}"
_TEXT_SERIES = rf"{_BLANK}({_NAME})(?:{_BLANK}\{{({_TEXT_LABELS})\}}{_BLANK}|[ \t]++)"
_TEXT_SAMPLE = re.compile(rf"{_TEXT_SERIES}({_NUMBER})(?:[ \t]++(-?\d{{1,19}}+))?{_BLANK}", _FLAGS)
_TEXT_METADATA = re.compile(rf"{_BLANK}#[ \t]++(HELP|TYPE)[ \t]++({_NAME})(?:[ \t]++(.*+))?", _FLAGS)
_TEXT_KEYWORD = re.compile(rf"{_BLANK}#[ \t]++(?:HELP|TYPE)[ \t]", _FLAGS)

_PAIR = rf"{_LABEL}={_QUOTED}"
_LABELS = rf"(?:{_PAIR}(?:,{_PAIR})*)?"
_EXEMPLAR = rf" # \{{{_LABELS}\}} {_NUMBER}(?: {_FINITE})?"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABELS})\}})? ({_NUMBER})(?: ({_FINITE}))?(?:{_EXEMPLAR})?", _FLAGS)
_METADATA = re.compile(rf"# (HELP|TYPE|UNIT) ({_NAME}) (.*+)", _FLAGS)

_EACH_PAIR = re.compile(rf'({_LABEL}){_BLANK}={_BLANK}"((?:[^"\\]++|\\.)*+)"', _FLAGS)
_ESCAPE = re.compile(r'\\([\\n"])')
_TEXT_HELP_ESCAPE = re.compile(r"\\([\\n])")


class Type(enum.Enum):
    """The type of a parsed family; the text format calls UNKNOWN untyped."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    INFO = "info"
    STATESET = "stateset"
    GAUGEHISTOGRAM = "gaugehistogram"
    UNKNOWN = "unknown"


_TEXT_TYPES = {t.value: t for t in (Type.GAUGE, Type.COUNTER, Type.HISTOGRAM, Type.SUMMARY)} | {"untyped": Type.UNKNOWN}
_TYPES = {t.value: t for t in Type}
_TEXT_SUFFIXES = {Type.HISTOGRAM: ("_bucket", "_count", "_sum"), Type.SUMMARY: ("", "_count", "_sum")}
_SUFFIXES = {
    Type.COUNTER: ("_total", "_created"),
    Type.HISTOGRAM: ("_bucket", "_count", "_sum", "_created"),
    Type.SUMMARY: ("", "_count", "_sum", "_created"),
    Type.INFO: ("_info",),
    Type.GAUGEHISTOGRAM: ("_bucket", "_gcount", "_gsum"),
}


class ParsedSample(NamedTuple):
    """One sample; a tuple, because a page has a hundred thousand of them."""

    name: str
    labels: dict[str, str]
    value: float
    timestamp_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFamily:
    """One family under its name on the page: in OpenMetrics without ``_total`` for a counter."""

    name: str
    type: Type
    help: str
    unit: str
    samples: tuple[ParsedSample, ...]


class MalformedPage(MalformedAnswer):
    """A metrics page violates its format in a given line."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line} of the metrics page: {problem}")
        self.line = line
        self.problem = problem


def parse(
    text: str | Iterable[str], format: Format, *, line_limit: int = 64 * 1024, sample_limit: int = 1_000_000
) -> Iterator[ParsedFamily]:
    """Yield the families of a page, given whole or in pieces cut anywhere.

    Raises :class:`MalformedPage`, possibly after some families were yielded: a page is valid only if the iterator
    ends. ``line_limit`` counts characters; neither samples nor families may be more than ``sample_limit``.
    """
    page = _Page(format, sample_limit)
    pieces = (text[i : i + _PIECE] for i in range(0, len(text), _PIECE)) if isinstance(text, str) else text
    for line in _lines(pieces, line_limit, "" if format is Format.TEXT else _EOF):
        if (family := page.take(line)) is not None:
            yield family
    if (family := page.close()) is not None:
        yield family


def _lines(pieces: Iterable[str], limit: int, last: str) -> Iterator[str]:
    """Yield lines without their newline; nothing but a newline ends one, except ``last``."""
    number, size = 1, 0
    rest: list[str] = []
    for piece in pieces:
        for index, text in enumerate(piece.split("\n")):
            if index:
                yield "".join(rest)
                number, size, rest = number + 1, 0, []
            size += len(text)
            if size > limit:
                raise MalformedPage(number, f"it is longer than {limit} characters")
            if text:
                rest.append(text)
    if size and "".join(rest) == last:
        yield last
    elif size:
        # A truncated page must not pass for a short one, nor half a number for a number.
        raise MalformedPage(number, "it has no newline, so the page is truncated")


class _Page:
    """Parse a page line by line and collect the samples of the current family."""

    def __init__(self, format: Format, sample_limit: int) -> None:
        self._is_text = format is Format.TEXT
        self._sample_limit = sample_limit
        self._sample_count = 0
        self._line = 0
        self._is_ended = False
        self._seen: set[str] = set()
        self._name = ""
        self._metadata: dict[str, str] = {}
        self._samples: list[ParsedSample] = []
        self._sample_names: frozenset[str] = frozenset()

    def take(self, line: str) -> ParsedFamily | None:
        """Parse one line; return the family that it ends, if any."""
        self._line += 1
        if self._is_text:
            start = line.lstrip(" \t")
            if start.startswith("#"):
                return self._take_text_comment(line)
            return self._take_sample(line) if start else None
        if self._is_ended:
            raise self._malformed("something follows # EOF")
        return self._take_comment(line) if line.startswith("#") else self._take_sample(line)

    def close(self) -> ParsedFamily | None:
        if not self._is_text and not self._is_ended:
            raise self._malformed("# EOF is missing, so the page is truncated")
        return self._finished()

    def _malformed(self, problem: str) -> MalformedPage:
        return MalformedPage(self._line, problem)

    def _take_text_comment(self, line: str) -> ParsedFamily | None:
        if match := _TEXT_METADATA.fullmatch(line):
            return self._take_metadata(match[1], match[2], match[3] or "")
        if _TEXT_KEYWORD.match(line):
            raise self._malformed("HELP or TYPE without a valid metric name")
        return None

    def _take_comment(self, line: str) -> ParsedFamily | None:
        if line == _EOF:
            self._is_ended = True
            return None
        if match := _METADATA.fullmatch(line):
            return self._take_metadata(match[1], match[2], match[3])
        raise self._malformed("a comment that is neither HELP, TYPE, UNIT nor EOF")

    def _take_metadata(self, keyword: str, name: str, text: str) -> ParsedFamily | None:
        finished = self._begin(name) if name != self._name else None
        if self._samples or keyword in self._metadata:
            raise self._malformed(f"{keyword} of {name} is repeated or comes too late")
        if keyword == "TYPE":
            text = text.strip(" \t") if self._is_text else text
            known, suffixes = (_TEXT_TYPES, _TEXT_SUFFIXES) if self._is_text else (_TYPES, _SUFFIXES)
            if text not in known:
                raise self._malformed(f"the type of {name} is unknown")
            self._sample_names = frozenset(name + suffix for suffix in suffixes.get(known[text], ("",)))
        elif keyword == "UNIT" and text and not name.endswith(f"_{text}"):
            raise self._malformed(f"{name} does not end in its unit")
        self._metadata[keyword] = text
        return finished

    def _take_sample(self, line: str) -> ParsedFamily | None:
        match = (_TEXT_SAMPLE if self._is_text else _SAMPLE).fullmatch(line)
        if match is None:
            raise self._malformed(f"it is not a sample: {line[:60]!a}")
        name, labels, number, timestamp = match.groups()
        value = float(number)
        if isinf(value) and number[-1] not in "fFyY":
            raise self._malformed("the number is too large")
        finished = self._begin(name) if name not in self._sample_names else None
        self._sample_count += 1
        if self._sample_count > self._sample_limit:
            raise self._malformed(f"more than {self._sample_limit} samples")
        seconds = float(timestamp) / (1000 if self._is_text else 1) if timestamp else None
        self._samples.append(ParsedSample(name, self._labels(labels) if labels else {}, value, seconds))
        return finished

    def _labels(self, text: str) -> dict[str, str]:
        pairs = _EACH_PAIR.findall(text)
        labels = dict(pairs)
        if len(labels) != len(pairs):
            raise self._malformed("a label is given twice")
        return {name: _unescaped(value, _ESCAPE) for name, value in pairs} if "\\" in text else labels

    def _begin(self, name: str) -> ParsedFamily | None:
        """End the previous family and begin one; until TYPE says otherwise its samples have its name."""
        finished = self._finished()
        if name in self._seen:
            raise self._malformed(f"{name} appears in two places")
        if len(self._seen) >= self._sample_limit:
            raise self._malformed(f"more than {self._sample_limit} families")
        self._seen.add(name)
        self._name, self._metadata, self._samples = name, {}, []
        self._sample_names = frozenset((name,))
        return finished

    def _finished(self) -> ParsedFamily | None:
        if not self._name:
            return None
        return ParsedFamily(
            name=self._name,
            type=(_TYPES | _TEXT_TYPES)[self._metadata.get("TYPE", "unknown")],
            help=_unescaped(self._metadata.get("HELP", ""), _TEXT_HELP_ESCAPE if self._is_text else _ESCAPE),
            unit=self._metadata.get("UNIT", ""),
            samples=tuple(self._samples),
        )


def _unescaped(text: str, escape: re.Pattern[str]) -> str:
    return escape.sub(lambda match: "\n" if match[1] == "n" else match[1], text)
