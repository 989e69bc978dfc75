# SPDX-License-Identifier: Apache-2.0
"""Parse answers of Prometheus and compatible servers, and classify their errors."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmscope.core.errors import (
    MalformedAnswer,
    MissingExtraError,
    QueryRejected,
    ServerBusy,
    ServerError,
    ServerRefused,
)
from slurmscope.core.log import escape
from slurmscope.http.client.request import HttpAnswer

try:
    import msgspec
except ImportError as error:
    raise MissingExtraError("--prometheus.url", "reports") from error

MAX_SERIES = 100_000
"""Maximum number of series in one answer; larger queries are split. Few jobs have as many, one for each core."""
_MESSAGE_LIMIT = 300
_ACCESS_DENIED = frozenset({401, 403, 407, 511})
_TEMPORARY = frozenset({408, 429, 502, 503})
_FAILED = 500
# A proxy in front of the server stopped waiting for it.
_GATEWAY_TIMED_OUT = frozenset({504, 524})
_TOO_LARGE = frozenset({413, 414})
# Servers repeat the query in their messages, so a word that can occur in a metric name is not enough.
_TIMED_OUT_MESSAGE = re.compile(r"timed out|timeout exceeded|context deadline exceeded", re.IGNORECASE)
_TOO_LARGE_MESSAGE = re.compile(
    # Prometheus and VictoriaMetrics; "too many outstanding requests" and "too many open files" are no limits of a query
    r"too many (?:\w+ ){0,2}(?:samples|(?:data)?points|(?:time ?)?series|chunks|metrics|bytes)\b|"
    r"exceeded maximum|exceeds |cannot exceed|cannot select more than|too long|not enough memory|"
    r"either increase -search\.max|"
    # Mimir, Cortex, and the store of Thanos, which Cortex uses
    r"exceeded the (?:maximum|aggregated) |hit the (?:max|aggregated) |limit \d+ (?:violated|exceeded)|"
    # gRPC, between the parts of these servers
    r"larger than max\b",
    re.IGNORECASE,
)
# Remarks about the expression, which do not say that series are missing.
_REMARK = re.compile(r"PromQL (?:info|warning): ")


class QueryTooLarge(ServerError):
    """The server is up but rejects the query as too large; a smaller one may succeed."""

    reason = "too_much"


class QueryTimedOut(QueryTooLarge):
    """The server took too long to evaluate the query; a smaller one may be fast enough."""


class PartialAnswer(ServerBusy):
    """Some of the servers behind this one did not answer: what is missing may exist."""

    reason = "partial"


class QueryFailed(ServerError):
    """The server failed to evaluate the query, perhaps only this one: a part of its storage may be lost."""


class AccessDenied(ServerRefused):
    """The server rejects our credentials, or requires some; a retry does not help."""


@dataclass(frozen=True, slots=True)
class FoundSeries:
    """One series of an answer: finite values in order of time."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A parsed answer, which is complete."""

    series: tuple[FoundSeries, ...]

    @property
    def points(self) -> int:
        """Return the number of values."""
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


class _Refusal(msgspec.Struct, frozen=True, rename="camel"):
    status: str = ""
    error_type: str = ""
    error: str = ""


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_refusal = msgspec.json.Decoder(_Refusal).decode


def parse_answer(answer: HttpAnswer) -> Reply:
    """Return the series of an answer, or raise the error that its status or body reports."""
    if answer.status != 200:
        raise _failure(answer)
    # Counted before they are parsed: each takes twenty times as much memory as in the answer.
    if answer.body.count(b'"metric"') > MAX_SERIES:
        raise QueryTooLarge(f"it answered with more than {MAX_SERIES:,} series")
    try:
        body = _decode(answer.body)
    except (msgspec.DecodeError, RecursionError) as error:
        # An error in a body of status 200 may come with any data.
        if _refusal_of(answer.body).error:
            raise _failure(answer) from error
        shown = escape(answer.body[:200].decode("utf-8", "replace"), 80)
        raise MalformedAnswer(
            f"it answered with something other than series ({escape(str(error), _MESSAGE_LIMIT)}): {shown!r}"
        ) from error
    if body.status != "success":
        raise _failure(answer)
    if body.data is None or body.data.result_type not in {"matrix", "vector"}:
        raise MalformedAnswer("it answered with something other than series: neither a matrix nor a vector")
    _check_completeness(body)
    return Reply(series=tuple(_parse_entry(entry) for entry in body.data.result))


