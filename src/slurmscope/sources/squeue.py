# SPDX-License-Identifier: Apache-2.0
"""Read all jobs of the controller with one squeue call.

``-O`` with a colon, a suffix and no width prints a value whole, never padded and never cut. None
of the columns holds text that a user can choose freely, so no job name can forge a row. Unlike
``-o %C``, the ``-O`` form does not make slurmctld send the detail records of every job.

A row has three parts: names, amounts, times. Equal rows are counted first, and each part is split
only once per distinct text, so the cost follows what is different, not the number of jobs: of
100,000 jobs of a queue full of arrays a handful of rows are left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from slurmscope.errors import MalformedAnswer
from slurmscope.gres import Gres, as_gres
from slurmscope.model.jobs import NOT_STARTED_STATES, JobGroup, Jobs, JobStart
from slurmscope.tres import parse_tres

SEPARATOR = "\x1f"
PART = "\x1e"
NAMES = ("Account", "UserName", "Partition", "QOS", "State", "Reason", "Feature")
AMOUNTS = ("NumNodes", "NumCPUs", "tres-alloc")
TIMES = ("SubmitTime", "StartTime")


def _format(columns: tuple[str, ...], end: str) -> str:
    return "".join(f"{column}:{SEPARATOR}," for column in columns[:-1]) + f"{columns[-1]}:{end}"


ARGUMENTS = (
    "--noheader",
    "--all",
    "--array",
    "--states=all",
    f"--Format={_format(NAMES, PART)},{_format(AMOUNTS, PART)},{_format(TIMES, '')}",
)


@dataclass(frozen=True, slots=True)
class StartWindow:
    """Say which starts are new: from the first second on, up to but without the last."""

    first_seconds: int
    end_seconds: int


class _Amounts(NamedTuple):
    nodes: int
    cpus: int
    memory_bytes: int | None
    gres: tuple[Gres, ...]


_Start = tuple[bytes, bytes, bytes, int]
"""Names, submit time, start time and number of jobs of a row that may have started in the window."""


class _Sum:
    """Add up the rows that have their names in common; most often there is but one."""

    __slots__ = ("cpus", "first_submit", "gres", "jobs", "memory_bytes", "nodes")

    def __init__(self, count: int, amounts: _Amounts, submit: bytes) -> None:
        nodes, cpus, memory_bytes, gres = amounts
        self.jobs = count
        self.nodes = count * nodes
        self.cpus = count * cpus
        self.memory_bytes = None if memory_bytes is None else count * memory_bytes
        self.gres = gres if count == 1 or not gres else _add_gres((), gres, count)
        self.first_submit = submit

    def add(self, count: int, amounts: _Amounts, submit: bytes) -> None:
        nodes, cpus, memory_bytes, gres = amounts
        self.jobs += count
        self.nodes += count * nodes
        self.cpus += count * cpus
        if memory_bytes is not None:
            self.memory_bytes = (self.memory_bytes or 0) + count * memory_bytes
        if gres:
            self.gres = _add_gres(self.gres, gres, count)
        # Epoch seconds have the same number of digits until the year 2286, so the least text is the first time.
        self.first_submit = min(submit, self.first_submit)


def parse_jobs(answer: bytes, *, taken_at_seconds: float, window: StartWindow) -> Jobs:
    """Turn squeue's answer into groups of like jobs, and tell which of them started in the window."""
    if answer and not answer.endswith(b"\n"):
        raise MalformedAnswer("squeue: the answer ends in the middle of a line")
    sums, starts, unreadable_rows = _add_up(answer, window)
    groups: dict[bytes, JobGroup] = {}
    for names, total in sums.items():
        try:
            groups[names] = _make_group(names, total)
        except ValueError:
            unreadable_rows += total.jobs
    return Jobs(
        groups=tuple(groups.values()),
        taken_at_seconds=taken_at_seconds,
        starts=_count_starts(starts, groups),
        unreadable_rows=unreadable_rows,
    )


def _add_up(answer: bytes, window: StartWindow) -> tuple[dict[bytes, _Sum], list[_Start], int]:
    """Count equal rows and add up those with the same names; return what may be new starts and the odd rows too."""
    sums: dict[bytes, _Sum] = {}
    starts: list[_Start] = []
    unreadable_rows = 0
    first = str(window.first_seconds).encode()
    for line, count in Counter(answer.split(b"\n")[:-1]).items():
        try:
            names, amounts_text, times = line.split(b"\x1e")
            submit, start = times.split(b"\x1f")
            amounts = _parse_amounts(amounts_text)
        except ValueError:
            unreadable_rows += count
            continue
        if (total := sums.get(names)) is None:
            sums[names] = _Sum(count, amounts, submit)
        else:
            total.add(count, amounts, submit)
        # Text first, number second: nearly all starts are older than the window.
        if start >= first and start.isdigit() and submit.isdigit() and int(start) < window.end_seconds:
            starts.append((names, submit, start, count))
    return sums, starts, unreadable_rows


@lru_cache(maxsize=16384)
def _parse_amounts(text: bytes) -> _Amounts:
    nodes, cpus, tres_text = text.decode("ascii").split(SEPARATOR)
    tres = parse_tres(tres_text)
    return _Amounts(_parse_count(nodes), _parse_count(cpus), tres.memory_bytes, tres.gres)


def _add_gres(held: Iterable[Gres], more: Iterable[Gres], jobs: int) -> tuple[Gres, ...]:
    counts = {(gres.name, gres.model): gres.count for gres in held}
    for gres in more:
        key = (gres.name, gres.model)
        counts[key] = counts.get(key, 0) + jobs * gres.count
    return as_gres(counts.items())


def _make_group(names: bytes, total: _Sum) -> JobGroup:
    account, user, partition, qos, state, reason, features = names.decode("utf-8", "surrogateescape").split(SEPARATOR)
    if not state:
        raise ValueError("the row has no state")
    # By position, in the order of the fields: by name it takes twice as long, for every group at every reading.
    return JobGroup(
        account,
        user,
        tuple(partition.split(",")) if "," in partition else (partition,),
        qos,
        state,
        reason,
        () if features in ("", "(null)") else tuple(features.split("&")),
        total.jobs,
        total.nodes,
        total.cpus,
        total.memory_bytes,
        total.gres,
        int(total.first_submit),
    )


def _count_starts(new_starts: Iterable[_Start], groups: Mapping[bytes, JobGroup]) -> tuple[JobStart, ...]:
    starts: Counter[tuple[str, str, int]] = Counter()
    for names, submit, start, jobs in new_starts:
        group = groups.get(names)
        if group and group.state not in NOT_STARTED_STATES:
            starts[group.partitions[0], group.qos, max(0, int(start) - int(submit))] += jobs
    return tuple(JobStart(partition, qos, wait, jobs) for (partition, qos, wait), jobs in starts.items())


def _parse_count(text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{text!r} is not a count")
    return int(text)
