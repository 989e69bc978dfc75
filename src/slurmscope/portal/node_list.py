# SPDX-License-Identifier: Apache-2.0
"""List the nodes of a cluster: as they are now, in a grid and a table, and those on which jobs failed or were slow.

Slurm shows nodes to everybody, unless PrivateData hides them; reasons, and who set them, are for staff, who write them.
Jobs on a node are counted as far as the viewer may see them.

Suspect nodes are those on which jobs failed more often, or took longer, than the same jobs elsewhere. For metrics and
other pages they are judged once an hour.

::

    slurmscope_suspect_node{cluster="lab",slurm_node="n17",verdict="suspect"} 1
    slurmscope_judged_nodes{cluster="lab",verdict="too little data"} 12
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from slurmscope.archive.interface import Archive
from slurmscope.cluster.sinfo import Node, Nodes, can_run_jobs
from slurmscope.core.units import DAY_SECONDS, format_some
from slurmscope.exporter.reading import SharedReading
from slurmscope.jobs.suspect_nodes import JudgedNode, NodeVerdict
from slurmscope.metrics.family import Family, gauge
from slurmscope.portal.context import Context, RequestContext
from slurmscope.portal.queries import BadQuery, parse_cluster, parse_days, parse_format, parse_text
from slurmscope.portal.waste import require_staff
from slurmscope.portal.web.tables import make_table, make_table_response

MAX_ROWS = 500
"""Rows of the table; the grid and the files have all nodes."""
MAX_CELLS = 5000

JUDGED_DAYS = 30
INTERVAL_SECONDS = 3600.0
KEEP_SECONDS = 86_400.0
MOST_NAMED = 100
"""Nodes with a series of their own."""
SUSPICIOUS = frozenset({NodeVerdict.SUSPECT, NodeVerdict.WATCH})

SUSPECT = gauge(
    "slurmscope_suspect_node",
    "1 for nodes on which jobs of the last 30 days failed more often, or took longer, than the same jobs elsewhere.",
    "cluster", "slurm_node", "verdict",
)  # fmt: skip
JUDGED = gauge(
    "slurmscope_judged_nodes",
    "Nodes that ran jobs of one node in the last 30 days, by verdict; of some there are too few jobs to tell.",
    "cluster", "verdict",
)  # fmt: skip
SUSPECT_METRICS = (SUSPECT, JUDGED)


class Condition(enum.StrEnum):
    """What a node can be used for, by which the grid is coloured."""

    IDLE = "idle"
    MIXED = "mixed"
    ALLOCATED = "allocated"
    DRAINED = "drained"
    """Drained, draining or failing: takes no new jobs."""
    DOWN = "down"
    """Takes no jobs for any other cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node; the fields of the reason are empty for users who may not see them, and for nodes without one."""

    name: str
    state: str
    condition: Condition
    partitions: tuple[str, ...]
    cores: int
    cores_allocated: int
    cores_idle: int
    load: float | None
    jobs: int
    memory_bytes: int
    memory_allocated_bytes: int
    gpus: int
    gpus_allocated: int
    gpu_models: tuple[str, ...]
    reason: str = ""
    reason_user: str = ""
    reason_since_seconds: int | None = None

    @property
    def allocated_ratio(self) -> float | None:
        return self.cores_allocated / self.cores if self.cores else None

    @property
    def load_ratio(self) -> float | None:
        return self.load / self.cores if self.cores and self.load is not None else None

    @property
    def words(self) -> str:
        """Describe the node in one line, for the grid."""
        parts = [f"{self.name}: {self.state}", f"{self.cores_allocated} of {self.cores} cores"]
        if self.gpus:
            parts.append(f"{self.gpus_allocated} of {self.gpus} GPUs")
        if self.jobs:
            parts.append(format_some(self.jobs, "job"))
        return ", ".join((*parts, *([self.reason] if self.reason else ())))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuery:
    """Which nodes are wanted, and in which order; empty texts match all."""

    cluster: str = ""
    name: str = ""
    state: str = ""
    """A state as Slurm writes it, or one of :class:`Condition`."""
    partition: str = ""
    sort: str = "name"
    is_descending: bool = False

    def matches(self, row: NodeRow) -> bool:
        return (
            self.name.lower() in row.name.lower()
            and self.state in {"", row.state, row.condition.value}
            and (not self.partition or self.partition in row.partitions)
        )

    def render(self, **changed: str) -> str:
        """Return the query string with its question mark, with some values changed."""
        direction = "desc" if self.is_descending else ""
        own = {"cluster": self.cluster, "name": self.name, "state": self.state, "partition": self.partition}
        pairs = {**own, "sort": self.sort if self.sort != "name" or direction else "", "dir": direction, **changed}
        kept = {key: value for key, value in pairs.items() if value}
        return f"?{urlencode(kept)}" if kept else ""

    def sort_query(self, key: str) -> str:
        """Return the query that sorts by a column, or turns its direction; numbers begin with the highest."""
        is_descending = not self.is_descending if key == self.sort else key not in _TEXTS
        is_usual = key == "name" and not is_descending
        return self.render(sort="" if is_usual else key, dir="desc" if is_descending else "")


_TEXTS = frozenset({"name", "state"})
_DIGITS = re.compile(r"([0-9]{1,18})")


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key by which n2 is before n10."""
    return tuple((int(part), "") if part.isdecimal() else (0, part) for part in _DIGITS.split(name))


