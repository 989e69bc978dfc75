# SPDX-License-Identifier: Apache-2.0
"""Reservations are shown with the health of their nodes."""

from __future__ import annotations

import pytest

from slurmscope.cluster.reservations import COLLECTOR, STATES, Reservation, Reservations, count_nodes
from slurmscope.cluster.sinfo import Node, Nodes
from slurmscope.exporter.collector import NoOptions
from slurmscope.metrics.family import Samples


def node(name: str, base_state: str, *flags: str) -> Node:
    """Make a node of which only the state matters."""
    return Node(
        name=name,
        base_state=base_state,
        flags=frozenset(flags),
        state_text=base_state,
        partitions=("debug",),
        cpus_total=8,
        cpus_allocated=0,
        cpus_idle=8,
        memory_bytes=0,
        allocated_memory_bytes=0,
        weight=1,
    )


def serve(*reservations: Reservation, nodes: tuple[Node, ...] = ()) -> dict[str, Samples]:
    """Return all samples by the name of their metric."""
    readings = {"reservations": Reservations(reservations=reservations), "nodes": Nodes(nodes=nodes)}
    return {family.metric.name: family.samples for family in COLLECTOR.collect(NoOptions(), **readings)}


MAINTENANCE = Reservation(
    name="maint",
    is_active=True,
    start_timestamp=100,
    end_timestamp=200,
    node_count=3,
    core_count=24,
    nodes=("n1", "n2", "n3"),
    partition="debug",
    flags=("MAINT", "SPEC_NODES"),
)
NODES = (node("n1", "idle", "maintenance"), node("n2", "allocated", "drain"), node("n4", "idle"))


def test_a_reservation_is_shown_with_its_times_and_nodes() -> None:
    served = serve(MAINTENANCE, nodes=NODES)
    states = served.pop("slurm_reservation_state_nodes")

    assert {
        "slurm_reservation_info": {("maint", "debug", "MAINT,SPEC_NODES"): 1},
        "slurm_reservation_active": {("maint",): 1},
        "slurm_reservation_start_timestamp_seconds": {("maint",): 100},
        "slurm_reservation_end_timestamp_seconds": {("maint",): 200},
        "slurm_reservation_nodes": {("maint",): 3},
        "slurm_reservation_cores": {("maint",): 24},
        "slurm_reservation_healthy_nodes": {("maint",): 1},
    } == served
    assert {("maint", state): int(state in ("idle", "drain", "missing")) for state in STATES} == states


@pytest.mark.parametrize(
    ("base_state", "flags", "expected"),
    [
        ("idle", (), "idle"),
        ("mixed", ("planned",), "mixed"),
        ("allocated", ("reserved", "completing"), "allocated"),
        ("idle", ("maintenance",), "idle"),
        ("idle", ("powered_down", "cloud"), "idle"),
        ("down", (), "down"),
        ("down", ("drain", "not_responding"), "down"),
        ("idle", ("drain", "not_responding"), "drain"),
        ("mixed", ("fail",), "fail"),
        ("idle", ("not_responding",), "not_responding"),
        ("idle", ("invalid_reg",), "other"),
        ("future", (), "other"),
        ("unknown", (), "other"),
    ],
)
def test_a_node_counts_under_what_ails_it_first(base_state: str, flags: tuple[str, ...], expected: str) -> None:
    counts = count_nodes(["n1"], {"n1": node("n1", base_state, *flags)})

    assert {state: int(state == expected) for state in STATES} == counts


def test_unreported_values_are_absent() -> None:
    served = serve(Reservation(name="r", is_active=False, nodes=None), nodes=NODES)

    assert {
        "slurm_reservation_info": {("r", "", ""): 1},
        "slurm_reservation_active": {("r",): 0},
    } == {name: samples for name, samples in served.items() if samples}


def test_every_declared_metric_is_served() -> None:
    served = serve(MAINTENANCE, nodes=NODES)

    assert {metric.name for metric in COLLECTOR.metrics} == {name for name, samples in served.items() if samples}
