# SPDX-License-Identifier: Apache-2.0
"""Find what a pending job needs to start, and which of it is missing: limits, jobs, licenses, a reservation.

Priorities come from sprio. Its columns are weighted: their sum is the priority. No column holds text that a user can
choose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurmscope.cluster.licenses import Licenses
from slurmscope.cluster.limits import LimitKind, Limits
from slurmscope.cluster.reservations import Reservations
from slurmscope.cluster.scheduler import Diag
from slurmscope.cluster.sinfo import Nodes
from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.units import format_bytes, format_count, format_seconds, format_some
from slurmscope.jobs.pending.queue import JobPriorities, JobPriority, PendingJob
from slurmscope.jobs.pending.reasons import LimitUse, explain_reason, find_limits, parse_limit_reason
from slurmscope.jobs.pending.smaller_request import RESOURCE_REASONS, QueuePosition
from slurmscope.jobs.render.formatting import format_time
from slurmscope.slurm.command import RunCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """The last reading of each source; None if it was not requested, or cannot be read."""

    nodes: Nodes | None = None
    priorities: JobPriorities | None = None
    diag: Diag | None = None
    limits: Limits | None = None
    licenses: Licenses | None = None
    reservations: Reservations | None = None


SEPARATOR = "\x1f"
FACTORS = {"age": "A", "assoc": "B", "fairshare": "F", "jobsize": "J", "partition": "P", "qos": "Q", "site": "S"}
"""Slurm's names of the factors, and the format codes of their columns; TRES and nice follow."""
_CODES = ("i", "r", "Y", *FACTORS.values(), "T", "N")
SPRIO_ARGUMENTS = ("--noheader", "--local", "--format=" + SEPARATOR.join(f"%{code}" for code in _CODES))
MAX_ROWS = 200_000


def read_priorities(run: RunCommand) -> JobPriorities:
    return parse_priorities(run("sprio", SPRIO_ARGUMENTS))


def parse_priorities(answer: bytes) -> JobPriorities:
    """Parse the output of sprio; an invalid row is counted and skipped."""
    if answer and not answer.endswith(b"\n"):
        raise MalformedAnswer("sprio: the answer ends in the middle of a line")
    rows = answer.decode("utf-8", "surrogateescape").split("\n")[:-1]
    priorities: list[JobPriority] = []
    for row in rows[:MAX_ROWS]:
        try:
            priorities.append(_parse_row(row.split(SEPARATOR)))
        except ValueError:
            continue
    if rows and not priorities:
        raise MalformedAnswer("sprio: no row is in a known format")
    return JobPriorities(priorities=tuple(priorities), unreadable_rows=len(rows) - len(priorities))


def _parse_row(fields: list[str]) -> JobPriority:
    job_id, partition, total, *factors, tres, nice = (field.strip() for field in fields)
    values = dict(zip(FACTORS, map(float, factors), strict=True))
    values["tres"] = sum(float(part.partition("=")[2]) for part in tres.split(",") if part)
    values["nice"] = -float(nice)
    return JobPriority(
        job_id=int(job_id),
        partition=partition,
        total=float(total),
        factors={name: value for name, value in values.items() if value},
    )


