# SPDX-License-Identifier: Apache-2.0
"""Write simulated nodes as ``scontrol --details --oneliner show nodes`` of 22.05 does.

A record is stored in three parts, because the time of a reason depends on the caller's time zone: what
precedes that time, the time itself, and what follows.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.simulate.cluster.records import SimulatedCluster, SimulatedNode
from slurmscope.simulate.cluster.texts import MIB
from slurmscope.simulate.commands.node_fields import gres_text, gres_used_text
from slurmscope.simulate.commands.node_states import complete_state

_LINE_END = " " + " " * 7


def make_nodes(cluster: SimulatedCluster) -> Iterator[tuple[str, str, str]]:
    """Yield the three parts of each node; one that is not there yet is not shown."""
    for node in cluster.nodes:
        if node.base != "future":
            yield _node(node)


def _node(node: SimulatedNode) -> tuple[str, str, str]:
    text = f"{_head(node)} {_sizes(node)} {_tail(node)}"
    if not node.reason:
        return text, "", ""
    user = "root" if node.reason_user is None else node.reason_user.name
    # Line ends are gone, and the author stands behind the first line.
    first, *further = [line for line in node.reason.split("\n") if line] or [""]
    return f"{text} Reason={first} [{user}@", str(node.reason_time), "]" + "".join(_LINE_END + line for line in further)


def _head(node: SimulatedNode) -> str:
    load = "N/A" if node.cpu_load is None else f"{node.cpu_load:.2f}"
    features = node.features or "(null)"
    return (
        f"NodeName={node.name} CoresPerSocket={node.cpus // 2}  CPUAlloc={node.cpus_allocated} CPUEfctv={node.cpus}"
        f" CPUTot={node.cpus} CPULoad={load} AvailableFeatures={features} ActiveFeatures={features}"
        f" Gres={gres_text(node)} GresDrain=N/A GresUsed={gres_used_text(node)}"
        f" NodeAddr={node.name} NodeHostName={node.name} "
    )


def _sizes(node: SimulatedNode) -> str:
    free = "N/A" if node.memory_free_bytes is None else str(node.memory_free_bytes // MIB)
    state = complete_state(node.base, node.flags).upper()
    return (
        f"RealMemory={node.memory_bytes // MIB} AllocMem={node.memory_allocated_bytes // MIB} FreeMem={free}"
        f" Sockets=2 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight={node.weight} Owner=N/A MCS_label=N/A"
    )


def _tail(node: SimulatedNode) -> str:
    partitions = f"Partitions={','.join(node.partitions)} " if node.partitions else ""
    return (
        f"{partitions} BootTime=None SlurmdStartTime=None LastBusyTime=Unknown"
        f" CfgTRES=cpu={node.cpus},mem={node.memory_bytes // MIB}M,billing={node.cpus} AllocTRES= CapWatts=n/a"
        " CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s"
    )
