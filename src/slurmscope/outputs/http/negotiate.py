# SPDX-License-Identifier: Apache-2.0
"""Choose format and encoding of the page from the Accept headers of a client.

Nothing the client wrote is echoed in the response, and no header is an error: if it cannot be parsed, the client gets
uncompressed text 0.0.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from slurmscope.metrics.write import Format

_QUALITY = re.compile(r"(?:0(?:\.[0-9]{0,9})?|1(?:\.0{0,9})?)\Z")
_EXACT, _TYPE, _ANY = 2, 1, 0


@dataclass(frozen=True, slots=True)
class _Offer:
    format: Format
    type: str
    subtype: str
    versions: frozenset[str]


_OFFERS = (
    # The first wins if a client prefers neither.
    _Offer(Format.TEXT, "text", "plain", frozenset({"", "0.0.4"})),
    _Offer(Format.OPENMETRICS, "application", "openmetrics-text", frozenset({"", "0.0.1", "1.0.0"})),
)


@dataclass(frozen=True, slots=True)
class _Range:
    """Hold one item of a header: ``text/plain;version=0.0.4;q=0.5`` or ``gzip;q=1``."""

    name: str
    parameters: dict[str, str]
    quality: float
    position: int


def choose_format(accept: str) -> Format:
    """Return the format a client prefers, text 0.0.4 if it does not say."""
    ranges = list(_parse_ranges(accept))
    ranked = [(offer, _rank(offer, ranges)) for offer in _OFFERS]
    best, rank = max(ranked, key=lambda pair: pair[1])
    return best.format if rank[0] > 0 else Format.TEXT


def prefers_json(accept: str) -> bool:
    """Return whether a client prefers JSON to a page for people; one that does not say gets the page."""
    qualities: dict[str, float] = {}
    for item in _parse_ranges(accept):
        qualities.setdefault(item.name, item.quality)
    json_quality = qualities.get("application/json", qualities.get("application/*", 0.0))
    return json_quality > max(qualities.get("text/html", 0.0), qualities.get("text/*", 0.0), 0.0)


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether a client accepts gzip: by name, or by a star if gzip is not named."""
    qualities = {item.name: item.quality for item in _parse_ranges(accept_encoding)}
    for name in ("gzip", "x-gzip", "*"):
        if name in qualities:
            return qualities[name] > 0
    return False


def _rank(offer: _Offer, ranges: list[_Range]) -> tuple[float, int, int]:
    """Return quality, exactness and position of the range that matches an offer best.

    The most exact range decides, so ``*/*, application/openmetrics-text;q=0`` refuses OpenMetrics.
    """
    matches = [(exactness, item.quality, -item.position) for item in ranges for exactness in _matches(offer, item)]
    if not matches:
        return 0.0, _ANY, 0
    exactness, quality, earliness = max(matches)
    return quality, exactness, earliness if exactness == _EXACT else 0


def _matches(offer: _Offer, item: _Range) -> Iterator[int]:
    type_, _, subtype = item.name.partition("/")
    if (type_, subtype) == (offer.type, offer.subtype):
        if item.parameters.get("version", "") in offer.versions:
            yield _EXACT
    elif (type_, subtype) == (offer.type, "*"):
        yield _TYPE
    elif (type_, subtype) == ("*", "*"):
        yield _ANY


def _parse_ranges(header: str) -> Iterator[_Range]:
    """Yield the items of a header; one with a malformed quality is left out."""
    for position, item in enumerate(header.lower().split(",")):
        name, *fields = item.split(";")
        pairs = (field.partition("=") for field in fields)
        parameters = {key.strip(): value.strip().strip('"') for key, _, value in pairs}
        quality = parameters.get("q", "1")
        if name.strip() and _QUALITY.match(quality):
            yield _Range(name.strip(), parameters, float(quality), position)
