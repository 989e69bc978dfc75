# SPDX-License-Identifier: Apache-2.0
"""Read all jobs, nodes and partitions of the controller from JSON.

Unlike sinfo's columns, JSON also has nodes that are in no partition.

The groups are those of squeue's columns: values that JSON has in another form are converted to squeue's names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from slurmscope.cluster.sinfo import BASE_STATES, Node, Nodes, parse_node_gres
from slurmscope.cluster.squeue import (
    NOT_STARTED_STATES,
    JobGroup,
    JobOwner,
    Jobs,
    JobStart,
    StartWindow,
    parse_features,
)
from slurmscope.core.errors import MalformedAnswer, TruncatedArrays
from slurmscope.core.tres import Tres, as_gres, parse_tres
from slurmscope.core.units import MIB
from slurmscope.slurm.json_response import JsonNumber, Problem, read_records, whole
from slurmscope.slurm.states import job_state, node_state_text
from slurmscope.slurm.text import count_tasks, is_cut

SQUEUE_ARGUMENTS = ("--json", "--all", "--array", "--states=all")
"""``--array`` makes squeue write the list of an array's tasks in full; JSON has one record for all of them."""

NOTHING = "(null)"
"""What squeue prints for an account or a QOS that a job does not have."""


class JsonJob(msgspec.Struct, frozen=True, gc=False):
    """The fields of a job that we read, as they come."""

    job_id: JsonNumber = None
    array_job_id: JsonNumber = None
    job_state: str | list[str] | None = None
    account: str | None = None
    user_name: str | None = None
    user_id: JsonNumber = None
    partition: str | None = None
    qos: str | None = None
    state_reason: str | None = None
    state_description: str | None = None
    features: str | None = None
    node_count: JsonNumber = None
    cpus: JsonNumber = None
    tres_alloc_str: str | None = None
    tres_req_str: str | None = None
    array_task_string: str | None = None
    submit_time: JsonNumber = None
    start_time: JsonNumber = None


class _JobsAnswer(msgspec.Struct, frozen=True):
    records: list[JsonJob] | None = msgspec.field(default=None, name="jobs")
    errors: list[Problem] | None = None


_decode_job_list = msgspec.json.Decoder(_JobsAnswer).decode
_decode_job = msgspec.json.Decoder(JsonJob).decode
_parse_tres = lru_cache(maxsize=16384)(parse_tres)


class _Sum:
    """Add up the jobs that have their names in common."""

    __slots__ = ("cpus", "first_submit_seconds", "gres", "jobs", "memory_bytes", "nodes")

    def __init__(self, submit_seconds: int) -> None:
        self.jobs = self.nodes = self.cpus = 0
        self.memory_bytes: int | None = None
        self.gres: Counter[tuple[str, str]] = Counter()
        self.first_submit_seconds = submit_seconds

    def add(self, jobs: int, nodes: int, cpus: int, tres: Tres) -> None:
        self.jobs += jobs
        self.nodes += jobs * nodes
        self.cpus += jobs * cpus
        if tres.memory_bytes is not None:
            self.memory_bytes = (self.memory_bytes or 0) + jobs * tres.memory_bytes
        for gres in tres.gres:
            self.gres[gres.name, gres.model] += jobs * gres.count


_Names = tuple[str, str, str, str, str, str, str]


