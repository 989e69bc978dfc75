# SPDX-License-Identifier: Apache-2.0
"""Read a metrics page from a server or a file."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from slurmscope.core.errors import ConfigError, MalformedAnswer, ServerError, SourceError
from slurmscope.core.log import escape
from slurmscope.core.units import format_size
from slurmscope.http.client.address import parse_address
from slurmscope.http.client.request import ClientRequest, send
from slurmscope.metrics.parse import ParsedFamily, parse
from slurmscope.metrics.write import Format

PAGE_LIMIT_BYTES = 64 * 1024 * 1024
TIMEOUT_SECONDS = 30.0

_URL_STARTS = ("http://", "https://", "unix:")

Page = Mapping[str, ParsedFamily]
"""The families of a page by name."""


def read_page(place: str, *, limit_bytes: int = PAGE_LIMIT_BYTES, timeout_seconds: float = TIMEOUT_SECONDS) -> Page:
    """Read a page by its URL, or from a file; raises SlurmscopeError."""
    if place.startswith(_URL_STARTS):
        data = _fetch(place, limit_bytes, time.monotonic() + timeout_seconds)
    else:
        data = _read_file(Path(place), limit_bytes)
    try:
        return parse_page(data)
    except MalformedAnswer as error:
        raise MalformedAnswer(f"{escape(place)}: {error}") from error


def parse_page(data: bytes) -> Page:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedAnswer("the page is not UTF-8") from error
    return {family.name: family for family in parse(text, Format.TEXT)}


def join_pages(pages: Iterable[Page]) -> Page:
    """Return one page of several, such as those of a cluster exporter and a node agent."""
    joined: dict[str, ParsedFamily] = {}
    for page in pages:
        for name, family in page.items():
            before = joined.get(name)
            joined[name] = family if before is None else replace(before, samples=(*before.samples, *family.samples))
    return joined


def _fetch(url: str, limit_bytes: int, deadline: float) -> bytes:
    try:
        address = parse_address(url)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    path = "" if address.prefix else "/metrics"
    request = ClientRequest(path=path, headers={"Accept": "text/plain;version=0.0.4"})
    answer = send(address, request, deadline=deadline, limit_bytes=limit_bytes)
    if answer.status != 200:
        raise ServerError(
            f"{address} answered {answer.status}; if it needs a password or another path, save the page with curl and "
            "give the file instead"
        )
    return answer.body


def _read_file(path: Path, limit_bytes: int) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(limit_bytes + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SourceError(f"{escape(str(path))} is neither a URL nor a readable file: {reason}") from error
    if len(data) > limit_bytes:
        raise SourceError(f"{escape(str(path))} is larger than {format_size(limit_bytes)}")
    return data
