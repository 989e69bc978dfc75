# SPDX-License-Identifier: Apache-2.0
"""Split families into single samples, as a scrape of the page finds them.

The writers stream: a page of a million samples is never in memory as a whole. They rely on
:mod:`slurmscope.metrics.guard` for valid samples; names and label names are checked when declared.

Three things make them fast, measured in ``bench/exposition.py``: many samples are joined at once; characters to escape
are searched in the joined text, not value by value; and the label text of a row is kept for the next family, which
often has the same rows (one job, many metrics).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice, repeat
from math import inf, isfinite, isnan
from typing import cast

from slurmscope.metrics.family import Family, Histogram, Labels, Metric, MetricKind, Samples, Value

BLOCK_BYTES = 64 * 1024
"""Minimum size of a block, except the last one."""

_ROWS_PER_PART = 256
_KEPT_ROWS = 25_000
"""Rows of a family whose label texts are kept for the next one; about 3 MB."""

_TEXT_TYPES = {MetricKind.INFO: "gauge", MetricKind.UNKNOWN: "untyped"}


class Format(enum.Enum):
    """A text format; the value is its content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

    @property
    def content_type(self) -> str:
        return self.value


def write(families: Iterable[Family], format: Format) -> Iterator[bytes]:
    """Write families as blocks of about 64 KiB; families without samples are left out.

    The results of several calls may follow each other on one page; :func:`end` closes the page.
    """
    kept = _LabelTexts()
    pending: list[bytes] = []
    size = 0
    for part in chain.from_iterable(_parts(family, format, kept) for family in families):
        # One invalid character must never break the page; the guard does not check help texts.
        pending.append(part.encode("utf-8", "replace"))
        size += len(pending[-1])
        if size >= BLOCK_BYTES:
            yield b"".join(pending)
            pending.clear()
            size = 0
    if pending:
        yield b"".join(pending)


def end(format: Format) -> bytes:
    return b"# EOF\n" if format is Format.OPENMETRICS else b""


def _parts(family: Family, format: Format, kept: _LabelTexts) -> Iterator[str]:
    samples = _mapping(family.samples)
    if not samples:
        return
    yield _header(family.metric, format)
    if family.metric.kind is MetricKind.HISTOGRAM:
        yield from _histogram_parts(family.metric, cast("Mapping[Labels, Histogram]", samples))
    else:
        yield from _plain_parts(family.metric, cast("Mapping[Labels, float]", samples), kept)


def _mapping(samples: Samples) -> Mapping[Labels, Value]:
    return samples if isinstance(samples, Mapping) else dict(samples)


def _header(metric: Metric, format: Format) -> str:
    text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    if format is Format.TEXT:
        kind = _TEXT_TYPES.get(metric.kind, metric.kind.value)
        return f"# HELP {metric.name} {text}\n# TYPE {metric.name} {kind}\n"
    name, kind = _openmetrics_family(metric)
    text = text.replace('"', '\\"')
    has_unit = metric.unit and name.endswith(f"_{metric.unit}")
    unit = f"# UNIT {name} {metric.unit}\n" if has_unit else ""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{unit}"


def _openmetrics_family(metric: Metric) -> tuple[str, str]:
    """Return the family's name and type: OpenMetrics has the suffix on the samples only.

    A counter that an older tool named without ``_total`` is of unknown type in OpenMetrics.
    """
    if metric.kind is MetricKind.COUNTER:
        stem = metric.name.removesuffix("_total")
        return (metric.name, "unknown") if stem == metric.name else (stem, "counter")
    if metric.kind is MetricKind.INFO:
        stem = metric.name.removesuffix("_info")
        return (metric.name, "gauge") if stem == metric.name else (stem, "info")
    return metric.name, metric.kind.value


def _plain_parts(metric: Metric, samples: Mapping[Labels, float], kept: _LabelTexts) -> Iterator[str]:
    labels, values = iter(samples), iter(samples.values())
    for index in range(0, len(samples), _ROWS_PER_PART):
        texts = kept.texts(index, metric.labels, tuple(islice(labels, _ROWS_PER_PART)))
        numbers = tuple(islice(values, _ROWS_PER_PART))
        spelled = map(repr if all(map(isfinite, numbers)) else spell_number, numbers)
        yield "".join(chain.from_iterable(zip(repeat(metric.name), texts, spelled, repeat("\n"))))


