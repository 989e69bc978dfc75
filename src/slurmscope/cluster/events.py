# SPDX-License-Identifier: Apache-2.0
"""Read when nodes were down or drained, from Slurm's accounting.

::

    1790000000|1790003600|DRAIN|root(0)|bad DIMM
    1790100000|Unknown|DOWN*|slurm(64030)|Not responding
"""

from __future__ import annotations

import re
from typing import NamedTuple

from slurmscope.core.errors import MalformedAnswer
from slurmscope.slurm.cluster_names import NAME
from slurmscope.slurm.command import RunCommand


class NodeEvent(NamedTuple):
    """Hold one time in which a node was not available; ``end_seconds`` is None while it lasts."""

    start_seconds: int
    end_seconds: int | None
    state: str
    user: str
    reason: str


COMMAND = "sacctmgr"
MAX_EVENTS = 200

# What a node can be called; brackets and commas would name several, and signs other conditions.
_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}\Z", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,11}\Z", re.ASCII)
# The reason comes last, because it may contain the separator.
_COLUMNS = "Start,End,State,User,Reason"


def is_possible_node(name: str) -> bool:
    """Return whether Slurm can know a node of this name."""
    return _NODE.match(name) is not None


def arguments(node: str, since_day: str, cluster: str = "") -> tuple[str, ...]:
    """Return the arguments of sacctmgr; without a day it would show only the last one.

    Without a cluster it shows the events of this host's cluster.
    """
    where = (f"clusters={cluster}",) if cluster else ()
    return (
        "--readonly", "--noheader", "--parsable2", "show", "event", "where", *where, f"nodes={node}",
        f"start={since_day}", f"format={_COLUMNS}",
    )  # fmt: skip


def parse_events(answer: bytes) -> tuple[NodeEvent, ...]:
    """Read the events, newest first."""
    events: list[NodeEvent] = []
    for row in answer.decode("utf-8", "replace").split("\n"):
        if (event := _parse_row(row)) is not None:
            events.append(event)
        elif events:
            # A reason may have several lines.
            events[-1] = events[-1]._replace(reason=f"{events[-1].reason} {row}".rstrip())
        elif row:
            raise MalformedAnswer("sacctmgr: an event does not have the requested columns")
    return tuple(sorted(events, reverse=True)[:MAX_EVENTS])


def read_events(run: RunCommand, node: str, since_day: str, cluster: str = "") -> tuple[NodeEvent, ...]:
    """Return the events of one node since a day as YYYY-MM-DD; raises CommandError when sacctmgr fails."""
    if not is_possible_node(node) or (cluster and not NAME.match(cluster)):
        return ()
    return parse_events(run(COMMAND, arguments(node, since_day, cluster)))


def _parse_row(row: str) -> NodeEvent | None:
    """Return the event of a line; None if no event begins on it."""
    cells = row.split("|", 4)
    if len(cells) != 5 or not _SECONDS.match(cells[0]):
        return None
    start, end, state, user, reason = cells
    # 0 and a word both mean that the event lasts.
    ended = int(end) if _SECONDS.match(end) and int(end) else None
    return NodeEvent(int(start), ended, state, user, reason)
