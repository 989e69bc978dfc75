# SPDX-License-Identifier: Apache-2.0
"""Hold what explains why jobs are pending: priorities, limits, licenses, reservations.

The columns are weighted: their sum is the priority. No column holds text that a user can choose.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.cluster.licenses import Licenses
from slurmscope.cluster.limits import Limits
from slurmscope.cluster.reservations import Reservations
from slurmscope.cluster.sdiag import Diag
from slurmscope.cluster.sinfo import Nodes
from slurmscope.core.errors import MalformedAnswer
from slurmscope.jobs.pending.queue import JobPriorities, JobPriority
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
ARGUMENTS = ("--noheader", "--local", "--format=" + SEPARATOR.join(f"%{code}" for code in _CODES))
MAX_ROWS = 200_000


def read_priorities(run: RunCommand) -> JobPriorities:
    return parse_priorities(run("sprio", ARGUMENTS))


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
