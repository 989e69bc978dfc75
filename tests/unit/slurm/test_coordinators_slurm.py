# SPDX-License-Identifier: Apache-2.0
"""Only the accounts that Slurm names for this very user are coordinated."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import MalformedAnswer
from slurmscope.slurm.coordinators import parse_coordinated, read_coordinated


def test_accounts_below_are_included() -> None:
    # As sacctmgr 22.05 printed it for a coordinator of chemistry and physics, to which optics belongs.
    assert frozenset({"chemistry", "optics", "physics"}) == parse_coordinated(
        b"labalice|chemistry,optics,physics\n", "labalice"
    )


@pytest.mark.parametrize("answer", [b"", b"labbob|\n", b"labalice|physics\n"])
def test_nobody_gets_what_is_not_named_for_him(answer: bytes) -> None:
    assert frozenset() == parse_coordinated(answer, "labbob")


@pytest.mark.parametrize("answer", [b"labbob\n", b"labbob|physics|x\n"])
def test_odd_answer_is_no_answer(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        parse_coordinated(answer, "labbob")


@pytest.mark.parametrize("user", ["", "a,b", "a b", "-i", "--help", "a|b", "name=root", "a\nb", "'x'", "*", "x" * 300])
def test_slurm_is_queried_only_for_possible_names(user: str) -> None:
    asked: list[Sequence[str]] = []

    def run(_name: str, arguments: Sequence[str]) -> bytes:
        asked.append(arguments)
        return b""

    assert frozenset() == read_coordinated(run, user)
    assert [] == asked


@given(st.text())
def test_query_holds_one_name_at_most(user: str) -> None:
    def run(_name: str, arguments: Sequence[str]) -> bytes:
        assert _question(user) == arguments
        assert not set(user) & set(",= \t\n|*'\"")
        return b""

    assert frozenset() == read_coordinated(run, user)


def _question(user: str) -> tuple[str, ...]:
    return (
        "--readonly", "--noheader", "--parsable2", "show", "user", f"name={user}", "withcoord",
        "format=User,Coordinators",
    )  # fmt: skip
