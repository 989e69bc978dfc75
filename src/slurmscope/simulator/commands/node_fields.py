# SPDX-License-Identifier: Apache-2.0
"""Describe how sinfo prints each field of a node in a partition.

The long form is one word and at most one suffix, so it hides most of what the flags say. The rules below give the same
text as the state functions of Slurm 22.05.8 for every state that the simulation uses.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmscope.simulator.cluster.texts import MIB, duration_text, index_text
from slurmscope.simulator.commands.listing import VERSION, Field

if TYPE_CHECKING:
    from slurmscope.simulator.cluster.records import GpuPool, Partition, SimulatedNode


BUSY = frozenset({"allocated", "mixed"})

_SHORT_WORDS = {
    "allocated": "alloc", "completing": "comp", "down": "down", "drained": "drain", "draining": "drng", "fail": "fail",
    "failing": "failg", "future": "futr", "idle": "idle", "inval": "inval", "maint": "maint", "mixed": "mix",
    "perfctrs": "npc", "planned": "plnd", "reboot": "boot", "reserved": "resv", "unknown": "unk", "error": "?",
}  # fmt: skip

# The first flag that is set gives the suffix.
_SUFFIXES = (
    ("maintenance", "$"), ("reboot_issued", "^"), ("reboot_requested", "@"), ("powering_up", "#"),
    ("powering_down", "%"), ("powered_down", "~"), ("power_down", "!"), ("not_responding", "*"),
)  # fmt: skip

# The order in which the complete form names the flags.
FLAG_ORDER = (
    "cloud", "completing", "drain", "dynamic_future", "dynamic_norm", "invalid_reg", "fail", "maintenance",
    "power_down", "power_up", "perfctrs", "powered_down", "reboot_requested", "reboot_issued", "reserved", "resume",
    "not_responding", "planned", "powering_up", "powering_down",
)  # fmt: skip


def complete_state(base: str, flags: Collection[str]) -> str:
    """Write the base state and every flag: mixed+cloud+not_responding+powering_up."""
    return "+".join((base, *sorted(flags, key=FLAG_ORDER.index)))


def long_state(base: str, flags: Collection[str]) -> str:
    """Write the extended form: draining, idle~, mixed-."""
    word, suffix = _word_and_suffix(base, frozenset(flags))
    return ("?" if word == "error" else word) + suffix


def compact_state(base: str, flags: Collection[str]) -> str:
    """Write the short form: drng, idle~, mix-."""
    word, suffix = _word_and_suffix(base, frozenset(flags))
    return _SHORT_WORDS[word] + suffix


def _word_and_suffix(base: str, flags: frozenset[str]) -> tuple[str, str]:
    word = _word(base, flags)
    suffix = _suffix(word, flags)
    if word == "idle" and not suffix:
        # A reservation or a plan gives an idle node its own word, but only where no suffix speaks first.
        word = next((flag for flag in ("perfctrs", "reserved", "planned") if flag in flags), word)
    return word, suffix


def _word(base: str, flags: frozenset[str]) -> str:
    is_busy, is_completing = base in BUSY, "completing" in flags
    rules = (
        ("invalid_reg" in flags, "inval"),
        ("maintenance" in flags and "drain" not in flags and not is_busy and base != "down", "maint"),
        (bool(flags & {"reboot_requested", "reboot_issued"}) and not is_busy, "reboot"),
        ("drain" in flags, "draining" if is_busy or is_completing else "drained"),
        ("fail" in flags, "failing" if base == "allocated" or is_completing else "fail"),
        (is_completing and base not in {"allocated", "down"}, "completing"),
    )
    return next((word for holds, word in rules if holds), base)


def _suffix(word: str, flags: frozenset[str]) -> str:
    if word in {"inval", "error"}:
        return ""
    if word == "reboot" and "reboot_issued" in flags:
        return "^"
    if word in {"fail", "failing", "maint", "reboot", "unknown"}:
        return "*" if "not_responding" in flags else ""
    found = next((suffix for flag, suffix in _SUFFIXES if flag in flags), "")
    if not found and word == "allocated" and "completing" in flags:
        return "+"
    return "-" if not found and word == "mixed" and "planned" in flags else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Hold a node in one of its partitions: one row of ``sinfo -N``."""

    node: SimulatedNode
    partition: Partition
    partition_number: int


def cpus_text(node: SimulatedNode) -> str:
    """Write CPUs as allocated/idle/other/total; only a drained or a down node has others."""
    free = node.cpus - node.cpus_allocated
    other = free if node.base == "down" or "drain" in node.flags else 0
    return f"{node.cpus_allocated}/{free - other}/{other}/{node.cpus}"


def nodes_text(node: SimulatedNode) -> str:
    """Write a node as allocated/idle/other/total."""
    if node.base in BUSY or "completing" in node.flags:
        return "1/0/0/1"
    return "0/0/1/1" if node.base == "down" or "drain" in node.flags else "0/1/0/1"


def gres_text(node: SimulatedNode) -> str:
    """Write generic resources the way the site of this node configured them."""
    parts = [_typed("gpu", pool.type, pool.total) + _sockets(node) for pool in node.gpus]
    for kind, each in _extras(node):
        parts += [_typed(kind, pool.type, pool.total * each) + _sockets(node) for pool in node.gpus]
    return ",".join(parts) or "(null)"


