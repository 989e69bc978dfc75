# SPDX-License-Identifier: Apache-2.0
"""Parse the samples of traced processes: one JSON object, or a list of them.

Any user can send any bytes. A body is accepted as a whole or refused as a whole, with a reason in one sentence.
Keys are matched in any case and unknown ones are ignored. A key that is missing or null was not measured.

Named tuples, because thousands of samples arrive each second and a frozen dataclass takes five times as long to make.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple, NoReturn


class TraceSample(NamedTuple):
    """One sample as it was sent; None means that the sender did not measure it.

    ``cpu_percent`` is 100 for one busy core. ``cpu_seconds``, ``read_bytes`` and ``write_bytes`` are totals since the
    process started. ``interval_seconds`` is the time until the sender's next sample.
    """

    job_id: int
    pid: int | None = None
    cpu_percent: float | None = None
    threads: float | None = None
    memory_bytes: float | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None
    user: str | None = None
    host: str | None = None
    command: str | None = None
    rank: int | None = None
    step: str | None = None
    cpu_seconds: float | None = None
    interval_seconds: float | None = None
    time_seconds: float | None = None
    start_time_seconds: float | None = None


class RunningJobOwner(NamedTuple):
    """What Slurm says about a running job: its owner, its nodes and its allocation."""

    job_id: int
    uid: int
    user: str
    account: str = ""
    state: str = ""
    node_list: str = ""
    cpus: int | None = None
    memory_bytes: int | None = None


class TracedProcess(NamedTuple):
    """The latest sample of a process with the node and the owner that Slurm or the kernel names.

    ``way`` is how the sender was authenticated: socket, token, munge or plain.
    """

    owner: RunningJobOwner
    host: str
    way: str
    sample: TraceSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """All traced processes at one moment, and how many samples were accepted and refused since the start.

    ``is_enabled`` is False if tracing is off; there are no counters then. ``has_allocations`` says whether the
    allocation of traced jobs is exported here, and by no other collector.
    """

    processes: tuple[TracedProcess, ...] = ()
    accepted: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    is_enabled: bool = False
    has_allocations: bool = True


SAMPLES_LIMIT = 500
COMMAND_LIMIT_BYTES = 64
_NAME_LIMIT = 255
_LARGEST = float(2**63)
_LONGEST_INTERVAL_SECONDS = 86_400.0
_Number = Callable[[str, object], float | int | str]


class MalformedSample(ValueError):
    """Say in one sentence why a body is refused."""


def parse_samples(body: bytes) -> tuple[TraceSample, ...]:
    """Parse a body, or raise MalformedSample."""
    given = _decode(body)
    items = given if isinstance(given, list) else [given]
    if not items:
        raise MalformedSample("The list has no sample.")
    if len(items) > SAMPLES_LIMIT:
        raise MalformedSample(f"The list has more than {SAMPLES_LIMIT} samples.")
    return tuple(map(_parse_sample, items))


def _decode(body: bytes) -> object:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedSample("The body is not UTF-8.") from error
    try:
        return _DECODER.decode(text)
    except MalformedSample:
        raise
    except (ValueError, RecursionError) as error:
        # ValueError also of a number with thousands of digits, RecursionError of thousands of brackets.
        raise MalformedSample("The body is not JSON, or its values are too large or too deeply nested.") from error


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedSample(f"{name} is not a number of JSON.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = {key.lower(): value for key, value in pairs}
    if len(found) != len(pairs):
        raise MalformedSample("A key is given twice.")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)


def _parse_sample(item: object) -> TraceSample:
    if not isinstance(item, Mapping):
        raise MalformedSample("A sample is not a JSON object.")
    values: dict[str, Any] = {}
    for key, given in item.items():
        if given is not None and (field := FIELDS.get(key)) is not None:
            attribute, parse = field
            values[attribute] = parse(key, given)
    if "job_id" not in values:
        raise MalformedSample("The key job_id is missing.")
    return TraceSample(**values)


def _whole(first: int, last: int) -> _Number:
    def parse(key: str, given: object) -> int:
        if type(given) is not int or not first <= given <= last:
            raise MalformedSample(f"{key} is not a whole number from {first} to {last}.")
        return given

    return parse


def _number(key: str, given: object) -> float:
    if type(given) is int and 0 <= given <= _LARGEST:
        return float(given)
    if type(given) is not float or not isfinite(given) or not 0 <= given <= _LARGEST:
        raise MalformedSample(f"{key} is not a number of 0 or more.")
    return given


def _interval(key: str, given: object) -> float:
    seconds = _number(key, given)
    if not 0 < seconds <= _LONGEST_INTERVAL_SECONDS:
        raise MalformedSample(f"{key} is not a number of seconds up to {_LONGEST_INTERVAL_SECONDS:g}.")
    return seconds


def _text(limit_bytes: int) -> _Number:
    """Return a parser that replaces control characters: the text is shown on terminals and pages."""

    def parse(key: str, given: object) -> str:
        if not isinstance(given, str):
            raise MalformedSample(f"{key} is not a text.")
        try:
            size = len(given.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise MalformedSample(f"{key} is not valid Unicode.") from error
        if size > limit_bytes:
            raise MalformedSample(f"{key} is longer than {limit_bytes} bytes.")
        return given if given.isprintable() else "".join(c if c.isprintable() else "?" for c in given)

    return parse


FIELDS: dict[str, tuple[str, _Number]] = {
    "job_id": ("job_id", _whole(1, 2**32 - 1)),
    # 0 is what an older release of the wrapper of the Slurm exporter sends.
    "pid": ("pid", _whole(0, 2**22)),
    "cpus": ("cpu_percent", _number),
    "threads": ("threads", _number),
    "mem": ("memory_bytes", _number),
    "read_bytes": ("read_bytes", _number),
    "write_bytes": ("write_bytes", _number),
    "username": ("user", _text(_NAME_LIMIT)),
    "hostname": ("host", _text(_NAME_LIMIT)),
    "command": ("command", _text(COMMAND_LIMIT_BYTES)),
    "rank": ("rank", _whole(0, 2**31 - 1)),
    "step_id": ("step", _text(32)),
    "cpu_seconds": ("cpu_seconds", _number),
    "interval": ("interval_seconds", _interval),
    "time": ("time_seconds", _number),
    "start_time": ("start_time_seconds", _number),
}
