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
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from slurmscope.errors import MalformedAnswer
from slurmscope.gres import Gres
from slurmscope.model.jobs import WAITING_STATES, JobGroup, Jobs, JobStart
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


@dataclass(frozen=True, slots=True)
class _Amounts:
    nodes: int
    cpus: int
    memory_bytes: int | None
    gres: tuple[Gres, ...]


class _Sum:
    """Add up the rows that have their names in common."""

    __slots__ = ("cpus", "gres", "jobs", "memory_bytes", "nodes", "times")

    def __init__(self) -> None:
        self.jobs = self.nodes = self.cpus = 0
        self.memory_bytes: int | None = None
        self.gres: dict[tuple[str, str], int] = {}
        self.times: list[tuple[bytes, int]] = []

    def add(self, amounts: _Amounts, times: list[tuple[bytes, int]]) -> None:
        count = times[0][1] if len(times) == 1 else sum([count for _, count in times])
        self.jobs += count
        self.nodes += count * amounts.nodes
        self.cpus += count * amounts.cpus
        if amounts.memory_bytes is not None:
            self.memory_bytes = (self.memory_bytes or 0) + count * amounts.memory_bytes
        for gres in amounts.gres:
            key = (gres.name, gres.model)
            self.gres[key] = self.gres.get(key, 0) + count * gres.count
        self.times += times


def parse_jobs(answer: bytes, *, taken_at_seconds: float, window: StartWindow) -> Jobs:
    """Turn squeue's answer into groups of like jobs, and tell which of them started in the window."""
    if answer and not answer.endswith(b"\n"):
        raise MalformedAnswer("squeue: the answer ends in the middle of a line")
    sums, unreadable_rows = _add_up(answer)
    groups: list[JobGroup] = []
    starts: Counter[tuple[str, str, int]] = Counter()
    for names, total in sums.items():
        try:
            group = _make_group(names, total)
            new_starts = [] if group.state in WAITING_STATES else list(_new_starts(total.times, window))
        except ValueError:
            unreadable_rows += total.jobs
            continue
        groups.append(group)
        for wait_seconds, jobs in new_starts:
            starts[group.partitions[0], group.qos, wait_seconds] += jobs
    return Jobs(
        groups=tuple(groups),
        taken_at_seconds=taken_at_seconds,
        starts=tuple(JobStart(partition, qos, wait, jobs) for (partition, qos, wait), jobs in starts.items()),
        unreadable_rows=unreadable_rows,
    )


def _add_up(answer: bytes) -> tuple[dict[bytes, _Sum], int]:
    """Count equal rows, then add up those with the same names; return the number of odd rows too."""
    times_of: dict[bytes, list[tuple[bytes, int]]] = {}
    for line, count in Counter(answer.split(b"\n")[:-1]).items():
        known, _, times = line.rpartition(b"\x1e")
        if (rows := times_of.get(known)) is None:
            times_of[known] = [(times, count)]
        else:
            rows.append((times, count))
    sums: dict[bytes, _Sum] = {}
    unreadable_rows = 0
    for known, rows in times_of.items():
        names, _, amounts_text = known.partition(b"\x1e")
        try:
            amounts = _parse_amounts(amounts_text)
        except ValueError:
            unreadable_rows += sum(count for _, count in rows)
            continue
        if (total := sums.get(names)) is None:
            total = sums[names] = _Sum()
        total.add(amounts, rows)
    return sums, unreadable_rows


@lru_cache(maxsize=16384)
def _parse_amounts(text: bytes) -> _Amounts:
    nodes, cpus, tres_text = text.decode("ascii").split(SEPARATOR)
    tres = parse_tres(tres_text)
    return _Amounts(_parse_count(nodes), _parse_count(cpus), tres.memory_bytes, tres.gres)


def _make_group(names: bytes, total: _Sum) -> JobGroup:
    account, user, partition, qos, state, reason, features = names.decode("utf-8", "surrogateescape").split(SEPARATOR)
    if not state:
        raise ValueError("the row has no state")
    return JobGroup(
        account=account,
        user=user,
        partitions=tuple(partition.split(",")) if "," in partition else (partition,),
        qos=qos,
        state=state,
        reason=reason,
        features=() if features in ("", "(null)") else tuple(features.split("&")),
        jobs=total.jobs,
        nodes=total.nodes,
        cpus=total.cpus,
        memory_bytes=total.memory_bytes,
        gres=tuple([Gres(name=n, model=m, count=count) for (n, m), count in total.gres.items()]) if total.gres else (),
        # Epoch seconds have the same number of digits until the year 2286, so the least text is the first time.
        first_submit_seconds=int(min(total.times)[0].partition(b"\x1f")[0]),
    )


def _new_starts(times: list[tuple[bytes, int]], window: StartWindow) -> Iterator[tuple[int, int]]:
    """Yield wait and number of jobs for every start in the window."""
    first = str(window.first_seconds).encode()
    for text, jobs in times:
        submit, _, start = text.partition(b"\x1f")
        # Text first, number second: nearly all starts are older than the window.
        if start >= first and start.isdigit() and int(start) < window.end_seconds:
            yield max(0, int(start) - int(submit)), jobs


def _parse_count(text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{text!r} is not a count")
    return int(text)
