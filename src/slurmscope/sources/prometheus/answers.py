# SPDX-License-Identifier: Apache-2.0
"""Read the answers of Prometheus and of servers that speak like it, and tell their refusals apart."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmscope.errors import MalformedAnswer, MissingExtraError, ServerBusy, ServerError, ServerRefused
from slurmscope.http_client.request import HttpAnswer
from slurmscope.log import escape

try:
    import msgspec
except ImportError as error:
    raise MissingExtraError("--prometheus.url", "reports") from error

_WORDS_LIMIT = 300
_NOT_LET_IN = frozenset({401, 403, 407, 511})
_MAY_PASS = frozenset({408, 429, 500, 502, 503, 504})
_TOO_LONG = frozenset({413, 414})
# Servers repeat the question in their words, so a word that can be in a metric's name is not enough.
_TOO_MUCH = re.compile(
    r"too many|exceeded maximum|exceeds |cannot exceed|cannot select more than|timed out|timeout exceeded|too long",
    re.IGNORECASE,
)


class TooMuchAsked(ServerError):
    """The server works, but does not answer so much at once; half of it may do."""

    reason = "too_much"


class NotLetIn(ServerRefused):
    """The server wants to know who asks, and trying again does not help."""


@dataclass(frozen=True, slots=True)
class FoundSeries:
    """Hold one series of an answer: finite values, in the order of time."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Hold what was answered; partial is what comes with a warning, for a part of the servers may have been silent."""

    series: tuple[FoundSeries, ...]
    is_partial: bool

    @property
    def points(self) -> int:
        """Count the values."""
        return sum(len(found.times) for found in self.series)


class _Entry(msgspec.Struct, frozen=True, gc=False):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: list[_Entry]


class _Body(msgspec.Struct, frozen=True, rename="camel"):
    status: str
    error: str = ""
    warnings: list[str] | None = None
    data: _Data | None = None
    is_partial: bool = False


class _Refusal(msgspec.Struct, frozen=True):
    status: str = ""
    error: str = ""


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_refusal = msgspec.json.Decoder(_Refusal).decode


def parse_answer(answer: HttpAnswer) -> Reply:
    """Return the series of an answer, or raise what it says instead; status and body must both be good."""
    if answer.status != 200:
        raise _failure(answer)
    try:
        body = _decode(answer.body)
    except (msgspec.DecodeError, RecursionError) as error:
        # An error in a body of status 200 may come with any data.
        if _told(answer.body):
            raise _failure(answer) from error
        shown = escape(answer.body[:80].decode("utf-8", "replace"), 80)
        raise MalformedAnswer(
            f"it answered with something else than series ({escape(str(error), _WORDS_LIMIT)}): {shown!r}"
        ) from error
    if body.status != "success":
        raise _failure(answer)
    if body.data is None or body.data.result_type not in {"matrix", "vector"}:
        raise MalformedAnswer("it answered with something else than series: no matrix and no vector")
    found = tuple(_parse_entry(entry) for entry in body.data.result)
    return Reply(series=found, is_partial=body.is_partial or bool(body.warnings))


def _decode(body: bytes) -> _Body:
    try:
        return _decode_body(body)
    except UnicodeDecodeError:
        return _decode_body(body.decode("utf-8", "replace").encode("utf-8"))


def _parse_entry(entry: _Entry) -> FoundSeries:
    points = entry.values if entry.value is None else [entry.value]
    times = tuple(time for time, _ in points)
    try:
        values = tuple(float(text) for _, text in points)
    except ValueError as error:
        raise MalformedAnswer(f"it answered with a value that is no number: {escape(str(error), 100)}") from error
    # The sum is finite when every value is, and in nearly every answer it is.
    if math.isfinite(sum(values)) and all(map(operator.lt, times, times[1:])):
        return FoundSeries(entry.metric, times, values)
    kept = _sound_points(times, values)
    return FoundSeries(entry.metric, tuple(kept), tuple(kept.values()))


def _sound_points(times: Sequence[float], values: Sequence[float]) -> dict[float, float]:
    """Leave out what is not finite, and what does not lie after the point before it."""
    kept: dict[float, float] = {}
    last = -math.inf
    for time, value in zip(times, values, strict=True):
        if time > last and math.isfinite(value):
            kept[time] = value
            last = time
    return kept


def _failure(answer: HttpAnswer) -> ServerError:
    told = _told(answer.body)
    words = told or answer.body[:1000].decode("utf-8", "replace").strip() or "nothing"
    said = f"it answered {answer.status}: {escape(words, _WORDS_LIMIT)}"
    if answer.status in _NOT_LET_IN:
        return NotLetIn(f"{said}; see --prometheus.bearer-token-file and --prometheus.user")
    if answer.status in _TOO_LONG or (told and _TOO_MUCH.search(told)):
        return TooMuchAsked(said)
    if 300 <= answer.status < 400:
        return ServerError(f"it answered {answer.status}: it sends us elsewhere; give the address where it is")
    return ServerBusy(said) if answer.status in _MAY_PASS else ServerError(said)


def _told(body: bytes) -> str:
    """Return the error that the server names; nothing when it names none, or speaks another language."""
    try:
        refusal = _decode_refusal(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return refusal.error or ("an error that it does not name" if refusal.status == "error" else "")
