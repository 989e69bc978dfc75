# SPDX-License-Identifier: Apache-2.0
"""Read all jobs of the controller with one squeue call, in groups, and count how long started jobs waited.

``-O`` with a colon, a suffix and no width prints a value whole, never padded and never cut. None
of the columns holds text that a user can choose freely, so no job name can forge a row. Unlike
``-o %C``, the ``-O`` form does not make slurmctld send the detail records of every job.

A row has three parts: names, amounts, times. Equal rows are counted first, then rows that differ but in
their times, and each part is split only once per distinct text. So the cost follows what is different, not
the number of jobs: of 100,000 jobs of a queue full of arrays a handful of rows are left. Job IDs, where they are
requested, come before that and are split off first.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.tres import Gres, parse_tres
from slurmscope.slurm.states import ENDED_STATES, WAITING_STATES

NOT_STARTED_STATES = WAITING_STATES | {"CANCELLED", "DEADLINE"}
"""States in which a job has not started, has to start again, or may never have started.

Slurm sets a start time on jobs that are cancelled while pending. One that really started was seen running before.
"""

WAIT_BUCKETS_SECONDS = (
    1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 3 * 3600.0, 12 * 3600.0, 86400.0, 3 * 86400.0, 7 * 86400.0,
)  # fmt: skip
"""Upper bounds of the wait time histogram: from a second to a week."""

_BETWEEN_FEATURES = re.compile(r"[&|,()\[\]]")


class JobGroup(NamedTuple):
    """Sums over jobs that have account, user and so on in common.

    ``jobs`` is their number; a pending array of 1,000 tasks counts as 1,000. The numbers after it are sums over all of
    them: allocated resources, or requested ones while pending. ``partitions`` has more than one name if a pending job
    may start in any of them.

    A named tuple, because a large cluster has tens of thousands of groups at every reading and a frozen dataclass
    takes five times as long to make.
    """

    account: str
    user: str
    partitions: tuple[str, ...]
    qos: str
    state: str
    reason: str
    features: tuple[str, ...]
    jobs: int
    nodes: int
    cpus: int
    memory_bytes: int | None
    gres: tuple[Gres, ...]
    first_submit_seconds: int

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED_STATES


@dataclass(frozen=True, slots=True)
class JobStart:
    """A number of jobs that started after the same wait time."""

    partition: str
    qos: str
    wait_seconds: int
    jobs: int


@dataclass(frozen=True, slots=True)
class WaitTally:
    """The wait time histogram since the exporter started; the last bucket has no upper bound."""

    counts: tuple[int, ...]
    total_seconds: float


class JobOwner(NamedTuple):
    """Who runs a job, and where."""

    account: str
    user: str
    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """One snapshot of all jobs known to the controller.

    ``starts`` are the jobs that started in the time window of the snapshot; ``waits`` sums them by partition and QOS
    over all snapshots. ``unreadable_rows`` counts rows that could not be parsed; they are in no group. ``owners``
    holds jobs by their ID and by the ID of their array; empty unless it was requested.
    """

    groups: tuple[JobGroup, ...]
    taken_at_seconds: float
    starts: tuple[JobStart, ...] = ()
    waits: Mapping[tuple[str, str], WaitTally] = field(default_factory=dict)
    unreadable_rows: int = 0
    owners: Mapping[int, JobOwner] = field(default_factory=dict)


class ListedJob(NamedTuple):
    """One job, or all pending tasks of an array."""

    job_id: str
    array_job_id: str
    array_tasks: str
    het_job_id: str
    user: str
    account: str
    partition: str
    qos: str
    state: str
    node_list: str
    name: str
    cpus: int
    memory_bytes: int | None


class JobList(NamedTuple):
    """Every job known to the controller, newest submission first for each job ID."""

    jobs: tuple[ListedJob, ...]
    unreadable_rows: int = 0


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
    """Return the owners of all jobs; a row without IDs or names is skipped, and counted later."""
    owners: dict[int, JobOwner] = {}
    arrays: dict[int, JobOwner] = {}
    for row in rows:
        ids, _, rest = row.partition(b"\x1e")
        try:
            job_id, _, array_id = ids.partition(b"\x1f")
            owner = _owner(rest.partition(b"\x1e")[0])
            owners[int(job_id)] = owner
            if array_id != job_id:
                arrays[int(array_id)] = owner
        except ValueError:
            continue
    return {**arrays, **owners}


@lru_cache(maxsize=CACHED_NAMES)
def _owner(text: bytes) -> JobOwner:
    account, user, partitions, *_ = _parse_names(text)
    return JobOwner(account, user, partitions[0])


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
    wanted = () if features == "(null)" else parse_features(features)
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


@lru_cache(maxsize=4096)
def parse_features(text: str) -> tuple[str, ...]:
    """Return the names in a constraint such as ``[rack1*2&rack2*4]`` or ``(intel|amd)&ib``."""
    words = (word.partition("*")[0] for word in _BETWEEN_FEATURES.split(text))
    return tuple(dict.fromkeys(word for word in words if word))


def _parse_count(text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{text!r} is not a count")
    return int(text)


ReadJobs = Callable[[StartWindow, float], Jobs]
"""Read the current jobs from any backend; see slurmscope.cluster.backends."""

LAG_SECONDS = 5
"""Tolerated difference to the controller's clock: starts are counted only when they are this old."""