class _Tally:
    """Take jobs in, one record after the other."""

    def __init__(self, window: StartWindow) -> None:
        self.sums: dict[_Names, _Sum] = {}
        self.starts: Counter[tuple[str, str, int]] = Counter()
        self.unreadable_rows = 0
        self.truncated_arrays = 0
        self._window = window

    def take(self, record: JsonJob) -> None:
        """Count a job, or all tasks of an array; one without a state, times or amounts is counted as unreadable."""
        tasks = record.array_task_string or ""
        if is_cut(tasks):
            self.truncated_arrays += 1
            return
        try:
            jobs = count_tasks(tasks) if tasks else 1
            tres = _parse_tres(record.tres_alloc_str or record.tres_req_str or "")
        except ValueError:
            self.unreadable_rows += 1
            return
        names = _names(record)
        submit, nodes, cpus = whole(record.submit_time), whole(record.node_count), whole(record.cpus)
        if cpus is None:  # v0.0.38 lacks it for jobs that were cancelled before they started
            cpus = tres.cpus
        if submit is None or nodes is None or cpus is None or not names[4]:
            self.unreadable_rows += jobs
            return
        if (total := self.sums.get(names)) is None:
            total = self.sums[names] = _Sum(submit)
        total.add(jobs, nodes, cpus, tres)
        total.first_submit_seconds = min(submit, total.first_submit_seconds)
        start = whole(record.start_time)
        if start and self._is_new(start) and names[4] not in NOT_STARTED_STATES:
            self.starts[names[2].partition(",")[0], names[3], max(0, start - submit)] += jobs

    def _is_new(self, start_seconds: int) -> bool:
        return self._window.first_seconds <= start_seconds < self._window.end_seconds


def parse_jobs(answer: bytes, *, taken_at_seconds: float, window: StartWindow, with_owners: bool = False) -> Jobs:
    """Parse an answer into groups of similar jobs, and the jobs that started in the window."""
    records, unreadable_records = read_records(answer, _decode_job_list, _decode_job, key="jobs")
    tally = _Tally(window)
    for record in records:
        tally.take(record)
    if tally.truncated_arrays:
        raise TruncatedArrays(
            f"the task lists of {tally.truncated_arrays} job arrays end in '...': slurmrestd truncates them after 64"
            " characters unless SLURM_BITSTR_LEN=0 is in its environment"
        )
    if records and not tally.sums:
        raise MalformedAnswer(f"none of {len(records)} jobs in the answer of Slurm has the fields that we know")
    return Jobs(
        groups=tuple(_make_group(names, total) for names, total in tally.sums.items()),
        taken_at_seconds=taken_at_seconds,
        starts=tuple(JobStart(*key, jobs) for key, jobs in tally.starts.items()),
        unreadable_rows=unreadable_records + tally.unreadable_rows,
        owners=_find_owners(records) if with_owners else {},
    )


def _find_owners(records: Iterable[JsonJob]) -> dict[int, JobOwner]:
    """Return the owners of jobs, by job ID and by the ID of their array."""
    owners: dict[int, JobOwner] = {}
    arrays: dict[int, JobOwner] = {}
    for record in records:
        account, user, partition, _, state, *_ = _names(record)
        job_id, array_id = whole(record.job_id), whole(record.array_job_id)
        if job_id is not None and state:
            owners[job_id] = JobOwner(account, user, partition.partition(",")[0])
            if array_id:
                arrays[array_id] = owners[job_id]
    return {**arrays, **owners}


def _names(record: JsonJob) -> _Names:
    return (
        record.account or NOTHING,
        record.user_name or _unnamed_user(record),
        record.partition or NOTHING,
        record.qos or NOTHING,
        job_state(record.job_state),
        _reason(record),
        record.features or "",
    )


def _reason(record: JsonJob) -> str:
    """Return the reason with its details, if the description begins with it; other descriptions are sentences."""
    reason, description = record.state_reason or "", record.state_description or ""
    return description if description.startswith(f"{reason},") else reason or description


def _unnamed_user(record: JsonJob) -> str:
    """Return the user ID as text where the host of slurmrestd has no name for it; squeue shows 'nobody' for all."""
    uid = whole(record.user_id)
    return "nobody" if uid is None else str(uid)


def _make_group(names: _Names, total: _Sum) -> JobGroup:
    account, user, partition, qos, state, reason, features = names
    return JobGroup(
        account=account,
        user=user,
        partitions=tuple(partition.split(",")),
        qos=qos,
        state=state,
        reason=reason,
        features=parse_features(features),
        jobs=total.jobs,
        nodes=total.nodes,
        cpus=total.cpus,
        memory_bytes=total.memory_bytes,
        gres=as_gres(total.gres.items()),
        first_submit_seconds=total.first_submit_seconds,
    )


