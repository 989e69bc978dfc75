# SPDX-License-Identifier: Apache-2.0
"""Count every ended job once, over all readings of accounting and across restarts.

Ended jobs reach accounting late: slurmctld sends them a moment later, and after an outage of slurmdbd it sends the
backlog some time after slurmdbd is back (15 s were seen for five jobs). So the mark, up to which counts are final,
moves only over times for which accounting has had time to catch up. Everything after the mark is read again each time,
and the jobs counted there are stored, so that none counts twice. What lies before it is never read again.

The file is replaced atomically: after a power failure it holds the old or the new state. If it cannot be read, the
counts start at 0; if it cannot be written, nothing is lost until the next restart.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from slurmscope.cluster import completions as sacct
from slurmscope.cluster.completions import RUN_BUCKETS_SECONDS, Completions, EndedJob, Identity, RunTimes, add_jobs
from slurmscope.cluster.sources import Sources
from slurmscope.core.config import file_path
from slurmscope.core.errors import CommandTimedOut, MalformedAnswer, OutputError
from slurmscope.core.log import escape, fields
from slurmscope.exporter.collector import Read, Reading
from slurmscope.exporter.outputs import remove_stale_parts, write_textfile
from slurmscope.slurm.command import RunCommand, random_separator
from slurmscope.slurm.config import SLURMDBD, JobVisibility, require_first

logger = logging.getLogger(__name__)


SETTLE_SECONDS = 600
"""How long accounting may take to receive an ended job, and to catch up after an outage."""

GAP_SECONDS = 300
"""A longer gap between two successful readings may hide an outage, after which jobs arrive late."""

LONGEST_WINDOW_SECONDS = 3600
"""After a long outage, catching up takes several readings: slurmdbd is never queried for days at once."""


class SteadyReadings(NamedTuple):
    """Since when successful readings have followed each other without a gap, and the time of the last one."""

    since: int
    last: int


class FirstReading(NamedTuple):
    """The time of the first successful reading from a mark, and up to when it read."""

    at: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionsState:
    """The state between two readings; times are seconds since 1970.

    ``seen`` maps every counted job that ended at the ``mark`` or later to its end time.
    """

    completions: Completions
    mark: int
    seen: Mapping[Identity, int] = field(default_factory=dict)
    steady: SteadyReadings | None = None
    first: FirstReading | None = None


def begin(start: int) -> CompletionsState:
    """Return the state that counts jobs that end at ``start`` or later."""
    return CompletionsState(completions=Completions(since=start, read_until=start), mark=start)


def is_ahead(state: CompletionsState, now: int) -> bool:
    """Return whether the mark is so far in the future that the clock must have been wrong when it was set."""
    return state.mark > now + LONGEST_WINDOW_SECONDS


def reset_mark(state: CompletionsState, now: int) -> CompletionsState:
    """Continue from now with the sums unchanged."""
    completions = replace(state.completions, since=min(state.completions.since, now))
    return CompletionsState(completions=completions, mark=now, seen=state.seen)


def next_window(state: CompletionsState, now: int, longest_seconds: int) -> tuple[int, int]:
    """Return the first and the last second to read.

    If the clock was set back to before the mark, a window in the future is read, which does no harm.
    """
    end = state.mark + longest_seconds
    return state.mark, min(now, end) if now > state.mark else end


def advance(state: CompletionsState, jobs: Iterable[EndedJob], *, until: int, now: int) -> CompletionsState:
    """Count the jobs of one successful reading, made at ``now`` from the mark to ``until``, and move the mark.

    A partial record is counted when the mark passes it, in case the rest never arrives.
    """
    moved = _move_mark(state, until, now)
    counted = {
        job.identity: job
        for job in jobs
        if job.end_time >= state.mark and not (job.is_partial and job.end_time >= moved.mark)
    }
    new = [job for identity, job in counted.items() if identity not in state.seen]
    seen = {**state.seen, **{identity: job.end_time for identity, job in counted.items()}}
    return replace(
        moved,
        completions=replace(add_jobs(state.completions, new), read_until=min(until, now)),
        seen={identity: end for identity, end in seen.items() if end >= moved.mark},
    )


def _move_mark(state: CompletionsState, until: int, now: int) -> CompletionsState:
    """Move the mark over everything that was read and is final.

    That is what ended at least SETTLE_SECONDS ago, if readings have been steady for as long. If readings are never
    steady because scrapes are rare, what was already read that long ago is final as well: the mark must move on,
    because the window ends an hour after it.
    """
    steady = SteadyReadings(since=_steady_since(state.steady, now), last=now)
    first = state.first
    mark = state.mark
    if now - steady.since >= SETTLE_SECONDS:
        mark = max(mark, min(until, now - SETTLE_SECONDS))
    if first and now - first.at >= SETTLE_SECONDS:
        mark = max(mark, min(until, first.until))
    if first is None or mark > state.mark:
        first = FirstReading(at=now, until=min(until, now))
    return replace(state, mark=mark, steady=steady, first=first)


def _steady_since(steady: SteadyReadings | None, now: int) -> int:
    return steady.since if steady and 0 <= now - steady.last <= GAP_SECONDS else now


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


SHORTEST_WINDOW_SECONDS = 60
"""Each reading that takes too long halves the next window, down to this."""
UNFINISHED_SECONDS = 300
"""How long ago a job without partition must have ended to be counted all the same."""


class CompletionsTracker:
    """Keep the sums over all ended jobs; for one thread at a time.

    Without a file, counts start at 0 after a restart. With one, the sums, the mark and the jobs already counted are
    saved together after each reading: after a restart, or a kill at any moment, the sums continue and the time in
    between is caught up from accounting.
    """

    def __init__(
        self,
        *,
        wall_clock: Callable[[], float],
        state_file: Path | None = None,
        new_separator: Callable[[], str] = random_separator,
    ) -> None:
        """Continue from the file, or start now if there is no saved state."""
        self._wall_clock = wall_clock
        self._new_separator = new_separator
        self._window_seconds = LONGEST_WINDOW_SECONDS
        self._file = CompletionsFile(state_file) if state_file else None
        saved = self._file.load() if self._file else None
        self._state: CompletionsState = saved or begin(int(wall_clock()))

    def update(self, run: RunCommand) -> Completions:
        """Read once and return the new sums; if ``run`` raises, the state stays unchanged and nothing is lost."""
        now = int(self._wall_clock())
        if is_ahead(self._state, now):
            logger.warning("the clock was set back; counting ended jobs from now on")
            self._state = reset_mark(self._state, now)
        start, end = next_window(self._state, now, self._window_seconds)
        separator = self._new_separator()
        try:
            output = run(sacct.COMMAND, sacct.arguments(start, end, separator))
            jobs, unreadable_rows = sacct.parse_ended_jobs(output, separator)
        except (CommandTimedOut, MalformedAnswer):
            self._window_seconds = max(self._window_seconds // 2, SHORTEST_WINDOW_SECONDS)
            logger.info("reading ended jobs in smaller windows", extra=fields(window_seconds=self._window_seconds))
            raise
        self._window_seconds = min(self._window_seconds * 2, LONGEST_WINDOW_SECONDS)
        # Accounting may briefly list a job without its partition; a later reading counts it.
        known = [job for job in jobs if job.partition or job.end_time < now - UNFINISHED_SECONDS]
        state = advance(self._state, known, until=end, now=now)
        self._state = replace(state, completions=replace(state.completions, unreadable_rows=unreadable_rows))
        if self._file:
            self._file.save(self._state)
        return self._state.completions


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionsSettings:
    """Where the counts of ended jobs are kept."""

    state_file: Path | None = file_path(
        None, "File that keeps the counters of ended jobs across restarts; without it they restart at 0."
    )


def _open(slurm: Sources) -> Read:
    tracker = CompletionsTracker(wall_clock=slurm.wall_clock, state_file=slurm.settings(CompletionsSettings).state_file)
    return require_first(JobVisibility(slurm.run, SLURMDBD), lambda: tracker.update(slurm.run))


COMPLETIONS = Reading(name="completions", open=_open, every_seconds=60.0)