class QueueReader:
    """Read jobs so that each start is counted once: the windows of start times follow each other without gaps.

    Jobs that start and end between two readings are counted too, because the controller keeps ended jobs for a while
    (MinJobAge). A failed reading does not move the window. When the clock is set back, the windows begin again there,
    and starts that were counted before are left out as the windows pass them.
    """

    def __init__(self, read_jobs: ReadJobs, wall_clock: Callable[[], float]) -> None:
        """Start counting now; jobs that started earlier are not counted."""
        self._read_jobs = read_jobs
        self._wall_clock = wall_clock
        self._counted_until = int(wall_clock()) - LAG_SECONDS
        self._waits: dict[tuple[str, str], WaitTally] = {}
        self._counted: Counter[tuple[str, str, int]] = Counter()
        self._passed_at = 0

    def read(self) -> Jobs:
        """Return the current jobs, with the wait times of all starts so far."""
        now = self._wall_clock()
        until = int(now) - LAG_SECONDS
        is_set_back = until < self._counted_until
        window = StartWindow(*sorted((self._counted_until, until)))
        jobs = self._read_jobs(window, now)
        self._counted_until = until
        if is_set_back:
            self._counted.update(_by_wait(jobs.starts))
            self._passed_at = max(self._passed_at, window.end_seconds)
        else:
            self._waits = add_starts(self._waits, self._leave_out_counted(jobs.starts))
        return replace(jobs, waits=self._waits)

    def _leave_out_counted(self, starts: Iterable[JobStart]) -> Iterable[JobStart]:
        if not self._counted:
            return starts
        found = _by_wait(starts)
        new, self._counted = found - self._counted, self._counted - found
        if self._counted_until >= self._passed_at:
            self._counted.clear()
        return [JobStart(*key, jobs) for key, jobs in new.items()]


def _by_wait(starts: Iterable[JobStart]) -> Counter[tuple[str, str, int]]:
    return Counter({(start.partition, start.qos, start.wait_seconds): start.jobs for start in starts})


def add_starts(waits: dict[tuple[str, str], WaitTally], starts: Iterable[JobStart]) -> dict[tuple[str, str], WaitTally]:
    """Return new histograms with the starts added; one that is being served is never changed."""
    waits = dict(waits)
    for start in starts:
        key = (start.partition, start.qos)
        before = waits.get(key) or WaitTally((0,) * (len(WAIT_BUCKETS_SECONDS) + 1), 0.0)
        counts = list(before.counts)
        counts[bisect_left(WAIT_BUCKETS_SECONDS, start.wait_seconds)] += start.jobs
        waits[key] = WaitTally(tuple(counts), before.total_seconds + start.wait_seconds * start.jobs)
    return waits
