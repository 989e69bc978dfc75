# SPDX-License-Identifier: Apache-2.0
"""Decide which ended jobs to read from accounting, and up to when the counts are final.

Ended jobs reach accounting late: slurmctld sends them a moment later, and after an outage of slurmdbd it sends the
backlog some time after slurmdbd is back (15 s were seen for five jobs). So the mark, up to which counts are final,
moves only over times for which accounting has had time to catch up. Everything after the mark is read again each time,
and the jobs counted there are stored, so that none counts twice. What lies before it is never read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from slurmscope.model.completions import Completions, EndedJob, Identity, add_jobs

SETTLE_SECONDS = 600
"""How long accounting may take to receive an ended job, and to catch up after an outage."""

GAP_SECONDS = 300
"""A longer gap between two successful readings may hide an outage, after which jobs arrive late."""

LONGEST_WINDOW_SECONDS = 3600
"""After a long outage, catching up takes several readings: slurmdbd is never queried for days at once."""


class SteadyReadings(NamedTuple):
    """Hold since when successful readings have followed each other without a gap, and the time of the last one."""

    since: int
    last: int


class FirstReading(NamedTuple):
    """Hold the time of the first successful reading from a mark, and up to when it read."""

    at: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionsState:
    """Hold the state between two readings; times are seconds since 1970.

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
