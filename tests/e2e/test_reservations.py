# SPDX-License-Identifier: Apache-2.0
"""Reservations are shown as sinfo lists them, with the health of their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from lab import SlurmLab
from tests.e2e.scrape import scrape

NOW, LATER = "now in use", "later"


@pytest.fixture
def reserved_lab(clean_lab: SlurmLab) -> Iterator[SlurmLab]:
    """Give a cluster with a reservation that holds, on two nodes, and one that will, on one."""

    def reserve(name: str, *words: str) -> None:
        clean_lab.run("scontrol", "create", "reservation", f"reservationname={name}", "users=root", *words)

    nodes = clean_lab.nodes
    reserve(NOW, "starttime=now", "duration=30", f"nodes={nodes[0]},{nodes[1]}", "flags=maint")
    reserve(LATER, "starttime=now+1hour", "duration=30", f"nodes={nodes[2]}")
    yield clean_lab
    for name in (NOW, LATER):
        clean_lab.run("scontrol", "delete", f"reservationname={name}")


def test_reservations_are_those_of_sinfo(reserved_lab: SlurmLab) -> None:
    rows = reserved_lab.run("sinfo", "--noheader", "--reservation").splitlines()
    # The name has blanks in it: count the columns from the right.
    expected = {row.rsplit(maxsplit=5)[0].strip(): row.rsplit(maxsplit=5)[1:] for row in rows}

    served = scrape(reserved_lab, "reservations")

    assert {NOW, LATER} == set(expected)
    for name, (state, start, end, _, _) in expected.items():
        assert int(state == "ACTIVE") == served["slurm_reservation_active"][name,]
        # sinfo prints the time of the machine's zone.
        begins, ends = (datetime.fromisoformat(text).astimezone().timestamp() for text in (start, end))
        assert begins == served["slurm_reservation_start_timestamp_seconds"][name,]
        assert ends == served["slurm_reservation_end_timestamp_seconds"][name,]
    assert {(NOW,): 2, (LATER,): 1} == served["slurm_reservation_nodes"]
    assert {(NOW,): 16, (LATER,): 8} == served["slurm_reservation_cores"]
    assert (NOW, "", "MAINT,SPEC_NODES") in served["slurm_reservation_info"]


def test_a_drained_node_is_not_healthy(reserved_lab: SlurmLab) -> None:
    node = reserved_lab.nodes[0]
    before = scrape(reserved_lab, "reservations")
    reserved_lab.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")

    after = scrape(reserved_lab, "reservations")

    assert {(NOW,): 2, (LATER,): 1} == before["slurm_reservation_healthy_nodes"]
    assert {(NOW,): 1, (LATER,): 1} == after["slurm_reservation_healthy_nodes"]
    assert 1 == after["slurm_reservation_state_nodes"][NOW, "drain"]


def test_a_cluster_may_have_no_reservations(clean_lab: SlurmLab) -> None:
    assert {} == scrape(clean_lab, "reservations")["slurm_reservation_info"]
