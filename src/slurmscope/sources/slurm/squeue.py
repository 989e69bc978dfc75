# SPDX-License-Identifier: Apache-2.0
"""Read all jobs of the controller with one squeue call.

``-O`` with a colon, a suffix and no width prints a value whole, never padded and never cut. None
of the columns holds text that a user can choose freely, so no job name can forge a row. Unlike
``-o %C``, the ``-O`` form does not make slurmctld send the detail records of every job.

A row has three parts: names, amounts, times. Equal rows are counted first, then rows that differ but in
their times, and each part is split only once per distinct text. So the cost follows what is different, not
the number of jobs: of 100,000 jobs of a queue full of arrays a handful of rows are left. Job IDs, where they are
requested, come before that and are split off first.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from slurmscope.errors import MalformedAnswer
from slurmscope.gres import Gres
from slurmscope.model.job_states import WAITING_STATES
from slurmscope.model.jobs import NOT_STARTED_STATES, JobGroup, JobOwner, Jobs, JobStart
from slurmscope.tres import parse_tres

SEPARATOR = "\x1f"
PART = "\x1e"
IDS = ("JobID", "ArrayJobID")
NAMES = ("Account", "UserName", "Partition", "QOS", "State", "Reason", "Feature")
AMOUNTS = ("NumNodes", "NumCPUs", "tres-alloc")
TIMES = ("SubmitTime", "StartTime")


def _format(columns: tuple[str, ...], end: str) -> str:
    return "".join(f"{column}:{SEPARATOR}," for column in columns[:-1]) + f"{columns[-1]}:{end}"


_FORMAT = f"{_format(NAMES, PART)},{_format(AMOUNTS, PART)},{_format(TIMES, '')}"
_OPTIONS = ("--noheader", "--all", "--array", "--states=all", "--local")
"""In a federation, plain squeue may list the jobs of all its clusters."""
ARGUMENTS = (*_OPTIONS, f"--Format={_FORMAT}")
ARGUMENTS_WITH_IDS = (*_OPTIONS, f"--Format={_format(IDS, PART)},{_FORMAT}")


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


_Names = tuple[str, str, tuple[str, ...], str, str, str, tuple[str, ...]]
_Start = tuple[bytes, bytes, int]
"""Names and amounts, times, and number of jobs of a row that may have started in the window."""

# Of one reading nearly all names are there again at the next; amounts are few on any cluster.
CACHED_NAMES = 32_768
CACHED_AMOUNTS = 16_384


def parse_jobs(answer: bytes, *, taken_at_seconds: float, window: StartWindow, with_owners: bool = False) -> Jobs:
    """Parse the output of squeue into groups of similar jobs, and the jobs that started in the window.

    ``with_owners`` is whether the rows begin with job IDs.
    """
    if answer and not answer.endswith(b"\n"):
        raise MalformedAnswer("squeue: the answer ends in the middle of a line")
    rows = answer.split(b"\n")[:-1]
    owners: dict[int, JobOwner] = {}
    if with_owners:
        owners = _find_owners(rows)
        rows = [row.partition(b"\x1e")[2] for row in rows]
    counts, starts = _count_rows(rows, window)
    groups: list[JobGroup] = []
    unreadable_rows = 0
    for head, (jobs, times) in counts.items():
        try:
            groups.append(_make_group(head, jobs, times))
        except ValueError:
            unreadable_rows += jobs
    return Jobs(
        groups=tuple(groups),
        taken_at_seconds=taken_at_seconds,
        starts=_count_starts(starts, window),
        unreadable_rows=unreadable_rows,
        owners=owners,
    )


def _find_owners(rows: Iterable[bytes]) -> dict[int, JobOwner]:
    """Return the owners of jobs that started; a row without IDs or names is skipped, and counted later."""
    owners: dict[int, JobOwner] = {}
    arrays: dict[int, JobOwner] = {}
    for row in rows:
        ids, _, rest = row.partition(b"\x1e")
        try:
            job_id, _, array_id = ids.partition(b"\x1f")
            owner = _owner(rest.partition(b"\x1e")[0])
            if owner is not None:
                owners[int(job_id)] = owner
                if array_id != job_id:
                    arrays[int(array_id)] = owner
        except ValueError:
            continue
    return {**arrays, **owners}


@lru_cache(maxsize=CACHED_NAMES)
def _owner(text: bytes) -> JobOwner | None:
    account, user, partitions, _, state, *_ = _parse_names(text)
    return None if state in WAITING_STATES else JobOwner(account, user, partitions[0])


def _count_rows(rows: Sequence[bytes], window: StartWindow) -> tuple[dict[bytes, tuple[int, bytes]], list[_Start]]:
    """Count rows by all but their times, with the earliest of these, and return what may be new starts.

    Epoch seconds have the same number of digits until the year 2286, so the least text is the first time.
    """
    counts: dict[bytes, tuple[int, bytes]] = {}
    starts: list[_Start] = []
    first, end = str(window.first_seconds).encode(), str(window.end_seconds).encode()
    for line, count in Counter(rows).items():
        head, _, times = line.rpartition(b"\x1e")
        if (known := counts.get(head)) is None:
            counts[head] = (count, times)
        else:
            counts[head] = (known[0] + count, min(times, known[1]))
        # As text, and only ten characters of it: nearly all starts are older than the window. Numbers are parsed later.
        if first <= times[-10:] < end:
            starts.append((head, times, count))
    return counts, starts


def _make_group(head: bytes, jobs: int, times: bytes) -> JobGroup:
    names, amounts_text = head.split(b"\x1e")
    nodes, cpus, memory_bytes, gres = _parse_amounts(amounts_text)
    submit, _ = times.split(b"\x1f")
    account, user, partitions, qos, state, reason, features = _parse_names(names)
    # By position, in the order of the fields: by name it takes twice as long, for every group at every reading.
    return JobGroup(
        account,
        user,
        partitions,
        qos,
        state,
        reason,
        features,
        jobs,
        jobs * nodes,
        jobs * cpus,
        None if memory_bytes is None else jobs * memory_bytes,
        gres if jobs == 1 or not gres else tuple(replace(one, count=jobs * one.count) for one in gres),
        int(submit),
    )


@lru_cache(maxsize=CACHED_NAMES)
def _parse_names(text: bytes) -> _Names:
    fields = text.decode("utf-8", "surrogateescape").split(SEPARATOR)
    # The same few texts occur in thousands of rows.
    account, user, partition, qos, state, reason, features = map(sys.intern, fields)
    if not state:
        raise ValueError("the row has no state")
    wanted = () if features in ("", "(null)") else tuple(features.split("&"))
    return account, user, tuple(partition.split(",")), qos, state, reason, wanted


@lru_cache(maxsize=CACHED_AMOUNTS)
def _parse_amounts(text: bytes) -> _Amounts:
    nodes, cpus, tres_text = text.decode("ascii").split(SEPARATOR)
    tres = parse_tres(tres_text)
    return _Amounts(_parse_count(nodes), _parse_count(cpus), tres.memory_bytes, tres.gres)


def _count_starts(new_starts: Iterable[_Start], window: StartWindow) -> tuple[JobStart, ...]:
    starts: Counter[tuple[str, str, int]] = Counter()
    for head, times, jobs in new_starts:
        try:
            group = _make_group(head, jobs, times)
            start = int(times.rpartition(b"\x1f")[2])
        except ValueError:
            continue
        if window.first_seconds <= start < window.end_seconds and group.state not in NOT_STARTED_STATES:
            wait_seconds = max(0, start - group.first_submit_seconds)
            starts[group.partitions[0], group.qos, wait_seconds] += jobs
    return tuple(JobStart(partition, qos, wait, jobs) for (partition, qos, wait), jobs in starts.items())


def _parse_count(text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{text!r} is not a count")
    return int(text)
