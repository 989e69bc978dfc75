# SPDX-License-Identifier: Apache-2.0
"""Export how often and how long nodes were down or drained, from the events in Slurm's accounting.

::

    slurm_node_events{node="n17",state="drain"} 2
    slurm_node_lost_seconds{node="n17",state="drain"} 5400
    slurm_node_reason_lost_seconds{reason="bad DIMM",state="drain"} 3600

One line of sacctmgr is one event; that of a node's own query begins with its start::

    n17|1790000000|1790003600|DRAIN|root(0)|bad DIMM
    n18|1790100000|Unknown|DOWN*|slurm(64030)|Not responding
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import nlargest
from typing import NamedTuple

from slurmscope.cluster.nodes import one_line
from slurmscope.cluster.sources import Sources
from slurmscope.core.errors import MalformedAnswer
from slurmscope.exporter.collector import SLOW_SECONDS, Collector, NoOptions, Reading, Role
from slurmscope.metrics.family import Family, Labels, gauge
from slurmscope.slurm.cluster_names import NAME
from slurmscope.slurm.command import RunCommand


class NodeEvent(NamedTuple):
    """One time in which a node was not available; ``end_seconds`` is None while it lasts."""

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


WINDOW_DAYS = 7
ALL_ARGUMENTS = (
    "--readonly", "--noheader", "--parsable2", "show", "event", "where", f"start=now-{WINDOW_DAYS}days",
    f"format=NodeName,{_COLUMNS}",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvents:
    """The events of all nodes, and the time that they are counted in."""

    since_seconds: float
    until_seconds: float
    events: tuple[tuple[str, NodeEvent], ...]

    def lost_seconds(self, event: NodeEvent) -> float:
        """Return how much of the time an event took."""
        end = self.until_seconds if event.end_seconds is None else min(event.end_seconds, self.until_seconds)
        return max(0.0, end - max(event.start_seconds, self.since_seconds))


def parse_all_events(answer: bytes, now_seconds: float) -> ClusterEvents:
    """Read the events of all nodes; those without a node are about the whole cluster and are left out."""
    events: list[tuple[str, NodeEvent]] = []
    for row in answer.decode("utf-8", "replace").split("\n"):
        node, _, rest = row.partition("|")
        if (event := _parse_row(rest)) is not None:
            events.append((node, event))
        elif events:
            # A reason may have several lines.
            node, event = events[-1]
            events[-1] = (node, event._replace(reason=f"{event.reason} {row}".rstrip()))
        elif row:
            raise MalformedAnswer("sacctmgr: an event does not have the requested columns")
    return ClusterEvents(
        since_seconds=now_seconds - WINDOW_DAYS * 86_400,
        until_seconds=now_seconds,
        events=tuple((node, event) for node, event in events if node),
    )


def read_all_events(slurm: Sources) -> ClusterEvents:
    return parse_all_events(slurm.run(COMMAND, ALL_ARGUMENTS), slurm.wall_clock())


_WINDOW = f"in the last {WINDOW_DAYS} days"
EVENTS = gauge("slurm_node_events", f"Times a node was down or drained {_WINDOW}.", "node", "state")
LOST = gauge("slurm_node_lost_seconds", f"Time for which a node was down or drained {_WINDOW}.", "node", "state")
REASON_EVENTS = gauge(
    "slurm_node_reason_events", f"Times nodes were down or drained {_WINDOW}, by reason.", "reason", "state"
)
REASON_LOST = gauge(
    "slurm_node_reason_lost_seconds",
    f"Time for which nodes were down or drained {_WINDOW}, by reason; added up over nodes.",
    "reason",
    "state",
)
OTHER_REASONS = "other"
REASONS_LIMIT = 50
"""Maximum number of exported reasons; those with the least time are summed as other."""


def state_word(state: str) -> str:
    """Return ``drain``, ``down``, or the first word of another state: ``IDLE+DRAIN`` and ``DOWN*`` have many forms."""
    words = [word.strip("*~#!%$@^-") for word in state.lower().split("+")]
    return next((word for word in ("drain", "down") if any(each.startswith(word) for each in words)), words[0])


def collect(options: NoOptions, *, node_events: ClusterEvents) -> Iterator[Family]:  # noqa: ARG001 - part of the protocol
    """Yield number and time of events, by node and by reason."""
    found = [
        (node, one_line(event.reason), state_word(event.state), node_events.lost_seconds(event))
        for node, event in node_events.events
    ]
    lost_by_reason = _sums(((reason,), seconds) for _, reason, _, seconds in found)
    kept = {reason for (reason,) in nlargest(REASONS_LIMIT, sorted(lost_by_reason), key=lost_by_reason.__getitem__)}
    reasons = [(reason if reason in kept else OTHER_REASONS, state, seconds) for _, reason, state, seconds in found]
    yield Family(EVENTS, Counter((node, state) for node, _, state, _ in found))
    yield Family(LOST, _sums(((node, state), seconds) for node, _, state, seconds in found))
    yield Family(REASON_EVENTS, Counter((reason, state) for reason, state, _ in reasons))
    yield Family(REASON_LOST, _sums(((reason, state), seconds) for reason, state, seconds in reasons))


def _sums(amounts: Iterable[tuple[Labels, float]]) -> dict[Labels, float]:
    sums: defaultdict[Labels, float] = defaultdict(float)
    for labels, amount in amounts:
        sums[labels] += amount
    return dict(sums)


NODE_EVENTS = Reading(name="node_events", read=read_all_events, every_seconds=SLOW_SECONDS)
COLLECTOR = Collector(
    name="events",
    role=Role.CLUSTER,
    help=f"How often and how long nodes were down or drained {_WINDOW}, by node and reason, from one sacctmgr call; "
    "needs slurmdbd.",
    needs=(NODE_EVENTS,),
    metrics=(EVENTS, LOST, REASON_EVENTS, REASON_LOST),
    collect=collect,
    is_default=False,
)
