# SPDX-License-Identifier: Apache-2.0
"""Decide which ended jobs to ask accounting for, and which ends can be taken as known.

Accounting learns of an end late: the controller sends it a moment afterwards, and after an outage of
slurmdbd sends all that had piled up, some time after slurmdbd answers again (15 s were seen for five
jobs). So a mark moves only over ends that accounting has had time to learn of. Everything above it is
read again each time, and what was counted there is remembered, so that nothing counts twice. What lies
below it is never asked for again, and forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from slurmscope.model.completions import Completions, EndedJob, Identity, add_jobs

SETTLE_SECONDS = 600
"""How long accounting is given to learn of an end, and to catch up after an outage."""

GAP_SECONDS = 300
"""A longer time between two good readings may hide an outage, after which ends arrive late."""

LONGEST_WINDOW_SECONDS = 3600
"""After a long outage we catch up reading by reading: slurmdbd is never asked for days at once."""


class SteadyReadings(NamedTuple):
    """Tell since when good readings have followed one another without a gap, and when the last one was."""

    since: int
    last: int


class FirstReading(NamedTuple):
    """Tell when the first good reading from a mark was, and up to when it reached."""

    at: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionsState:
    """Hold all that one reading leaves to the next; times are seconds since 1970.

    ``seen`` maps every counted job that ended at the ``mark`` or later to its end.
    """

    completions: Completions
    mark: int
    seen: Mapping[Identity, int] = field(default_factory=dict)
    steady: SteadyReadings | None = None
    first: FirstReading | None = None


def begin(start: int) -> CompletionsState:
    """Begin to count with jobs that end at ``start``."""
    return CompletionsState(completions=Completions(since=start, read_until=start), mark=start)


def is_ahead(state: CompletionsState, now: int) -> bool:
    """Tell whether the mark lies so far in the future that the clock must have been wrong when it was set."""
    return state.mark > now + LONGEST_WINDOW_SECONDS


def bring_back(state: CompletionsState, now: int) -> CompletionsState:
    """Go on from now, with the sums as they are."""
    completions = replace(state.completions, since=min(state.completions.since, now))
    return CompletionsState(completions=completions, mark=now, seen=state.seen)


def next_window(state: CompletionsState, now: int, longest_seconds: int) -> tuple[int, int]:
    """Return the first and the last second to ask for.

    A clock that was set back behind the mark stops nothing: to ask for what is to come does no harm.
    """
    end = state.mark + longest_seconds
    return state.mark, min(now, end) if now > state.mark else end


def advance(state: CompletionsState, jobs: Iterable[EndedJob], *, until: int, now: int) -> CompletionsState:
    """Count the jobs of one good reading, made at ``now`` from the mark up to ``until``, and move the mark.

    A partial record is counted when the mark passes it, in case its rest never comes.
    """
    moved = _move_mark(state, until, now)
    answered = {
        job.identity: job
        for job in jobs
        if job.end_time >= state.mark and not (job.is_partial and job.end_time >= moved.mark)
    }
    new = [job for identity, job in answered.items() if identity not in state.seen]
    seen = {**state.seen, **{identity: job.end_time for identity, job in answered.items()}}
    return replace(
        moved,
        completions=replace(add_jobs(state.completions, new), read_until=min(until, now)),
        seen={identity: end for identity, end in seen.items() if end >= moved.mark},
    )


def _move_mark(state: CompletionsState, until: int, now: int) -> CompletionsState:
    """Move the mark over all that was read and is settled.

    That is what ended long enough ago, when readings have been steady for as long. Where readings are
    never steady, because few ask for them, what was already read that long ago is settled as well: the
    mark must not stand still, for the window ends an hour after it.
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
