# SPDX-License-Identifier: Apache-2.0
"""What sshare prints becomes the tree of shares."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.cluster.shares import COLUMNS, Share, Shares, parse_shares
from slurmscope.core.errors import MalformedAnswer

REAL = (Path(__file__).parents[2] / "fixtures" / "slurm-22.05" / "sshare.txt").read_bytes()
MIB = 1024**2
RESOURCES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages", "gres/gpu")


def find(account: str, user: str = "", partition: str = "") -> Share:
    """Return one row of the real answer."""
    rows = parse_shares(REAL).shares
    return next(row for row in rows if (account, user, partition) == (row.account, row.user, row.partition))


def seconds(*minutes: int) -> dict[str, float]:
    """Say what minutes of the resources of the lab are in base units."""
    amounts = dict(zip(RESOURCES, (60.0 * each for each in minutes), strict=True))
    return amounts | {"mem": amounts["mem"] * MIB}


def row(account: str, **values: str) -> bytes:
    """Make the row of an account, with these columns and all others empty."""
    return ("|".join([account, *(values.get(column, "") for column in COLUMNS[1:])]) + "\n").encode()


def test_an_account_of_a_real_cluster_is_read_whole() -> None:
    assert Share(
        account="physics",
        parent="root",
        raw_shares=5,
        norm_shares=0.625,
        raw_usage_seconds=1631,
        norm_usage=0.666667,
        effective_usage=0.666667,
        fairshare=None,
        level=1.071429,
        tres_limit_seconds={"cpu": 10_000 * 60, "mem": 5_000_000 * 60 * MIB},
        tres_run_seconds=seconds(32, 3280, 0, 19, 32, 0, 0, 0, 5),
        tres_usage_seconds=seconds(27, 2719, 0, 15, 27, 0, 0, 0, 4),
    ) == find("physics")


def test_a_user_who_takes_part_in_the_shares_of_the_account_has_no_own() -> None:
    alice = find("physics", "labalice")

    assert (None, None, 0.857143) == (alice.raw_shares, alice.level, alice.fairshare)


def test_who_has_used_nothing_is_on_an_infinite_level() -> None:
    assert math.inf == find("chemistry", "labcarol").level


def test_an_association_of_a_partition_is_a_row_of_its_own() -> None:
    assert 815 == find("chemistry", "labbob", "debug").raw_usage_seconds
    assert 0 == find("chemistry", "labbob").raw_usage_seconds


def test_parents_follow_from_the_blanks() -> None:
    rows = parse_shares(REAL)

    assert {
        "root": "",
        "chemistry": "root",
        "odd acct|x": "root",
        "physics": "root",
        "optics": "physics",
    } == {row.account: row.parent for row in rows.shares if not row.user}
    assert 0 == rows.unreadable_rows


def test_a_row_without_those_above_it_has_no_parent() -> None:
    """PrivateData leaves an ordinary user only some of the rows."""
    answer = row("  deep") + row("   deeper")

    assert [("deep", ""), ("deeper", "")] == [(row.account, row.parent) for row in parse_shares(answer).shares]


def test_no_output_is_a_cluster_without_associations() -> None:
    assert Shares(shares=()) == parse_shares(b"")


def test_a_value_that_is_no_number_is_not_measured() -> None:
    assert parse_shares(row("a", NormShares="-nan")).shares[0].norm_shares is None


def test_odd_rows_cost_only_themselves() -> None:
    answer = b"Welcome!\n" + row("") + row("a", RawShares="x") + row("a", TRESRunMins="cpu") + REAL

    shares = parse_shares(answer)

    assert parse_shares(REAL).shares == shares.shares
    assert 4 == shares.unreadable_rows


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (REAL[:-1], "in the middle of a line"),
        (b"slurm_persist_conn_open: connection refused\n", "no line"),
        (b"a|b|c\n", "no line"),
    ],
)
def test_an_answer_that_is_cut_or_strange_is_no_answer(answer: bytes, reason: str) -> None:
    with pytest.raises(MalformedAnswer, match=reason):
        parse_shares(answer)


_fields = st.text("ab |19.,=", max_size=6) | st.sampled_from(["", "parent", "inf", "nan", "1", "cpu=1", "cpu=N"])
_rows = st.lists(_fields, min_size=len(COLUMNS) - 2, max_size=len(COLUMNS) + 1).map("|".join)


@settings(deadline=None)
@given(st.binary(max_size=200) | st.lists(_rows, max_size=4).map(lambda rows: "".join(f"{r}\n" for r in rows).encode()))
def test_any_bytes_are_counted_or_rejected(answer: bytes) -> None:
    try:
        shares = parse_shares(answer)
    except MalformedAnswer:
        return
    assert answer.count(b"\n") == shares.unreadable_rows + len(shares.shares)