def gres_used_text(node: SimulatedNode) -> str:
    """Write what of the generic resources is in use."""
    parts = [_typed("gpu", pool.type, pool.used) + _indexes(node, pool) for pool in node.gpus]
    for kind, each in _extras(node):
        shares = ",".join(f"0/{each}" for _ in range(node.gpus[0].total))
        parts.append(_typed(kind, node.gpus[0].type, 0) + f"({shares})")
    return ",".join(parts) or "gpu:0"


def _typed(kind: str, type_name: str, count: int) -> str:
    return f"{kind}:{type_name}:{count}" if type_name else f"{kind}:{count}"


def _extras(node: SimulatedNode) -> tuple[tuple[str, int], ...]:
    """Name the shares of a GPU that some sites hand out, and how many a device has."""
    return {3: (("shard", 4),), 4: (("mps", 100),)}.get(node.dialect, ()) if node.gpus else ()


def _sockets(node: SimulatedNode) -> str:
    return "(S:0-1)" if node.dialect in {0, 3} else ""


def _indexes(node: SimulatedNode, pool: GpuPool) -> str:
    if node.dialect in {1, 4}:
        return ""
    return f"(IDX:{index_text(range(pool.used)) if pool.used else 'N/A'})"


def _reason_user(node: SimulatedNode) -> str:
    return "root" if node.reason_user is None else node.reason_user.name


def _reason_user_long(node: SimulatedNode) -> str:
    return f"{_reason_user(node)}({0 if node.reason_user is None else node.reason_user.uid})"


def _limit(partition: Partition) -> str:
    return "infinite" if partition.time_limit_seconds is None else duration_text(partition.time_limit_seconds)


def _mib(size_bytes: int | None) -> str:
    return "N/A" if size_bytes is None else str(size_bytes // MIB)


FIELDS: dict[str, Field[Member]] = {
    "allocmem": Field(header="ALLOCMEM", text=lambda row: _mib(row.node.memory_allocated_bytes)),
    "available": Field(header="AVAIL", text=lambda _row: "up"),
    "cores": Field(header="CORES", text=lambda row: str(row.node.cpus // 2)),
    "cpus": Field(header="CPUS", text=lambda row: str(row.node.cpus)),
    "cpusload": Field(
        header="CPU_LOAD", text=lambda row: "N/A" if row.node.cpu_load is None else f"{row.node.cpu_load:.2f}"
    ),
    "cpusstate": Field(header="CPUS(A/I/O/T)", text=lambda row: cpus_text(row.node)),
    "disk": Field(header="TMP_DISK", text=lambda _row: "0"),
    "features": Field(header="AVAIL_FEATURES", text=lambda row: row.node.features or "(null)"),
    "features_act": Field(header="ACTIVE_FEATURES", text=lambda row: row.node.features or "(null)"),
    "freemem": Field(header="FREE_MEM", text=lambda row: _mib(row.node.memory_free_bytes)),
    "gres": Field(header="GRES", text=lambda row: gres_text(row.node)),
    "gresused": Field(header="GRES_USED", text=lambda row: gres_used_text(row.node)),
    "memory": Field(header="MEMORY", text=lambda row: _mib(row.node.memory_bytes)),
    "nodeai": Field(header="NODES(A/I)", text=lambda row: nodes_text(row.node)[:3]),
    "nodeaiot": Field(header="NODES(A/I/O/T)", text=lambda row: nodes_text(row.node)),
    "nodeaddr": Field(header="NODE_ADDR", text=lambda row: row.node.name),
    "nodehost": Field(header="HOSTNAMES", text=lambda row: row.node.name),
    "nodelist": Field(header="NODELIST", text=lambda row: row.node.name),
    "nodes": Field(header="NODES", text=lambda _row: "1"),
    "partition": Field(
        header="PARTITION", text=lambda row: row.partition.name + ("*" if row.partition.is_default else "")
    ),
    "partitionname": Field(header="PARTITION", text=lambda row: row.partition.name),
    "prioritytier": Field(header="PRIO_TIER", text=lambda row: str(row.partition.priority_tier)),
    "reason": Field(header="REASON", text=lambda row: row.node.reason or "none"),
    "statecompact": Field(header="STATE", text=lambda row: compact_state(row.node.base, row.node.flags)),
    "statecomplete": Field(header="STATECOMPLETE", text=lambda row: complete_state(row.node.base, row.node.flags)),
    "statelong": Field(header="STATE", text=lambda row: long_state(row.node.base, row.node.flags)),
    "time": Field(header="TIMELIMIT", text=lambda row: _limit(row.partition)),
    "timestamp": Field(header="TIMESTAMP", text=lambda row: str(row.node.reason_time or "Unknown"), is_time=True),
    "user": Field(header="USER", text=lambda row: _reason_user(row.node) if row.node.reason else "Unknown"),
    "userlong": Field(header="USER", text=lambda row: _reason_user_long(row.node) if row.node.reason else "Unknown"),
    "version": Field(
        header="VERSION", text=lambda row: "N/A" if row.node.cpu_load is None else VERSION.rpartition(" ")[2]
    ),
    "weight": Field(header="WEIGHT", text=lambda row: str(row.node.weight)),
}
