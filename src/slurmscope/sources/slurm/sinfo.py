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
from collections.abc import Iterable, Sequence
from functools import lru_cache

from slurmscope.errors import MalformedAnswer
from slurmscope.model.nodes import BASE_STATES, Node, Nodes
from slurmscope.sources.slurm.node_gres import parse_node_gres

MIB = 1024 * 1024

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

# Thousands of nodes have few states and few sets of resources, and the same ones at the next call.
CACHED_TEXTS = 4096


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
