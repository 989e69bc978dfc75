# SPDX-License-Identifier: Apache-2.0
"""Save the state of the ended-job counters in a small file.

The file is replaced atomically: after a power failure it holds the old or the new state. If it cannot be read, the
counts start at 0; if it cannot be written, nothing is lost until the next restart.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

from slurmscope.errors import OutputError
from slurmscope.log import escape, fields
from slurmscope.model.completions import RUN_BUCKETS_SECONDS, Completions, RunTimes
from slurmscope.outputs.textfile import remove_stale_parts, write_textfile
from slurmscope.services.cluster.completions_state import CompletionsState, FirstReading, SteadyReadings

logger = logging.getLogger(__name__)

SIZE_LIMIT_BYTES = 64 * 1024 * 1024

_FORMAT = "slurmscope-completions"
_VERSION = 1
# Every state file begins like this, in any version; other files are not overwritten.
_MAGIC = b'{"' + _FORMAT.encode() + b'":'


class CompletionsFile:
    """Load the state at the start and save it after each reading; neither raises."""

    def __init__(self, path: Path) -> None:
        """Take the path; its directory must exist before the first save."""
        self._path = path
        self._is_foreign = False
        self._is_failing = False

    def load(self) -> CompletionsState | None:
        """Return the saved state, or None, after a warning if the file cannot be used."""
        with contextlib.suppress(
            OutputError
        ):  # without the directory there is nothing to remove; the first save reports it
            remove_stale_parts(self._path)
        self._is_foreign = True  # until it is known to be ours, or not to exist
        try:
            content = _read(self._path)
            self._is_foreign = content is not None and not _is_ours(content)
            return None if content is None else decode_state(content)
        except (OSError, ValueError) as error:
            what_now = "it will not be overwritten, please move it" if self._is_foreign else "counts start at 0"
            self._warn("cannot read the state file of ended jobs", f"{error}; {what_now}")
            return None

    def save(self, state: CompletionsState) -> None:
        """Replace the file; a failure is logged once, until a save succeeds again."""
        if self._is_foreign:
            return
        try:
            content = encode_state(state)
            if len(content) > SIZE_LIMIT_BYTES:
                raise OutputError(f"{escape(str(self._path))} would be larger than {SIZE_LIMIT_BYTES} bytes")
            write_textfile(self._path, [content])
        except OutputError as error:
            if not self._is_failing:
                self._warn("cannot save the state file of ended jobs, counting continues in memory", str(error))
            self._is_failing = True
        else:
            if self._is_failing:
                logger.info("state file of ended jobs is saved again", extra=fields(file=str(self._path)))
            self._is_failing = False

    def _warn(self, message: str, error: str) -> None:
        logger.warning(message, extra=fields(file=str(self._path), error=error))


def encode_state(state: CompletionsState) -> bytes:
    """Encode the state as one line of JSON that starts with the name of the format."""
    sums = state.completions
    document = {
        _FORMAT: _VERSION,
        "since": sums.since,
        "read_until": sums.read_until,
        "mark": state.mark,
        "steady": state.steady,
        "first": state.first,
        "ended": [[*key, count] for key, count in sums.ended.items()],
        "buckets": RUN_BUCKETS_SECONDS,
        "run_times": [[name, times.counts, times.total_seconds] for name, times in sums.run_times.items()],
        "cpu_seconds": [[*key, seconds] for key, seconds in sums.cpu_seconds.items()],
        "gpu_seconds": [[*key, seconds] for key, seconds in sums.gpu_seconds.items()],
        "seen": [[*identity, end] for identity, end in state.seen.items()],
    }
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def decode_state(content: bytes) -> CompletionsState:
    """Decode the result of :func:`encode_state`; raise ValueError with a reason for anything else."""
    try:
        return _decode_document(json.loads(content))
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it is not a state file: {error!r}") from error


def _decode_document(document: dict[str, Any]) -> CompletionsState:
    if document[_FORMAT] != _VERSION:
        raise ValueError(f"it was written by another version (format {document[_FORMAT]!r}, not {_VERSION})")
    if tuple(document["buckets"]) != RUN_BUCKETS_SECONDS:
        raise ValueError("its run time histogram has other buckets")
    sums = Completions(
        since=_whole(document["since"]),
        read_until=_whole(document["read_until"]),
        ended={(_text(a), _text(b), _text(c), _text(d)): _whole(count) for a, b, c, d, count in document["ended"]},
        run_times={_text(name): _run_times(counts, total) for name, counts, total in document["run_times"]},
        cpu_seconds={(_text(a), _text(b)): _whole(seconds) for a, b, seconds in document["cpu_seconds"]},
        gpu_seconds={(_text(a), _text(b)): _whole(seconds) for a, b, seconds in document["gpu_seconds"]},
    )
    return CompletionsState(
        completions=sums,
        mark=_whole(document["mark"]),
        seen={(_whole(job), _whole(submit)): _whole(end) for job, submit, end in document["seen"]},
        steady=None if document["steady"] is None else SteadyReadings(*map(_whole, document["steady"])),
        first=None if document["first"] is None else FirstReading(*map(_whole, document["first"])),
    )


def _run_times(counts: list[object], total: object) -> RunTimes:
    if len(counts) != len(RUN_BUCKETS_SECONDS) + 1:
        raise ValueError("its run time histogram has other buckets")
    return RunTimes(counts=tuple(map(_whole, counts)), total_seconds=_whole(total))


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{escape(repr(value), 40)} is not an integer of 0 or more")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{escape(repr(value), 40)} is not a string")
    return value


def _is_ours(content: bytes) -> bool:
    """Return whether the file may be overwritten; after a power failure it may be empty, or only NUL bytes."""
    return content.startswith(_MAGIC) or not content.strip(b"\0\n")


def _read(path: Path) -> bytes | None:
    """Return the content of a regular file, None if there is none; reading a pipe would block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        content = file.read(SIZE_LIMIT_BYTES + 1)
    if len(content) > SIZE_LIMIT_BYTES:
        raise ValueError(f"it is larger than {SIZE_LIMIT_BYTES} bytes")
    return content
