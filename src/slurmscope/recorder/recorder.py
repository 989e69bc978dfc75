# SPDX-License-Identifier: Apache-2.0
"""Record samples of jobs on one machine that has no Prometheus.

Recorded samples survive a crash of the process at once, and a loss of power as soon as the first samples arrive
``DURABLE_SECONDS`` later, or ``settle`` is called. One thread records; others read through ``series``.

A node agent's page is the same from scrape to scrape but for its numbers. So a line is cut at its last blank: what
stands before it names a series, and a text that was parsed before is not parsed again. Only lines that are new go
through the strict parser.
"""

from __future__ import annotations

import re
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Self, TypeVar

from slurmscope.jobs.series import NODE_LABEL
from slurmscope.metrics.family import Family, Histogram
from slurmscope.metrics.parse import MalformedPage, ParsedSample, parse
from slurmscope.metrics.write import Format
from slurmscope.recorder.file import RecorderFile
from slurmscope.recorder.series import RecorderSeries
from slurmscope.recorder.settings import PROFILE_METRICS, RECORDED_METRICS, TRACE_METRICS, RecorderSettings
from slurmscope.recorder.slabs import NO_JOB, Head, job_of, series_key

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


SERIES_LIMIT = 500_000
"""How many series are followed at once; further ones are left out and counted."""
NEW_SERIES_LIMIT = 50_000
"""Maximum number of new series of one source between two packings, so that no agent displaces others."""
TRACED_SERIES_LIMIT = 10_000
"""The same for traced processes, of which jobs may start any number: they displace no measurement of the agent."""
TRACED_JOB_SERIES_LIMIT = 2_000
"""The same for the traced processes of one job."""
PROFILED_SERIES_LIMIT = 20_000
PROFILED_JOB_SERIES_LIMIT = 10_000
"""The same for the tasks of profiled steps, of which jobs may start any number, too; each has up to six series."""
LABELS_LIMIT_CHARACTERS = 1024
"""How long the labels of a series may be together; a series with longer ones is left out and counted."""

SampleLabels = Mapping[str, str] | tuple[tuple[str, str], ...]
RecordedSample = tuple[str, SampleLabels, float]


