# SPDX-License-Identifier: Apache-2.0
"""Read all nodes and their partitions from an answer in JSON.

Unlike sinfo's columns, JSON also has nodes that are in no partition.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slurmscope.errors import MalformedAnswer
from slurmscope.model.nodes import BASE_STATES, Node, Nodes
from slurmscope.sources.slurm.json.answer import Problem, read_records
from slurmscope.sources.slurm.json.numbers import JsonNumber, whole
from slurmscope.sources.slurm.json.states import node_state_text
from slurmscope.sources.slurm.node_gres import parse_node_gres

SCONTROL_ARGUMENTS = ("--json", "--details", "--all", "show", "nodes")
"""Arguments of scontrol since 23.02; it needs details to report the GRES in use."""

SINFO_ARGUMENTS = ("--json", "--all")
"""Arguments of sinfo in 22.05, whose scontrol has no JSON; later ones return groups of nodes."""

MIB = 1024 * 1024


class NodeRecord(msgspec.Struct, frozen=True, gc=False):
    """Hold the fields of a node that we read, as they come; ``idle_cpus`` and the like follow from others."""

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


_decode_answer = msgspec.json.Decoder(_NodesAnswer).decode
_decode_record = msgspec.json.Decoder(NodeRecord).decode


def parse_nodes(answer: bytes) -> Nodes:
    """Turn an answer of scontrol, of slurmrestd or of sinfo 22.05 into nodes."""
    records, unreadable_records = read_records(answer, _decode_answer, _decode_record, key="nodes")
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
