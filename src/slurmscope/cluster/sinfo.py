# SPDX-License-Identifier: Apache-2.0
"""Read all nodes and their partitions with one sinfo call.

``-O`` with a colon, a suffix and no width prints a value whole, never padded and never cut. The reason
of a drained node is free text, possibly with newlines, so columns and rows end in marks
made of a word that is new for each call: no text can forge a row.

sinfo lists a node once for each of its partitions, in no fixed order, and not at all when it is in none.
``--local`` keeps the nodes of other members of a federation out, whose names may be the same. The base state is in
sinfo's names: 22.05 calls a draining node allocated where scontrol calls it mixed. One call costs the controller two
requests, for nodes and for partitions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.tres import parse_gres
from slurmscope.core.units import MIB

BASE_STATES = ("allocated", "down", "error", "future", "idle", "mixed", "unknown")
"""Every base state of Slurm; a new one counts as ``unknown``."""

FLAGS = (
    "blocked", "cloud", "completing", "drain", "dynamic_future", "dynamic_norm", "external", "fail", "invalid_reg",
    "maintenance", "not_responding", "perfctrs", "planned", "power_down", "power_up", "powered_down", "powering_down",
    "powering_up", "reboot_issued", "reboot_requested", "reserved", "resume",
)  # fmt: skip
"""The flags of Slurm 22.05 to 26.05; a new one is exported as it is."""

_USABLE_STATES = frozenset({"allocated", "idle", "mixed"})
_UNUSABLE_FLAGS = frozenset(
    {
        "blocked",
        "drain",
        "external",
        "fail",
        "invalid_reg",
        "maintenance",
        "power_down",
        "powering_down",
        "reboot_issued",
    }
)
# A node that is powered down or powering up does not respond either, but Slurm allocates it all the same.
_POWER_SAVING_FLAGS = frozenset({"powered_down", "powering_up"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGres:
    """One generic resource of a node; ``model`` is empty if the site configured none."""

    name: str
    model: str
    total: int
    used: int


class Node(NamedTuple):
    """One node.

    ``base_state`` is one of :data:`BASE_STATES`. ``state_text`` is what ``sinfo --long`` shows: one word and at most
    one suffix, which hides most flags. The reason fields are set for down and drained nodes. ``gres`` is None if it
    could not be parsed.

    A named tuple, because a large cluster has ten thousand nodes at every reading and a frozen dataclass takes five
    times as long to make.
    """

    name: str
    base_state: str
    flags: frozenset[str]
    state_text: str
    partitions: tuple[str, ...]
    cpus_total: int
    cpus_allocated: int
    cpus_idle: int
    memory_bytes: int
    allocated_memory_bytes: int
    weight: int
    free_memory_bytes: int | None = None
    load: float | None = None
    gres: tuple[NodeGres, ...] | None = ()
    reason: str | None = None
    reason_user: str | None = None
    reason_since_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """One snapshot of all nodes; each appears once, also if it is in several partitions.

    ``unreadable_rows`` counts rows that could not be parsed; their nodes are missing.
    """

    nodes: tuple[Node, ...]
    unreadable_rows: int = 0


def can_run_jobs(base_state: str, flags: frozenset[str]) -> bool:
    """Return whether Slurm can start jobs on the idle resources of a node in this state.

    It cannot if the node is down, drained, failing, blocked, in maintenance, about to reboot or to be powered down, or
    does not respond. It can if the node is powered down and will be resumed for the job, is planned for another job (a
    shorter one may run first), or is reserved (for users of the reservation).
    """
    if base_state not in _USABLE_STATES or not _UNUSABLE_FLAGS.isdisjoint(flags):
        return False
    return "not_responding" not in flags or not _POWER_SAVING_FLAGS.isdisjoint(flags)


# Thousands of nodes have few sets of resources, and the same ones at the next call.
CACHED_TEXTS = 4096


@lru_cache(maxsize=CACHED_TEXTS)
def parse_node_gres(total_text: str, used_text: str) -> tuple[NodeGres, ...] | None:
    """Read both texts of a node; None when one is not what Slurm prints.

    Sites without any resource still have ``gpu:0`` in use: what is nowhere and not used is left out.
    """
    try:
        totals = {(found.name, found.model): found.count for found in parse_gres(total_text)}
        used: Counter[tuple[str, str]] = Counter()
        for found in parse_gres(used_text):
            used[_counterpart(found.name, found.model, totals)] += found.count
    except ValueError:
        return None
    keys = [*totals, *(key for key, count in used.items() if count and key not in totals)]
    return tuple(
        NodeGres(name=name, model=model, total=totals.get((name, model), 0), used=used[name, model])
        for name, model in keys
    )


def _counterpart(name: str, model: str, totals: Mapping[tuple[str, str], int]) -> tuple[str, str]:
    """Find the total that a count in use belongs to: one of the two may name no model."""
    if (name, model) in totals:
        return name, model
    if (name, "") in totals:
        return name, ""
    others = [key for key in totals if key[0] == name]
    return others[0] if len(others) == 1 and not model else (name, model)


# Node and partition come first: what follows is the same text in each row of a node and is parsed once.
COLUMNS = (
    "NodeList", "PartitionName", "StateComplete", "StateLong", "CPUsState", "Memory", "AllocMem", "FreeMem", "CPUsLoad",
    "Weight", "Gres", "GresUsed", "User", "Timestamp", "Reason",
)  # fmt: skip

# The columns from CPUsState to Weight. sinfo 22.05 truncates a weight after seven digits without any sign of it.
_NUMBERS = re.compile(
    r"(\d{1,9})/(\d{1,9})/(\d{1,9})/(\d{1,9}) (\d{1,15}) (\d{1,15}) (\d{1,15}|N/A)"
    r" (\d{1,9}(?:\.\d{1,9})?|N/A) (\d{1,15})",
    re.ASCII,
)
_EPOCH = re.compile(r"[0-9]{1,15}")


def arguments(separator: str) -> tuple[str, ...]:
    """Return the arguments of sinfo; ``separator`` is a random word of letters and digits, new for each call."""
    suffixes = [_column_mark(separator)] * (len(COLUMNS) - 1) + [_row_mark(separator)]
    columns = (f"{column}:{suffix}" for column, suffix in zip(COLUMNS, suffixes, strict=True))
    return ("--noheader", "--Node", "--all", "--local", "--Format=" + ",".join(columns))


def parse_nodes(answer: bytes, separator: str) -> Nodes:
    """Read the answer to :func:`arguments` with the same separator."""
    rows = answer.decode("utf-8", "surrogateescape").split(_row_mark(separator) + "\n")
    if rows.pop():
        raise MalformedAnswer("sinfo: the answer ends in the middle of a line")
    mark = _column_mark(separator)
    texts: dict[str, str] = {}
    partitions: dict[str, list[str]] = {}
    for row in rows:
        name, _, rest = row.partition(mark)
        partition, _, text = rest.partition(mark)
        if texts.setdefault(name, text) == text:
            partitions.setdefault(name, []).append(partition)
    parsed = (_parse_node(name, partitions[name], text.split(mark)) for name, text in texts.items())
    nodes = tuple(node for node in parsed if node)
    if rows and not nodes:
        raise MalformedAnswer(f"sinfo: none of {len(rows)} rows has the requested columns")
    readable_rows = sum(len(partitions[node.name]) for node in nodes)
    return Nodes(nodes=nodes, unreadable_rows=len(rows) - readable_rows)


def _column_mark(separator: str) -> str:
    # The bracket keeps sinfo from reading leading digits as a width, and the two kinds of mark apart.
    return f"<{separator}"


def _row_mark(separator: str) -> str:
    return f">{separator}"


def _parse_node(name: str, partitions: Iterable[str], fields: Sequence[str]) -> Node | None:
    if len(fields) != len(COLUMNS) - 2 or name.split() != [name]:
        return None
    state, state_text, *amounts, gres, gres_used, user, since, reason = fields
    found = _NUMBERS.fullmatch(" ".join(amounts))
    if not found or not state_text:
        return None
    base_state, flags = parse_state(state)
    allocated, idle, _, total, memory, allocated_memory, free_memory, load, weight = found.groups()
    has_reason = reason not in {"", "none"}
    return Node(
        name=name,
        base_state=base_state,
        flags=flags,
        state_text=state_text,
        partitions=tuple(sorted(set(partitions))),
        cpus_total=int(total),
        cpus_allocated=int(allocated),
        cpus_idle=int(idle),
        memory_bytes=int(memory) * MIB,
        allocated_memory_bytes=int(allocated_memory) * MIB,
        weight=int(weight),
        free_memory_bytes=None if free_memory == "N/A" else int(free_memory) * MIB,
        load=None if load == "N/A" else float(load),
        gres=parse_node_gres(gres, gres_used),
        # User and time outlive the reason they belong to.
        reason=reason if has_reason else None,
        reason_user=user if has_reason and user != "Unknown" else None,
        reason_since_seconds=int(since) if has_reason and _EPOCH.fullmatch(since) else None,
    )


@lru_cache(maxsize=CACHED_TEXTS)
def parse_state(text: str) -> tuple[str, frozenset[str]]:
    """Split ``mixed+cloud+not_responding``."""
    base, *flags = text.lower().split("+")
    return base if base in BASE_STATES else "unknown", frozenset(flags)
