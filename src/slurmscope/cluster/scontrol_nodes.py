# SPDX-License-Identifier: Apache-2.0
"""Read all nodes and their partitions with one scontrol call.

sinfo would show the same in columns of our choice, but it compares each row with all rows before it: with 10,000
nodes that takes it half a minute. scontrol needs a fraction of a second. One call costs the controller two requests,
for nodes and for partitions. With ``--details`` it shows the GRES in use.

A record is one line. Only what stands at its end may hold anything: the reason, then a comment and a text called
extra, which administrators write. What stands before them is Slurm's own, and so is what may follow them.
"""

from __future__ import annotations

import re
from functools import lru_cache

from slurmscope.cluster.sinfo import BASE_STATES, Node, NodeGres, Nodes, parse_node_gres
from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.units import MIB
from slurmscope.slurm.states import node_state_text

COMMAND = "scontrol"
ARGUMENTS = ("--oneliner", "--details", "--all", "show", "nodes")

CACHED_TEXTS = 4096
_NOTHING = "No nodes in the system"
_LINE_END = " " * 8
# What Slurm 22.05 to 26.05 print after a reason.
_LATER = " (?:ReservationName|Comment|Extra|InstanceId|InstanceType|Topology)="
_LATER_KEY = re.compile(_LATER)
# User and time follow the first line of a reason; scontrol indents further lines by eight spaces.
_STAMP = r"(?P<text>.*?) \[(?P<user>\S*)@(?P<time>\d{1,15})\]"
_REASON = re.compile(rf"{_STAMP}(?P<more>(?:{_LINE_END}.*?)?)(?:{_LATER}.*)?\Z", re.DOTALL)
# A newer release may print further keys.
_REASON_AND_KEY = re.compile(rf"{_STAMP}(?P<more>)(?: [A-Z]\w*=.*)\Z", re.DOTALL)
_FREE_TEXT = re.compile(" (?:Comment|Extra)=")


def parse_nodes(answer: bytes) -> Nodes:
    """Turn the records into nodes; one without an amount that every node has is counted as unreadable."""
    text = answer.decode("utf-8", "surrogateescape")
    if text.strip() == _NOTHING or not text.strip():
        return Nodes(nodes=())
    if not text.startswith("NodeName=") or not text.endswith("\n"):
        raise MalformedAnswer("scontrol show nodes: the answer is cut, or is not about nodes")
    records = text[:-1].split("\nNodeName=")
    records[0] = records[0].removeprefix("NodeName=")
    nodes = [node for record in records if (node := _parse_record(record))]
    return Nodes(nodes=tuple(nodes), unreadable_rows=len(records) - len(nodes))


def _parse_record(record: str) -> Node | None:
    head, _, reason = record.partition(" Reason=")
    if " Comment=" in head or " Extra=" in head:
        # These follow the reason, so there is none: their own text only resembles one.
        head, reason = _FREE_TEXT.split(head, 1)[0], ""
    try:
        return _make_node(head, reason.rstrip(" "))
    except ValueError:
        return None


def _make_node(head: str, reason: str) -> Node:
    """Read a record in stretches: those that say the same of many nodes are read once for all of them."""
    total, allocated = _parse_cpus(_stretch(head, " CPUAlloc=", " CPULoad="))
    memory_bytes, allocated_memory_bytes = _parse_memory(_stretch(head, " RealMemory=", " FreeMem="))
    base, flags, state_text, weight, partitions = _parse_standing(_stretch(head, " State=", " BootTime="))
    free_memory, load = _take(head, " FreeMem="), _take(head, " CPULoad=")
    text, user, since = _parse_reason(reason) if reason else (None, None, None)
    # By position, in the order of the fields: by name it takes twice as long, for every node at every reading.
    return Node(
        head.partition(" ")[0],
        base,
        flags,
        state_text,
        partitions,
        total,
        allocated,
        # As sinfo counts: what is not allocated of a node that is down or drained is not idle.
        0 if base == "down" or "drain" in flags else max(0, total - allocated),
        memory_bytes,
        allocated_memory_bytes,
        weight,
        int(free_memory) * MIB if free_memory.isdecimal() else None,
        None if load == "N/A" else float(load),
        _parse_gres(_stretch(head, " Gres=", " NodeAddr=")),
        text,
        user,
        since,
    )


def _stretch(head: str, first: str, end: str) -> str:
    """Return the text from one key to another, or to the end of the record when the other one does not follow."""
    start = head.find(first)
    if start < 0:
        raise ValueError(f"there is no{first}")
    stop = head.find(end, start)
    return head[start:] if stop < 0 else head[start:stop]


def _take(text: str, key: str) -> str:
    """Return the word after a key, or an empty text."""
    start = text.find(key)
    if start < 0:
        return ""
    start += len(key)
    end = text.find(" ", start)
    return text[start:] if end < 0 else text[start:end]


def _take_count(text: str, key: str) -> int:
    """Return the integer after a key; int() alone would accept a sign as well."""
    word = _take(text, key)
    if not word.isascii() or not word.isdecimal():
        raise ValueError(f"{word!r} is not a count")
    return int(word)


@lru_cache(maxsize=CACHED_TEXTS)
def _parse_cpus(stretch: str) -> tuple[int, int]:
    return _take_count(stretch, " CPUTot="), _take_count(stretch, " CPUAlloc=")


@lru_cache(maxsize=CACHED_TEXTS)
def _parse_memory(stretch: str) -> tuple[int, int]:
    return _take_count(stretch, " RealMemory=") * MIB, _take_count(stretch, " AllocMem=") * MIB


@lru_cache(maxsize=CACHED_TEXTS)
def _parse_gres(stretch: str) -> tuple[NodeGres, ...] | None:
    return parse_node_gres(_take(stretch, " Gres="), _take(stretch, " GresUsed="))


@lru_cache(maxsize=CACHED_TEXTS)
def _parse_standing(stretch: str) -> tuple[str, frozenset[str], str, int, tuple[str, ...]]:
    """Read state, weight and partitions."""
    base, flags, state_text = _parse_state(_take(stretch, " State="))
    partitions = sorted({name for name in _take(stretch, " Partitions=").split(",") if name})
    return base, flags, state_text, _take_count(stretch, " Weight="), tuple(partitions)


def _parse_state(text: str) -> tuple[str, frozenset[str], str]:
    """Split ``MIXED+CLOUD*``; the star, for a node that does not answer, is a flag elsewhere."""
    base, *flags = text.lower().replace("*", "+not_responding").split("+")
    found = frozenset(flags)
    return base if base in BASE_STATES else "unknown", found, node_state_text(base, found)


def _parse_reason(reason: str) -> tuple[str | None, str | None, int | None]:
    match = _REASON.match(reason) or _REASON_AND_KEY.match(reason)
    if not match:
        return _LATER_KEY.split(reason, 1)[0], None, None
    text = match["text"] + match["more"].replace(_LINE_END, "\n")
    return text or None, match["user"] or None, int(match["time"])
