# SPDX-License-Identifier: Apache-2.0
"""Find the samples of some metrics in a page of text, fast where a line's series was met before.

A node agent's page is the same from scrape to scrape but for its numbers. So a line is cut at its last blank: what
stands before it names a series, and a text that was parsed before is not parsed again. Only lines that are new go
through the strict parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from slurmscope.metrics.parse import MalformedPage, ParsedSample, parse
from slurmscope.metrics.write import Format

T = TypeVar("T")
PAGE_LIMIT_CHARACTERS = 256 * 1024 * 1024

_BEGIN = re.compile(r"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)")
_NUMBER = re.compile(r"[^\s{}\"]+")


def find_samples(
    page: str, names: Collection[str], known: Callable[[str], T | None], meet: Callable[[str, ParsedSample], T | None]
) -> Iterator[tuple[T, float]]:
    """Yield what each wanted line is about, with its number.

    ``known`` says what a series' text stands for; ``meet`` is given a text that is not known, or an empty one for a
    line that must be read each time. A page that breaks the format raises :class:`MalformedPage`, possibly after some
    samples were yielded.
    """
    if len(page) > PAGE_LIMIT_CHARACTERS:
        raise MalformedPage(1, f"the page is longer than {PAGE_LIMIT_CHARACTERS} characters")
    if page and not page.endswith("\n"):
        raise MalformedPage(page.count("\n") + 1, "the last line is incomplete: the page is truncated")
    unknown: list[tuple[int, str]] = []
    for index, line in enumerate(page.split("\n")):
        series, _, number = line.rpartition(" ")
        if (found := known(series)) is not None:
            yield found, _parse_number(index, number)
        elif (begin := _BEGIN.match(line)) is not None and begin[1] in names:
            unknown.append((index, line))
    for (_, line), sample in zip(unknown, _parse_samples(unknown), strict=True):
        if (found := meet(_series_text(line, sample), sample)) is not None:
            yield found, sample.value


def _series_text(line: str, sample: ParsedSample) -> str:
    """Return what stands before the last blank if that is the whole series, and behind it the number."""
    series, _, number = line.rpartition(" ")
    return series if sample.timestamp_seconds is None and _NUMBER.fullmatch(number) else ""


def _parse_number(index: int, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise MalformedPage(index + 1, f"{text[:60]!a} is not a number") from error


def _parse_samples(lines: Sequence[tuple[int, str]]) -> list[ParsedSample]:
    """Read lines by all rules of the format, together: that is cheaper than one by one."""
    try:
        families = parse("".join(f"{line}\n" for _, line in lines), Format.TEXT)
        return [sample for family in families for sample in family.samples]
    except MalformedPage as error:
        raise MalformedPage(lines[error.line - 1][0] + 1, error.problem) from error