_SORTS: Mapping[str, Callable[[NodeRow], float | None]] = {
    "cores": lambda row: row.allocated_ratio,
    "idle": lambda row: row.cores_idle,
    "load": lambda row: row.load_ratio,
    "jobs": lambda row: row.jobs,
    "memory": lambda row: row.memory_allocated_bytes / row.memory_bytes if row.memory_bytes else None,
    "gpus": lambda row: row.gpus - row.gpus_allocated if row.gpus else None,
    "since": lambda row: row.reason_since_seconds,
}


def parse_node_query(given: Mapping[str, str]) -> NodeQuery:
    """Parse the query of the page; raise BadQuery."""
    sort, direction = given.get("sort", "") or "name", given.get("dir", "")
    if sort not in {*_TEXTS, *_SORTS} or direction not in {"", "asc", "desc"}:
        columns = ", ".join((*sorted(_TEXTS), *_SORTS))
        raise BadQuery(f"Nodes are sorted by {columns}, in the direction asc or desc.")
    texts = {key: parse_text(given, key) for key in ("name", "state", "partition")}
    return NodeQuery(cluster=parse_cluster(given), sort=sort, is_descending=direction == "desc", **texts)


def make_node_rows(nodes: Nodes, jobs: Mapping[str, int], *, is_staff: bool) -> tuple[NodeRow, ...]:
    """Return the nodes in the order of their names; ``jobs`` are those that the viewer may see."""
    rows = (_make_row(node, jobs.get(node.name, 0), is_staff=is_staff) for node in nodes.nodes)
    return tuple(sorted(rows, key=lambda row: _natural(row.name)))


def _make_row(node: Node, jobs: int, *, is_staff: bool) -> NodeRow:
    gpus = [gres for gres in node.gres or () if gres.name == "gpu"]
    return NodeRow(
        name=node.name,
        state=node.state_text,
        condition=find_condition(node),
        partitions=node.partitions,
        cores=node.cpus_total,
        cores_allocated=node.cpus_allocated,
        cores_idle=node.cpus_idle,
        load=node.load,
        jobs=jobs,
        memory_bytes=node.memory_bytes,
        memory_allocated_bytes=node.allocated_memory_bytes,
        gpus=sum(gres.total for gres in gpus),
        gpus_allocated=sum(gres.used for gres in gpus),
        gpu_models=tuple(dict.fromkeys(gres.model for gres in gpus if gres.model)),
        reason=node.reason or "" if is_staff else "",
        reason_user=node.reason_user or "" if is_staff else "",
        reason_since_seconds=node.reason_since_seconds if is_staff else None,
    )


def find_condition(node: Node) -> Condition:
    """Return what a node can be used for."""
    if node.base_state != "down" and not node.flags.isdisjoint({"drain", "fail"}):
        return Condition.DRAINED
    if not can_run_jobs(node.base_state, node.flags):
        return Condition.DOWN
    return Condition(node.base_state)


def sort_nodes(rows: Iterable[NodeRow], wanted: NodeQuery) -> tuple[NodeRow, ...]:
    """Sort rows that are in the order of names; those for which a number is not known come last."""
    rows = tuple(rows)
    if wanted.sort in _TEXTS:
        state = (lambda row: row.state) if wanted.sort == "state" else lambda row: _natural(row.name)
        return tuple(sorted(rows, key=state, reverse=wanted.is_descending))
    value = _SORTS[wanted.sort]
    known = [(number, row) for row in rows if (number := value(row)) is not None]
    known.sort(key=lambda pair: -pair[0] if wanted.is_descending else pair[0])
    return (*(row for _, row in known), *(row for row in rows if value(row) is None))


