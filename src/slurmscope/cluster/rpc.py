# SPDX-License-Identifier: Apache-2.0
"""Take apart the statistics that sdiag and sacctmgr print, and sum the RPC statistics of a daemon.

Both print headings at the margin and their rows after a tab. Times are microseconds; a moment is a
local time, which we skip, with the Unix time after it in parentheses.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurmscope.core.errors import MalformedAnswer
from slurmscope.metrics.family import Family, Labels, Metric, counter


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcQueue:
    """The statistics of slurmctld's queue for one message type.

    A cycle processes several requests under one lock.
    """

    queued: int
    dropped: int
    last_cycle_requests: int
    max_cycle_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRpcs:
    """The requests of one message type; ``queue`` is None if there is no queue."""

    message: str
    requests: int
    seconds: float
    queue: RpcQueue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRpcs:
    """The requests of one user; several uids may have one name (``nobody``)."""

    user: str
    uid: int
    requests: int
    seconds: float


MESSAGES_HEADING = "Remote Procedure Call statistics by message type"
USERS_HEADING = "Remote Procedure Call statistics by user"

# No counter of Slurm has more than 64 bits.
_NUMBER = re.compile(r"\d{1,20}\Z", re.ASCII)
# The content of an empty table; 22.05 prints nothing at all in some.
_EMPTY_TABLE = frozenset({"No RPCs recorded yet.", "No pending RPCs"})
_SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A line at the margin and the rows below it, without their tab."""

    heading: str
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StatisticsValues:
    """Look up numbers in lines of the form ``name: value``; what is not there or no number is None."""

    texts: Mapping[str, str]

    @classmethod
    def of(cls, lines: Iterable[str]) -> StatisticsValues:
        """Split every line at its first colon."""
        return cls({name: value.strip() for name, _, value in (line.partition(":") for line in lines)})

    def without(self, *names: str) -> StatisticsValues:
        return StatisticsValues({name: text for name, text in self.texts.items() if name not in names})

    def number(self, name: str) -> int | None:
        return parse_number(self.texts.get(name, ""))

    def seconds(self, name: str) -> float | None:
        """Return microseconds as seconds; the unit may follow them."""
        number = parse_number(self.texts.get(name, "").removesuffix(" microseconds"))
        return None if number is None else number / 1e6

    def timestamp(self, name: str) -> int | None:
        """Return the seconds since 1970 in the parentheses at the end."""
        return parse_timestamp(self.texts.get(name, ""))


def split_blocks(answer: bytes, command: str) -> tuple[Block, ...]:
    """Split an answer at every line that is not indented; raise MalformedAnswer when it was cut."""
    if not answer.endswith(b"\n"):
        raise MalformedAnswer(f"{command}: the answer is empty or ends in the middle of a line")
    heading: str | None = None
    rows: list[str] = []
    blocks: list[Block] = []
    for line in answer.decode("utf-8", "surrogateescape").split("\n"):
        if line.startswith("\t"):
            rows.append(line[1:])
        elif line:
            if heading is not None:
                blocks.append(Block(heading=heading, rows=tuple(rows)))
            heading, rows = line, []
    blocks.append(Block(heading=heading or "", rows=tuple(rows)))
    return tuple(blocks)


def find_block(blocks: Sequence[Block], start: str) -> Block | None:
    """Return the first block whose heading starts like this."""
    return next((block for block in blocks if block.heading.startswith(start)), None)


def need_block(blocks: Sequence[Block], start: str, command: str) -> Block:
    """Return the first block whose heading starts like this; an answer without it is not ours."""
    block = find_block(blocks, start)
    if block is None:
        raise MalformedAnswer(f"{command}: the answer has no line that starts with {start!r}")
    return block


def parse_number(text: str) -> int | None:
    """Read a whole number without a sign."""
    return int(text) if _NUMBER.match(text) else None


def parse_timestamp(text: str) -> int | None:
    """Parse the Unix time after a local time; Slurm prints 0 for never."""
    _, _, epoch = text.rpartition("(")
    return parse_number(epoch.removesuffix(")")) or None


def parse_messages(rows: Iterable[str], command: str) -> tuple[MessageRpcs, ...]:
    return tuple(
        MessageRpcs(message=name, requests=count, seconds=_seconds(numbers, name, command), queue=_queue(numbers))
        for name, _, count, numbers in _rpc_rows(rows, command)
    )


