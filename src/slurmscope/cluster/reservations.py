# SPDX-License-Identifier: Apache-2.0
"""Export reservations and the health of their nodes.

::

    slurm_reservation_active{reservation="maint"} 0
    slurm_reservation_start_timestamp_seconds{reservation="maint"} 1794735997
    slurm_reservation_state_nodes{reservation="maint",state="drain"} 1

A node counts once: as ``idle``, ``mixed`` or ``allocated`` if it can run jobs, otherwise by its first problem:
``down``, then ``drain``, ``fail``, ``not_responding``. ``missing`` is a node in no partition, ``other`` one that cannot
run jobs for another reason.

The users of a reservation are not read: the lists are long and private. With
``PrivateData=reservations`` an ordinary user gets an empty list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from slurmscope.cluster.sinfo import Node, Nodes, can_run_jobs
from slurmscope.cluster.sources import Sources
from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.hostlist import expand_hosts
from slurmscope.exporter.collector import SLOW_SECONDS, Collector, NoOptions, Reading, Role
from slurmscope.metrics.family import Family, Metric, gauge, info
from slurmscope.slurm.text import cut, parse_whole, split_lines, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """One reservation; times are seconds since 1970, None if not reported.

    ``nodes`` is None if the host list could not be expanded; ``partition`` is empty if the reservation has none.
    """

    name: str
    is_active: bool
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    node_count: int | None = None
    core_count: int | None = None
    nodes: tuple[str, ...] | None = ()
    partition: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """All reservations; ``unreadable_rows`` counts records that could not be parsed."""

    reservations: tuple[Reservation, ...]
    unreadable_rows: int = 0


ARGUMENTS = ("--oneliner", "show", "reservations")

_NOTHING = "No reservations in the system"
_NULL = "(null)"


def parse_reservations(answer: bytes) -> Reservations:
    """Read one record per line; one in another format is skipped, unless there is no other."""
    lines = split_lines(answer, "reservations")
    if lines == [_NOTHING]:
        return Reservations(reservations=())
    reservations = []
    for line in lines:
        try:
            reservations.append(_parse_reservation(line))
        except ValueError:
            continue
    if not reservations:
        raise MalformedAnswer("scontrol show reservations: no record is in a known format")
    return Reservations(reservations=tuple(reservations), unreadable_rows=len(lines) - len(reservations))


def _parse_reservation(line: str) -> Reservation:
    name, rest = cut(line, "ReservationName", "StartTime")
    fields = words(f"StartTime={rest}")
    if fields.get("State") not in ("ACTIVE", "INACTIVE"):
        raise ValueError("the record has no state")
    return Reservation(
        name=name,
        is_active=fields["State"] == "ACTIVE",
        start_timestamp=parse_whole(fields["StartTime"]),
        end_timestamp=parse_whole(fields.get("EndTime")),
        node_count=parse_whole(fields.get("NodeCnt")),
        core_count=parse_whole(fields.get("CoreCnt")),
        nodes=_expand(_text(fields, "Nodes")),
        partition=_text(fields, "PartitionName"),
        flags=tuple(flag for flag in _text(fields, "Flags").split(",") if flag),
    )


def _text(fields: dict[str, str], key: str) -> str:
    value = fields.get(key, "")
    return "" if value == _NULL else value


def _expand(hosts: str) -> tuple[str, ...] | None:
    try:
        return expand_hosts(hosts)
    except ValueError:
        return None


HEALTHY_STATES = ("idle", "mixed", "allocated")
STATES = (*HEALTHY_STATES, "down", "drain", "fail", "not_responding", "missing", "other")
_PROBLEM_FLAGS = ("drain", "fail", "not_responding")
# A reservation sets these on its own nodes; its users can run jobs there all the same.
_OWN_FLAGS = frozenset({"maintenance", "reserved"})

INFO = info("slurm_reservation_info", "Partition and flags of a reservation.", "reservation", "partition", "flags")
ACTIVE = gauge("slurm_reservation_active", "1 if the reservation is active, 0 if not.", "reservation")
STATE_NODES = gauge(
    "slurm_reservation_state_nodes", "Nodes of the reservation by state; each node counts once.", "reservation", "state"
)
HEALTHY_NODES = gauge("slurm_reservation_healthy_nodes", "Nodes of the reservation that can run jobs.", "reservation")
_NUMBERS: tuple[tuple[str, Metric], ...] = (
    (
        "start_timestamp",
        gauge("slurm_reservation_start_timestamp_seconds", "Start time of the reservation.", "reservation"),
    ),
    ("end_timestamp", gauge("slurm_reservation_end_timestamp_seconds", "End time of the reservation.", "reservation")),
    ("node_count", gauge("slurm_reservation_nodes", "Nodes of the reservation.", "reservation")),
    ("core_count", gauge("slurm_reservation_cores", "Cores of the reservation.", "reservation")),
)


def collect(
    options: NoOptions,  # noqa: ARG001 - part of the protocol
    *,
    reservations: Reservations,
    nodes: Nodes,
) -> Iterator[Family]:
    """Yield each reservation, then the health of its nodes."""
    found = reservations.reservations
    yield Family(INFO, {(each.name, each.partition, ",".join(each.flags)): 1 for each in found})
    yield Family(ACTIVE, {(each.name,): int(each.is_active) for each in found})
    for field, metric in _NUMBERS:
        numbers = (((each.name,), getattr(each, field)) for each in found)
        yield Family(metric, {labels: number for labels, number in numbers if number is not None})
    by_name = {node.name: node for node in nodes.nodes}
    counted = {each.name: count_nodes(each.nodes, by_name) for each in found if each.nodes is not None}
    yield Family(
        STATE_NODES, {(name, state): count for name, counts in counted.items() for state, count in counts.items()}
    )
    healthy = {(name,): sum(counts[state] for state in HEALTHY_STATES) for name, counts in counted.items()}
    yield Family(HEALTHY_NODES, healthy)


def count_nodes(names: Iterable[str], nodes: Mapping[str, Node]) -> Mapping[str, int]:
    """Count nodes by :data:`STATES`, including states without a node."""
    counts = Counter(_state_of(nodes.get(name)) for name in names)
    return {state: counts[state] for state in STATES}


def _state_of(node: Node | None) -> str:
    if node is None:
        return "missing"
    if can_run_jobs(node.base_state, node.flags - _OWN_FLAGS):
        return node.base_state
    if node.base_state == "down":
        return "down"
    return next((flag for flag in _PROBLEM_FLAGS if flag in node.flags), "other")


def read_reservations(slurm: Sources) -> Reservations:
    return parse_reservations(slurm.run("scontrol", ARGUMENTS))


RESERVATIONS = Reading(name="reservations", read=read_reservations, every_seconds=SLOW_SECONDS)
COLLECTOR = Collector(
    name="reservations",
    role=Role.CLUSTER,
    help="Reservations, their times and cores, and the health of their nodes, from one scontrol call.",
    needs=(RESERVATIONS, "nodes"),
    metrics=(INFO, ACTIVE, *(metric for _, metric in _NUMBERS), STATE_NODES, HEALTHY_NODES),
    collect=collect,
)