def _check_completeness(body: _Body) -> None:
    """Raise PartialAnswer if some of the servers behind this one did not answer."""
    warnings = [warning for warning in body.warnings or () if not _REMARK.match(warning)]
    if body.is_partial or warnings:
        why = f": {escape(warnings[0], _MESSAGE_LIMIT)}" if warnings else ""
        raise PartialAnswer(f"it returned only a part of the series{why}")


def _decode(body: bytes) -> _Body:
    try:
        return _decode_body(body)
    except UnicodeDecodeError:
        return _decode_body(body.decode("utf-8", "replace").encode("utf-8"))


def _parse_entry(entry: _Entry) -> FoundSeries:
    try:
        if entry.value is not None:
            # The answer to an instant query may have a hundred thousand of these.
            value = float(entry.value[1])
            is_finite = math.isfinite(value)
            return FoundSeries(entry.metric, (entry.value[0],) if is_finite else (), (value,) if is_finite else ())
        times = tuple(time for time, _ in entry.values)
        values = tuple(float(text) for _, text in entry.values)
    except ValueError as error:
        raise MalformedAnswer(f"it answered with a value that is not a number: {escape(str(error), 100)}") from error
    # The sum is finite when every value is, and in nearly every answer it is.
    if math.isfinite(sum(values)) and all(map(operator.lt, times, times[1:])):
        return FoundSeries(entry.metric, times, values)
    kept = _valid_points(times, values)
    return FoundSeries(entry.metric, tuple(kept), tuple(kept.values()))


def _valid_points(times: Sequence[float], values: Sequence[float]) -> dict[float, float]:
    """Drop values that are not finite, and points that are not later than the one before."""
    kept: dict[float, float] = {}
    last = -math.inf
    for time, value in zip(times, values, strict=True):
        if time > last and math.isfinite(value):
            kept[time] = value
            last = time
    return kept


def _failure(answer: HttpAnswer) -> ServerError:
    refusal = _refusal_of(answer.body)
    reported = refusal.error
    text = reported or answer.body[:1000].decode("utf-8", "replace").strip() or "an empty body"
    message = f"it answered {answer.status}: {escape(text, _MESSAGE_LIMIT)}"
    if answer.status in _ACCESS_DENIED:
        return AccessDenied(
            f"{message}; see --prometheus.bearer-token-file, --prometheus.user and --prometheus.headers"
        )
    explanation = reported or _plain_explanation(answer.status, text)
    is_too_large = answer.status in _TOO_LARGE or _TOO_LARGE_MESSAGE.search(explanation)
    if _TIMED_OUT_MESSAGE.search(explanation) or (answer.status in _GATEWAY_TIMED_OUT and not is_too_large):
        return QueryTimedOut(message)
    if is_too_large:
        return QueryTooLarge(message)
    if 300 <= answer.status < 400:
        return ServerError(
            f"it answered {answer.status}, a redirect, which is not followed; set --prometheus.url to the final address"
        )
    if refusal.error_type == "bad_data":
        return QueryRejected(message)
    kind = QueryFailed if answer.status == _FAILED else ServerBusy if answer.status in _TEMPORARY else ServerError
    return kind(message)


def _plain_explanation(status: int, text: str) -> str:
    """Return the text with which a query frontend rejects a query; nothing for pages and errors of proxies.

    The statuses of the latter are left out: a proxy that does not reach the server may also report a timeout.
    """
    is_of_server = 400 <= status <= _FAILED and status not in _TEMPORARY
    return text if is_of_server and not text.startswith("<") else ""


def _refusal_of(body: bytes) -> _Refusal:
    """Return the error in a JSON body; an empty one when it has none or is not JSON."""
    try:
        refusal = _decode_refusal(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Refusal()
    is_silent = refusal.status == "error" and not refusal.error
    return msgspec.structs.replace(refusal, error="an error without a message") if is_silent else refusal