router = APIRouter(include_in_schema=False)


@router.get("/nodes")
def show_nodes(context: Context) -> Response:
    """Show the nodes of a cluster as a grid and a table."""
    wanted, table_format = parse_node_query(context.query), parse_format(context.query)
    cluster = wanted.cluster or context.own_cluster
    if not may_list_nodes(context, cluster):
        raise HTTPException(403, "Slurm's PrivateData hides the nodes of this cluster.")
    context.audit("nodes and the number of jobs of all users on them")
    rows = _read_rows(context, cluster)
    found = sort_nodes(filter(wanted.matches, rows or ()), wanted)
    if table_format != "html":
        return make_table_response(make_table(NodeRow, found), table_format, "nodes")
    return context.page(
        "nodes.html",
        wanted=wanted,
        cluster=context.link_cluster(cluster),
        rows=None if rows is None else found[:MAX_ROWS],
        cells=_group(found[:MAX_CELLS]) if rows else (),
        found=len(found),
        conditions=Counter(row.condition.value for row in found),
        states=sorted({row.state for row in rows or ()}),
        partitions=sorted({name for row in rows or () for name in row.partitions}),
    )


def may_list_nodes(context: RequestContext, cluster: str) -> bool:
    """Return whether the viewer may see all nodes of a cluster."""
    live = context.find_live(cluster)
    return context.viewer.is_staff or (live is not None and context.services.live.shows_nodes(live))


def _read_rows(context: RequestContext, cluster: str) -> tuple[NodeRow, ...] | None:
    """Return all nodes of a cluster; None while its controller cannot be read."""
    live = context.find_live(cluster)
    nodes = context.services.live.nodes((live,)).get(live) if live is not None else None
    if nodes is None:
        return None
    jobs = context.archive.count_running(context.viewer, cluster if len(context.services.clusters()) > 1 else "")
    return make_node_rows(nodes, jobs, is_staff=context.viewer.is_staff)


def _group(rows: Sequence[NodeRow]) -> list[tuple[str, list[NodeRow]]]:
    """Group nodes by their names without numbers, in the order of names."""
    groups: dict[str, list[NodeRow]] = {}
    for row in sorted(rows, key=lambda row: _natural(row.name)):
        groups.setdefault(_DIGITS.split(row.name)[0], []).append(row)
    return list(groups.items())


@router.get("/suspects")
def show_suspects(context: Context) -> Response:
    """Show the ranking of nodes."""
    require_staff(context)
    days, table_format = parse_days(context.query), parse_format(context.query)
    context.audit("jobs of all nodes")
    since = context.since(days)
    nodes = context.share(("suspects", since), lambda: context.archive.judge_nodes(since))
    if table_format != "html":
        return make_table_response(make_table(JudgedNode, nodes.value), table_format, "suspects")
    return context.page(
        "suspects.html",
        days=days,
        nodes=[node for node in nodes.value if node.verdict in SUSPICIOUS],
        judged=sum(node.verdict is not NodeVerdict.UNKNOWN for node in nodes.value),
        unknown=sum(node.verdict is NodeVerdict.UNKNOWN for node in nodes.value),
        age_seconds=nodes.age_seconds,
    )


def make_suspects_reading(archive: Archive, clock: Callable[[], float]) -> SharedReading:
    """Return a reading that judges the nodes once an hour, while it is requested."""

    def read() -> tuple[JudgedNode, ...]:
        return archive.judge_nodes(int(clock() // DAY_SECONDS * DAY_SECONDS) - JUDGED_DAYS * DAY_SECONDS)

    return SharedReading(
        "suspect_nodes", read, interval_seconds=INTERVAL_SECONDS, keep_seconds=KEEP_SECONDS, retry_seconds=60.0
    )


def read_records(reading: SharedReading) -> tuple[JudgedNode, ...] | None:
    """Return the last judgement without waiting for a new one; None before the first."""
    reading.request()
    value = reading.wait(0.0).value
    return value if isinstance(value, tuple) else None


def suspect_families(reading: SharedReading) -> Iterator[Family]:
    """Yield the suspicious nodes, and how many were judged; nothing while that is unknown."""
    records = read_records(reading)
    if records is None:
        return
    named = [record for record in records if record.verdict in SUSPICIOUS][:MOST_NAMED]
    yield Family(SUSPECT, {(record.cluster, record.node, record.verdict.value): 1.0 for record in named})
    counts = Counter((record.cluster, record.verdict.value) for record in records)
    yield Family(JUDGED, {labels: float(count) for labels, count in sorted(counts.items())})