class _LabelTexts:
    """Format label sets, and cache the texts until a family has other rows at the same position."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._kept: dict[int, tuple[tuple[Labels, ...], list[str]]] = {}

    def texts(self, position: int, names: tuple[str, ...], rows: tuple[Labels, ...]) -> list[str]:
        """Return the text between name and number for each row, such as ``{user="ada"} ``."""
        if names != self._names:
            self._names = names
            self._kept.clear()
        known, texts = self._kept.get(position, ((), []))
        if rows != known:
            texts = _label_texts(names, rows)
            if position < _KEPT_ROWS and sum(map(len, texts)) <= BLOCK_BYTES:
                self._kept[position] = (rows, texts)
        return texts


def _label_texts(names: tuple[str, ...], rows: Sequence[Labels]) -> list[str]:
    if not names:
        return [" "] * len(rows)
    openings = [f'{{{names[0]}="', *(f'",{name}="' for name in names[1:]), '"} ']
    texts = _interleaved(openings, rows)
    joined = "".join(texts)
    # Only our own quotes, no backslash and no newline: no value needs escaping.
    if joined.count('"') == 2 * len(names) * len(rows) and "\\" not in joined and "\n" not in joined:
        return texts
    return _interleaved(openings, list(map(_escaped_row, rows)))


def _interleaved(openings: list[str], rows: Sequence[Labels]) -> list[str]:
    """Put each row's values between the openings; unrolled by width, because this is the innermost loop."""
    match openings:
        case [o, z]:
            return [f"{o}{a}{z}" for (a,) in rows]
        case [o, p, z]:
            return [f"{o}{a}{p}{b}{z}" for a, b in rows]
        case [o, p, q, z]:
            return [f"{o}{a}{p}{b}{q}{c}{z}" for a, b, c in rows]
        case [o, p, q, r, z]:
            return [f"{o}{a}{p}{b}{q}{c}{r}{d}{z}" for a, b, c, d in rows]
        case [o, p, q, r, s, z]:
            return [f"{o}{a}{p}{b}{q}{c}{r}{d}{s}{e}{z}" for a, b, c, d, e in rows]
        case _:
            return ["".join(chain.from_iterable(zip(openings, (*row, ""), strict=True))) for row in rows]


def _escaped_row(row: Labels) -> Labels:
    return tuple(value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"') for value in row)


def spell_number(value: float) -> str:
    """Write a number as both formats do."""
    if isfinite(value):
        return repr(value)
    return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"


def _histogram_parts(metric: Metric, samples: Mapping[Labels, Histogram]) -> Iterator[str]:
    name = metric.name
    bounds = [spell_bound(bound) for bound in (*metric.buckets, inf)]
    for row, histogram in samples.items():
        (text,) = _label_texts(metric.labels, (row,))
        opening = f"{text[:-2]}," if row else "{"
        counts = list(accumulate(histogram.counts))
        lines = [f'{name}_bucket{opening}le="{bound}"}} {n}\n' for bound, n in zip(bounds, counts, strict=True)]
        lines += [f"{name}_count{text}{counts[-1]}\n", f"{name}_sum{text}{spell_number(histogram.total)}\n"]
        yield "".join(lines)


def spell_bound(value: float) -> str:
    """Format a bucket bound as in OpenMetrics: as Go does, but always with a point or an exponent.

    Python and Go differ from one million on, where Go uses exponents.
    """
    if value == inf:
        return "+Inf"
    text = repr(float(value))
    if value < 1e6 or "e" in text:
        return text
    whole, _, fraction = text.partition(".")
    digits = (whole + fraction).rstrip("0")
    point = "." if len(digits) > 1 else ""
    return f"{digits[0]}{point}{digits[1:]}e+{len(whole) - 1:02d}"


SampleGroup = tuple[str, tuple[str, ...], Iterable[tuple[Labels, float]]]
"""The name of samples, the names of their labels, and the samples."""


def flat_samples(family: Family) -> Iterator[SampleGroup]:
    """Yield the samples of a family by their name; those of a histogram have three."""
    metric = family.metric
    items = family.samples.items() if isinstance(family.samples, Mapping) else family.samples
    if metric.kind is not MetricKind.HISTOGRAM:
        yield metric.name, metric.labels, cast("Iterable[tuple[Labels, float]]", items)
        return
    histograms = list(cast("Iterable[tuple[Labels, Histogram]]", items))
    bounds = [spell_bound(bound) for bound in (*metric.buckets, inf)]
    buckets = (
        ((*labels, bound), float(count))
        for labels, histogram in histograms
        for bound, count in zip(bounds, accumulate(histogram.counts), strict=True)
    )
    yield f"{metric.name}_bucket", (*metric.labels, "le"), buckets
    yield f"{metric.name}_count", metric.labels, [(labels, float(sum(h.counts))) for labels, h in histograms]
    yield f"{metric.name}_sum", metric.labels, [(labels, h.total) for labels, h in histograms]
