# SPDX-License-Identifier: Apache-2.0
"""What scontrol prints of reservations becomes times, nodes and flags."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.cluster.reservations import Reservation, Reservations, parse_reservations
from slurmscope.core.errors import MalformedAnswer

FIXTURES = Path(__file__).parents[2] / "fixtures"
REAL = (FIXTURES / "slurm-22.05" / "scontrol-reservations.txt").read_bytes()
NEWER = (FIXTURES / "slurm-23.02" / "scontrol-reservations.hand-made.txt").read_bytes()


REAL_RESERVATIONS = (
    Reservation(
        name="maint",
        is_active=False,
        start_timestamp=1794735997,
        end_timestamp=1794743197,
        node_count=2,
        core_count=16,
        nodes=("lab0n1", "lab0n2"),
        flags=("MAINT", "IGNORE_JOBS", "SPEC_NODES"),
    ),
    Reservation(
        name="odd name=x",
        is_active=False,
        start_timestamp=1794739597,
        end_timestamp=1826275597,
        node_count=1,
        core_count=8,
        nodes=("lab0n3",),
        partition="debug",
    ),
    Reservation(
        name="cores",
        is_active=True,
        start_timestamp=1794732397,
        end_timestamp=1794735997,
        node_count=1,
        core_count=2,
        nodes=("lab0n3",),
        partition="gpus",
        flags=("FLEX",),
    ),
    Reservation(
        name="rolling",
        is_active=False,
        start_timestamp=1794734420,
        end_timestamp=1794738020,
        node_count=1,
        core_count=8,
        nodes=("lab0n4",),
        flags=("SPEC_NODES", "TIME_FLOAT"),
    ),
    Reservation(
        name="lic",
        is_active=True,
        start_timestamp=1794732619,
        end_timestamp=1794736219,
        node_count=0,
        core_count=0,
        nodes=(),
        flags=("ANY_NODES",),
    ),
    Reservation(
        name="floating",
        is_active=False,
        start_timestamp=1794819019,
        end_timestamp=1794820819,
        node_count=1,
        core_count=8,
        nodes=("lab0n1",),
        partition="debug",
        flags=("DAILY", "REPLACE"),
    ),
)


def test_reservations_of_a_real_cluster_are_read_whole() -> None:
    assert REAL_RESERVATIONS == parse_reservations(REAL).reservations


def test_comments_of_newer_releases_forge_nothing() -> None:
    (course,) = parse_reservations(NEWER).reservations

    assert (False, 4, ("n1", "n2", "n3", "gpu01")) == (course.is_active, course.node_count, course.nodes)


def test_nodes_that_cannot_be_expanded_are_not_known() -> None:
    answer = b"ReservationName=r StartTime=1 EndTime=2 Nodes=n[0-999999999] NodeCnt=7 State=ACTIVE\n"

    (found,) = parse_reservations(answer).reservations

    assert (None, 7) == (found.nodes, found.node_count)


def test_a_time_that_is_no_number_is_not_known() -> None:
    answer = b"ReservationName=r StartTime=Unknown EndTime=2026-01-01T00:00:00 NodeCnt=1 State=INACTIVE\n"

    (found,) = parse_reservations(answer).reservations

    assert (None, None, None) == (found.start_timestamp, found.end_timestamp, found.core_count)


def test_a_cluster_may_have_no_reservations() -> None:
    assert Reservations(reservations=()) == parse_reservations(b"No reservations in the system\n")


def test_odd_records_cost_only_themselves() -> None:
    reservations = parse_reservations(b"Welcome!\nReservationName=x StartTime=1 State=?\n" + REAL)

    assert parse_reservations(REAL).reservations == reservations.reservations
    assert 2 == reservations.unreadable_rows


@pytest.mark.parametrize("answer", [b"", REAL[:-1], b"\n", b"slurm_load_reservations error\n", b"ReservationName=x\n"])
def test_an_answer_that_is_cut_or_strange_is_no_answer(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="scontrol show reservations"):
        parse_reservations(answer)


_pieces = st.sampled_from(
    [
        "ReservationName=",
        "x",
        " StartTime=",
        " EndTime=",
        " Nodes=",
        "n[1-2]",
        "n[",
        " State=",
        "ACTIVE",
        "1",
        " ",
        "\n",
    ]
)


@settings(deadline=None)
@given(st.binary(max_size=100) | st.lists(_pieces, max_size=30).map(lambda pieces: "".join(pieces).encode()))
def test_any_bytes_are_counted_or_rejected(answer: bytes) -> None:
    try:
        found = parse_reservations(answer)
    except MalformedAnswer:
        return
    rows = 0 if answer == b"No reservations in the system\n" else answer.count(b"\n")
    assert rows == found.unreadable_rows + len(found.reservations)