def parse_users(rows: Iterable[str], command: str) -> tuple[UserRpcs, ...]:
    return tuple(
        UserRpcs(user=name, uid=uid, requests=count, seconds=_seconds(numbers, name, command))
        for name, uid, count, numbers in _rpc_rows(rows, command)
    )


def parse_counts(rows: Iterable[str], command: str) -> dict[str, int]:
    """Read the requests by kind of message where nothing but their number is known."""
    counts: Counter[str] = Counter()
    for name, _, count, _ in _rpc_rows(rows, command):
        counts[name] += count
    return counts


def _rpc_rows(rows: Iterable[str], command: str) -> Iterator[tuple[str, int, int, dict[str, int | None]]]:
    """Yield name, number in parentheses, count and all further numbers of ``NAME (7) count:1 ave_time:2 …``.

    Later releases add numbers at the end of a row.
    """
    for row in rows:
        if row in _EMPTY_TABLE:
            continue
        head, _, tail = row.partition(") count:")
        name, _, identity = head.rpartition("(")
        count, *pairs = tail.split() or [""]
        numbers = {key: parse_number(value) for key, _, value in (pair.partition(":") for pair in pairs)}
        requests, number = parse_number(count), parse_number(identity.strip())
        if requests is None or number is None:
            raise MalformedAnswer(f"{command}: not a row of a table of requests: {row[:_SHOWN]!r}")
        yield name.rstrip(), number, requests, numbers


def _seconds(numbers: Mapping[str, int | None], name: str, command: str) -> float:
    total = numbers.get("total_time")
    if total is None:
        raise MalformedAnswer(f"{command}: the row of {name[:_SHOWN]!r} has no total_time")
    return total / 1e6


def _queue(numbers: Mapping[str, int | None]) -> RpcQueue | None:
    queued, dropped = numbers.get("queued"), numbers.get("dropped")
    last, largest = numbers.get("cycle_last"), numbers.get("cycle_max")
    if queued is None or dropped is None or last is None or largest is None:
        return None
    return RpcQueue(queued=queued, dropped=dropped, last_cycle_requests=last, max_cycle_requests=largest)


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcMetrics:
    """The four RPC metrics of one daemon."""

    requests: Metric
    seconds: Metric
    user_requests: Metric
    user_seconds: Metric

    @property
    def all(self) -> tuple[Metric, ...]:
        """Return all four, for a collector to declare."""
        return self.requests, self.seconds, self.user_requests, self.user_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSums:
    """The number of requests and the time spent on them, by label values."""

    requests: dict[Labels, int]
    seconds: dict[Labels, float]


def declare_rpc_metrics(prefix: str, daemon: str) -> RpcMetrics:
    seconds_help = f"Time {daemon} spent on requests"
    return RpcMetrics(
        requests=counter(f"{prefix}_requests_total", f"Requests to {daemon} by message.", "message"),
        seconds=counter(f"{prefix}_seconds_total", f"{seconds_help}, by message.", "message"),
        user_requests=counter(f"{prefix}_user_requests_total", f"Requests to {daemon} by user.", "user", "uid"),
        user_seconds=counter(f"{prefix}_user_seconds_total", f"{seconds_help}, by user.", "user", "uid"),
    )


def sum_rpcs(rows: Iterable[tuple[Labels, MessageRpcs | UserRpcs]]) -> RpcSums:
    """Sum rows with equal label values: slurmdbd gives all messages it does not know one name."""
    requests: defaultdict[Labels, int] = defaultdict(int)
    seconds: defaultdict[Labels, float] = defaultdict(float)
    for labels, row in rows:
        requests[labels] += row.requests
        seconds[labels] += row.seconds
    return RpcSums(requests=dict(requests), seconds=dict(seconds))


def message_families(metrics: RpcMetrics, rows: Iterable[MessageRpcs]) -> Iterator[Family]:
    """Yield requests by message."""
    sums = sum_rpcs(((row.message,), row) for row in rows)
    yield Family(metrics.requests, sums.requests)
    yield Family(metrics.seconds, sums.seconds)


def user_families(metrics: RpcMetrics, rows: Iterable[UserRpcs]) -> Iterator[Family]:
    """Yield requests by user."""
    sums = sum_rpcs(((row.user, str(row.uid)), row) for row in rows)
    yield Family(metrics.user_requests, sums.requests)
    yield Family(metrics.user_seconds, sums.seconds)