MAX_DEPENDENCIES = 50
_DEPENDENCY = re.compile(
    r"(?P<kind>[a-z]{1,20}):(?P<job>[0-9]{1,10}(?:_(?:[0-9]{1,10}|\*))?)(?:\+[0-9]{1,10})?"
    r"(?:\((?P<state>[a-z ]{1,20})\))?"
)
_DEPENDENCY_WORDS = {
    "after": "has started",
    "afterany": "has ended",
    "afterok": "has completed successfully",
    "afternotok": "has failed",
    "aftercorr": "has completed its task of the same number",
    "afterburstbuffer": "has copied its data out of the burst buffer",
}
_RESERVATION_REASONS = frozenset({"Reservation", "ReqNodeNotAvail", "ReservationDeleted", "ReservationInvalid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One thing that a job needs to start; ``job`` is the ID of another job, or empty.

    ``is_met`` is null where that is not known; ``reason`` is Slurm's word for a job that waits for nothing else.
    """

    title: str
    text: str
    job: str = ""
    is_met: bool | None = None
    reason: str = ""

    @property
    def sentence(self) -> str:
        """Return it as the one thing that keeps the job from starting."""
        return f"{self.title}: {f'starts after job {self.job} ' if self.job else ''}{self.text}."


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExplanation:
    """Why a job is pending, as the portal's API sends it among more; what is not known is None or empty."""

    reason: str
    meaning: str
    action: str
    start_seconds: int | None = None
    positions: tuple[QueuePosition, ...] = ()
    blockers: tuple[Blocker, ...] = ()


def needed_facts(job: PendingJob) -> frozenset[str]:
    """Return the names of the facts that explain a job."""
    names = {"priorities", "diag"}
    if parse_limit_reason(job.word) is not None:
        names.add("limits")
    if job.licenses:
        names.add("licenses")
    if job.reservation or job.word in _RESERVATION_REASONS:
        names.add("reservations")
    return frozenset(names)


def find_blockers(job: PendingJob, facts: QueueFacts) -> tuple[Blocker, ...]:
    """Return what a job needs to start: what is not met first, and what is met last."""
    return tuple(sorted(_find_all(job, facts), key=lambda blocker: {False: 0, None: 1, True: 2}[blocker.is_met]))


def explain(job: PendingJob, blockers: Sequence[Blocker]) -> tuple[str, str]:
    """Return why a job waits, and what its user can do.

    Slurm checks priority first: a job that waits for its turn may also lack a license, and would not start then.
    """
    known = explain_reason(job.reason)
    missing = next((blocker for blocker in blockers if blocker.is_met is False and blocker.reason), None)
    if missing is None or job.word not in {*RESOURCE_REASONS, missing.reason}:
        return known.meaning, known.action
    return missing.sentence, explain_reason(missing.reason).action


def _find_all(job: PendingJob, facts: QueueFacts) -> Iterator[Blocker]:
    yield from _find_limit_blockers(job, facts)
    yield from _find_dependencies(job)
    yield from _find_licenses(job, facts)
    yield from _find_reservations(job, facts)
    _, comma, details = job.reason.partition(",")
    if comma and details.strip():
        yield Blocker(title="Details from Slurm", text=details.strip())


def _find_limit_blockers(job: PendingJob, facts: QueueFacts) -> Iterator[Blocker]:
    reason = parse_limit_reason(job.word)
    if reason is None or facts.limits is None:
        return
    for use in find_limits(reason, facts.limits, user=job.user, account=job.account, qos=job.qos):
        yield Blocker(title=f"{use.limit.name} of {use.owner}", text=_describe_limit(use), is_met=False)


def _describe_limit(use: LimitUse) -> str:
    limit = use.limit
    name = f"{limit.tres}: " if limit.tres else ""
    most = _format_amount(limit.kind, limit.tres, limit.limit)
    if limit.used is None:
        return f"{name}limit {most}"
    return f"{name}{_format_amount(limit.kind, limit.tres, limit.used)} of {most} in use"


def _format_amount(kind: LimitKind, tres: str, amount: float) -> str:
    if kind is LimitKind.WALL_SECONDS:
        return format_seconds(amount)
    if kind is LimitKind.TRES_SECONDS:
        hours = amount / 3600
        return f"{format_bytes(hours)} hours" if tres == "mem" else f"{format_count(hours)} hours"
    return format_bytes(amount) if tres == "mem" else format_count(amount)


def _find_dependencies(job: PendingJob) -> Iterator[Blocker]:
    for number, part in enumerate(re.split(r"[,?]", job.dependency) if job.dependency else ()):
        if number >= MAX_DEPENDENCIES:
            return
        found = _DEPENDENCY.fullmatch(part)
        if found is None:
            yield Blocker(title="Dependency", text=part)
            continue
        when = _DEPENDENCY_WORDS.get(found["kind"], found["kind"])
        state = f" ({found['state']})" if found["state"] else ""
        target, is_met = found["job"].removesuffix("_*"), found["state"] == "fulfilled" if found["state"] else None
        yield Blocker(title="Dependency", text=f"{when}{state}", job=target, is_met=is_met, reason="Dependency")


def _find_licenses(job: PendingJob, facts: QueueFacts) -> Iterator[Blocker]:
    known = {one.name: one for one in facts.licenses.licenses} if facts.licenses else {}
    # With a bar between them, one of the licenses is enough.
    is_choice = "|" in job.licenses
    for part in re.split(r"[,|]", job.licenses) if job.licenses else ():
        name, _, count = part.partition(":")
        found, wanted = known.get(name), int(count) if count.isdecimal() else 1
        have = f", {found.free:,} of {found.total:,} free" if found else ""
        text = f"{format_some(wanted, f'{name} license')} requested{have}"
        is_met = found.free >= wanted if found and not is_choice else None
        yield Blocker(title="Licenses", text=text, is_met=is_met, reason="Licenses")


def _find_reservations(job: PendingJob, facts: QueueFacts) -> Iterator[Blocker]:
    if not job.reservation:
        return
    for one in facts.reservations.reservations if facts.reservations else ():
        if one.name == job.reservation:
            when = f"from {format_time(one.start_timestamp)} to {format_time(one.end_timestamp)}"
            active = "active now" if one.is_active else "not active now"
            is_met = None if one.is_active else False
            yield Blocker(
                title=f"Reservation {one.name}", text=f"{when}, {active}", is_met=is_met, reason="Reservation"
            )
            return
    yield Blocker(title=f"Reservation {job.reservation}", text="the job starts in this reservation only")