SCONTROL_ARGUMENTS = ("--json", "--details", "--all", "show", "nodes")
"""Arguments of scontrol since 23.02; it needs details to report the GRES in use."""

SINFO_ARGUMENTS = ("--json", "--all")
"""Arguments of sinfo in 22.05, whose scontrol has no JSON; later ones return groups of nodes."""


class NodeRecord(msgspec.Struct, frozen=True, gc=False):
    """The fields of a node that we read, as they come; ``idle_cpus`` and the like follow from others."""

    name: str | None = None
    state: str | list[str] | None = None
    state_flags: list[str] | None = None
    partitions: list[str] | str | None = None
    cpus: JsonNumber = None
    alloc_cpus: JsonNumber = None
    real_memory: JsonNumber = None
    alloc_memory: JsonNumber = None
    free_mem: JsonNumber = None
    free_memory: JsonNumber = None
    cpu_load: JsonNumber = None
    weight: JsonNumber = None
    gres: str | None = None
    gres_used: str | None = None
    reason: str | None = None
    reason_set_by_user: str | None = None
    reason_changed_at: JsonNumber = None


class _NodesAnswer(msgspec.Struct, frozen=True):
    records: list[NodeRecord] | None = msgspec.field(default=None, name="nodes")
    errors: list[Problem] | None = None


_decode_node_list = msgspec.json.Decoder(_NodesAnswer).decode
_decode_node = msgspec.json.Decoder(NodeRecord).decode


def parse_nodes(answer: bytes) -> Nodes:
    """Turn an answer of scontrol, of slurmrestd or of sinfo 22.05 into nodes."""
    records, unreadable_records = read_records(answer, _decode_node_list, _decode_node, key="nodes")
    nodes = tuple(node for node in map(_make_node, records) if node)
    if records and not nodes:
        raise MalformedAnswer(f"none of {len(records)} nodes in the answer of Slurm has the fields that we know")
    return Nodes(nodes=nodes, unreadable_rows=unreadable_records + len(records) - len(nodes))


def _make_node(record: NodeRecord) -> Node | None:
    """Make a node, or None of a record that lacks its name, its state or an amount that every node has."""
    total, allocated = whole(record.cpus), whole(record.alloc_cpus)
    memory, allocated_memory, weight = map(whole, (record.real_memory, record.alloc_memory, record.weight))
    if total is None or allocated is None or memory is None or allocated_memory is None or weight is None:
        return None
    base, flags = _read_state(record)
    if not record.name or not base:
        return None
    free_memory, load = whole(record.free_mem), whole(record.cpu_load)
    if free_memory is None:
        free_memory = whole(record.free_memory)
    reason = record.reason or None
    return Node(
        name=record.name,
        base_state=base if base in BASE_STATES else "unknown",
        flags=flags,
        state_text=node_state_text(base, flags),
        partitions=_read_partitions(record.partitions),
        cpus_total=total,
        cpus_allocated=allocated,
        # As sinfo counts: what is not allocated of a node that is down or drained is not idle.
        cpus_idle=0 if base == "down" or "drain" in flags else max(0, total - allocated),
        memory_bytes=memory * MIB,
        allocated_memory_bytes=allocated_memory * MIB,
        weight=weight,
        free_memory_bytes=None if free_memory is None else free_memory * MIB,
        load=None if load is None else load / 100,
        gres=parse_node_gres(record.gres or "", record.gres_used or ""),
        # User and time outlive the reason they belong to.
        reason=reason,
        reason_user=(record.reason_set_by_user or None) if reason else None,
        reason_since_seconds=whole(record.reason_changed_at) if reason else None,
    )


def _read_state(record: NodeRecord) -> tuple[str, frozenset[str]]:
    """Return base state and flags in lower case, as sinfo writes them in its complete form."""
    given = [record.state] if isinstance(record.state, str) else record.state or [""]
    base, *flags = (name.lower() for name in (*given, *(record.state_flags or ())))
    return base, frozenset(flags)


def _read_partitions(given: Sequence[str] | None) -> tuple[str, ...]:
    names = given.split(",") if isinstance(given, str) else given or ()
    return tuple(sorted({name for name in names if name}))