class Recorder:
    """Record samples of the configured metrics, and delete them after the retention.

    ``dropped`` counts what was left out: ``late``, ``not_finite``, ``too_many``, ``too_long`` and ``foreign``.
    A failure is an ArchiveError that loses the samples of one moment; recording continues with the next.
    """

    def __init__(
        self,
        settings: RecorderSettings,
        *,
        names: Collection[str] = RECORDED_METRICS,
        series_limit: int = SERIES_LIMIT,
        new_series_limit: int = NEW_SERIES_LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the file, lock it against other recorders, and load the newest samples."""
        self.recorded = 0
        self.dropped: Counter[str] = Counter()
        self._settings = settings
        self._names = frozenset(names)
        self._series_limit = series_limit
        self._new_series_limit = new_series_limit
        self._begun: Counter[Hashable] = Counter()
        self._clock = clock
        self._mutex = threading.Lock()
        self._store = RecorderFile(settings, clock)
        self._heads = self._store.heads

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def series(self) -> RecorderSeries:
        """Return the reader of the samples; it is safe to use from any thread."""
        return RecorderSeries(
            self._settings.file, interval_seconds=self._settings.interval, heads=self._heads, clock=self._clock
        )

    def record(self, at_seconds: float, samples: Iterable[RecordedSample]) -> None:
        with self._mutex:
            self._take(at_seconds, self._of_samples(samples))

    def record_families(self, at_seconds: float, families: Iterable[Family]) -> None:
        """Record the families of our own collectors; histograms are skipped."""
        with self._mutex:
            self._take(at_seconds, self._of_families(families))

    def record_page(self, at_seconds: float, page: str, *, nodes: tuple[str, ...], source: str = "") -> int:
        """Record a page in text format from a node agent, or nothing of it when it is malformed.

        Only series of jobs on ``nodes`` are recorded; return how many samples had another node or no job. The first of
        ``nodes`` fills a node label that is empty. ``source`` names who served it, whatever the page says; without it
        that node does.
        """
        known = self._heads.find
        with self._mutex:
            before = self.dropped["foreign"]
            meet = partial(self._meet, nodes, source or nodes[0])
            found = find_samples(page, self._names, lambda text: known((nodes, text)), meet)
            self._take(at_seconds, found)
            return self.dropped["foreign"] - before

    def settle(self) -> None:
        """Bring everything to the disk now; worth its cost once a round, not once a page."""
        with self._mutex:
            self._store.settle()

    def close(self) -> None:
        """Pack everything and let go of the file."""
        with self._mutex:
            self._store.close()

    def _of_samples(self, samples: Iterable[RecordedSample]) -> Iterator[tuple[Head, float]]:
        find, names = self._heads.find, self._names
        for name, labels, value in samples:
            if name not in names:
                continue
            pairs = labels if isinstance(labels, tuple) else tuple(labels.items())
            key = ("sample", name, pairs)
            if (head := find(key) or self._begin(key, name, dict(pairs))) is not None:
                yield head, value

    def _of_families(self, families: Iterable[Family]) -> Iterator[tuple[Head, float]]:
        find = self._heads.find
        for family in families:
            metric = family.metric
            if metric.name not in self._names:
                continue
            items = family.samples.items() if isinstance(family.samples, Mapping) else family.samples
            for values, value in items:
                if isinstance(value, Histogram):
                    continue
                key = ("family", metric.name, values)
                head = find(key) or self._begin_own(key, metric.name, dict(zip(metric.labels, values, strict=True)))
                if head is not None:
                    yield head, value

    def _meet(self, nodes: tuple[str, ...], source: str, text: str, sample: ParsedSample) -> Head | None:
        labels = sample.labels
        if (labels.get(NODE_LABEL) or nodes[0]) not in nodes or job_of(labels) == NO_JOB:
            self.dropped["foreign"] += 1
            return None
        limits = {source: self._new_series_limit, **_kind_limits(source, sample.name, labels)}
        return self._begin_within(limits, (nodes, text) if text else None, sample.name, labels, nodes[0])

    def _begin_own(self, key: Hashable, name: str, labels: dict[str, str]) -> Head | None:
        return self._begin_within(_kind_limits("", name, labels), key, name, labels)

    def _begin_within(
        self, limits: Mapping[Hashable, int], key: Hashable, name: str, labels: dict[str, str], node: str = ""
    ) -> Head | None:
        """Begin a series unless too many were begun of any of its kinds."""
        if any(self._begun[kind] >= limit for kind, limit in limits.items()):
            self.dropped["too_many"] += 1
            return None
        count = len(self._heads)
        head = self._begin(key, name, labels, node)
        for kind in limits:
            self._begun[kind] += len(self._heads) - count
        return head

    def _begin(self, key: Hashable, name: str, labels: dict[str, str], node: str = "") -> Head | None:
        """Return the series with these labels, and let it be found by ``key``, if there is one, from now on."""
        if node and not labels.get(NODE_LABEL):
            labels[NODE_LABEL] = node
        labels = {label: labels[label] for label in sorted(labels) if labels[label]}
        head = self._heads.find(series_key(name, labels))
        if head is None:
            if len(self._heads) >= self._series_limit:
                self.dropped["too_many"] += 1
                return None
            if sum(len(label) + len(value) for label, value in labels.items()) > LABELS_LIMIT_CHARACTERS:
                self.dropped["too_long"] += 1
                return None
            head = self._store.begin(name, labels)
        if key is not None:
            self._heads.name(head, key)
        return head

    def _take(self, at_seconds: float, found: Iterable[tuple[Head, float]]) -> None:
        # Before series are looked up: some of them may be dropped with the period that is over.
        self._store.prepare(at_seconds)
        if not self._heads.samples:
            self._begun.clear()
        ids, values = array("q"), array("d")
        for head, value in found:
            if -inf < value < inf:
                ids.append(head.id)
                values.append(value)
            else:
                self.dropped["not_finite"] += 1
        late = self._store.write(at_seconds, ids, values)
        self.dropped["late"] += late
        self.recorded += len(ids) - late


def _kind_limits(source: str, name: str, labels: Mapping[str, str]) -> dict[Hashable, int]:
    """Return how many new series of traced processes or profiled tasks a source and a job may have."""
    if name in TRACE_METRICS:
        return {(source, "traced"): TRACED_SERIES_LIMIT, (source, job_of(labels)): TRACED_JOB_SERIES_LIMIT}
    if name in PROFILE_METRICS:
        job = (source, "profiled", job_of(labels))
        return {(source, "profiled"): PROFILED_SERIES_LIMIT, job: PROFILED_JOB_SERIES_LIMIT}
    return {}
