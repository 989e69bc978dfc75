# SPDX-License-Identifier: Apache-2.0
"""Answer like sinfo 22.05, which prints a row for each node in each of its partitions, and no FUTURE nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from slurmscope.cluster import discovery, sinfo
from slurmscope.simulator.cluster.records import GpuPool, SimulatedCluster, SimulatedNode
from slurmscope.simulator.cluster.texts import MIB, index_text
from slurmscope.simulator.commands.command_line import WORD, CommandLine, join_lines, read_columns
from slurmscope.slurm.states import node_state_text

HOST_ARGUMENTS = ("--noheader", "--all", "--Node", "--Format=NodeList:\x1f,NodeHost:")
"""Those of ``trace/owners``."""
SIZE_ARGUMENTS = ("--noheader", "--Node", "--all", "--format=%N %c %m")
"""Those of ``reports/resubmission``."""
NAME_ARGUMENTS = ("--noheader", "--Node", "--format=%N")
"""Those of ``reports/series_checks``."""
CHECK_ARGUMENTS = ("--noheader", "--Node", "--format=%N %n")
"""Those of ``node/checks``."""

# The order in which the complete form names the flags.
FLAG_ORDER = (
    "cloud", "completing", "drain", "dynamic_future", "dynamic_norm", "invalid_reg", "fail", "maintenance",
    "power_down", "power_up", "perfctrs", "powered_down", "reboot_requested", "reboot_issued", "reserved", "resume",
    "not_responding", "planned", "powering_up", "powering_down",
)  # fmt: skip


def complete_state(base: str, flags: Collection[str]) -> str:
    """Write the base state and every flag: mixed+cloud+not_responding+powering_up."""
    return "+".join((base, *sorted(flags, key=FLAG_ORDER.index)))


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


def cpus_text(node: SimulatedNode) -> str:
    """Write CPUs as allocated/idle/other/total; only a drained or a down node has others."""
    free = node.cpus - node.cpus_allocated
    other = free if node.base == "down" or "drain" in node.flags else 0
    return f"{node.cpus_allocated}/{free - other}/{other}/{node.cpus}"


def _user_text(node: SimulatedNode) -> str:
    if not node.reason:
        return "Unknown"
    return "root" if node.reason_user is None else node.reason_user.name


def _mib(size_bytes: int | None) -> str:
    return "N/A" if size_bytes is None else str(size_bytes // MIB)


FIELDS: Mapping[str, Callable[[SimulatedNode], str]] = {
    "AllocMem": lambda node: _mib(node.memory_allocated_bytes),
    "CPUsLoad": lambda node: "N/A" if node.cpu_load is None else f"{node.cpu_load:.2f}",
    "CPUsState": cpus_text,
    "Features": lambda node: node.features or "(null)",
    "FreeMem": lambda node: _mib(node.memory_free_bytes),
    "Gres": gres_text,
    "GresUsed": gres_used_text,
    "Memory": lambda node: _mib(node.memory_bytes),
    "NodeAddr": lambda node: node.name,
    "NodeHost": lambda node: node.name,
    "NodeList": lambda node: node.name,
    "Reason": lambda node: node.reason or "none",
    "StateComplete": lambda node: complete_state(node.base, node.flags),
    "StateLong": lambda node: node_state_text(node.base, frozenset(node.flags)),
    "Timestamp": lambda node: str(node.reason_time or "Unknown"),
    "User": _user_text,
    "Weight": lambda node: str(node.weight),
    "N": lambda node: node.name,
    "c": lambda node: str(node.cpus),
    "m": lambda node: _mib(node.memory_bytes),
    "n": lambda node: node.name,
}


def respond(arguments: Sequence[str], cluster: SimulatedCluster) -> bytes:
    """Return the rows of all nodes."""
    columns = read_columns(arguments)
    return join_lines(
        "".join((home if name == "PartitionName" else FIELDS[name](node)) + suffix for name, suffix in columns)
        for node in cluster.nodes
        if node.base != "future"
        for home in node.partitions
    )


LINES = tuple(
    CommandLine("sinfo", arguments, partial(respond, arguments))
    for arguments in (
        sinfo.arguments(WORD),
        discovery.arguments(WORD),
        HOST_ARGUMENTS,
        SIZE_ARGUMENTS,
        ("--clusters=", *SIZE_ARGUMENTS),
        NAME_ARGUMENTS,
        CHECK_ARGUMENTS,
    )
)
