# SPDX-License-Identifier: Apache-2.0
"""Parse the form that asks what a job would have done with another request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurmscope.model.what_if import OtherRequest
from slurmscope.portal.views.query_errors import BadQuery
from slurmscope.units import DAY_SECONDS, parse_bytes, parse_time_limit

MAX_TEXT = 20
MAX_CORES = 1_000_000
MAX_MEMORY_BYTES = 1 << 50
MAX_LIMIT_SECONDS = 365 * DAY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfView:
    """Hold the texts of the form, and the answer or what is wrong with the input."""

    cores: str = ""
    memory: str = ""
    time: str = ""
    sentences: tuple[str, ...] = ()
    error: str = ""


def fill_form(given: Mapping[str, str]) -> WhatIfView:
    """Return the form with the texts that were given."""
    return WhatIfView(
        cores=given.get("cores", "")[:MAX_TEXT],
        memory=given.get("memory", "")[:MAX_TEXT],
        time=given.get("time", "")[:MAX_TEXT],
    )


def parse_request(given: Mapping[str, str]) -> OtherRequest | None:
    """Parse the fields of the form; None if all are empty. Raises BadQuery with a sentence for the reader."""
    texts = {name: given.get(name, "").strip() for name in ("cores", "memory", "time")}
    if not any(texts.values()):
        return None
    cores = _parse("Cores", texts["cores"], _parse_cores, "a whole number from 1 to 1,000,000, such as 4")
    memory = _parse("Memory", texts["memory"], _parse_memory, "an amount per node up to 1024T, such as 512M or 12G")
    limit = _parse("Time limit", texts["time"], _parse_limit, "minutes, 1:30:00 or 1-12:00:00, up to 365 days")
    return OtherRequest(cpus=cores, memory_bytes=memory, limit_seconds=limit)


def _parse(label: str, text: str, parse: Callable[[str], int], expected: str) -> int | None:
    if not text:
        return None
    try:
        if len(text) > MAX_TEXT:
            raise ValueError
        return parse(text)
    except ValueError as error:
        raise BadQuery(f"{label} must be {expected}.") from error


def _parse_cores(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError
    return _bounded(int(text), MAX_CORES)


def _parse_memory(text: str) -> int:
    return _bounded(parse_bytes(text, default_unit="M"), MAX_MEMORY_BYTES)


def _parse_limit(text: str) -> int:
    return _bounded(parse_time_limit(text), MAX_LIMIT_SECONDS)


def _bounded(number: int, most: int) -> int:
    if not 1 <= number <= most:
        raise ValueError
    return number
