# SPDX-License-Identifier: Apache-2.0
"""Who coordinates an account is read from sacctmgr."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import CommandRefused, MalformedAnswer
from slurmscope.slurm.coordinators import parse_coordinators, read_coordinators


def test_coordinators_stand_beside_their_account() -> None:
    answer = b"root|\nphysics|ada,grace\nchemistry|ada\noptics|,\n"

    assert {"physics": ("ada", "grace"), "chemistry": ("ada",)} == parse_coordinators(answer)


def test_coordinator_that_is_named_twice_gets_one_letter() -> None:
    assert {"physics": ("ada", "bob")} == parse_coordinators(b"physics|ada,bob,ada\n")


def test_no_accounts_are_no_coordinators() -> None:
    assert {} == parse_coordinators(b"")


@pytest.mark.parametrize("answer", [b"physics\n", b"physics|ada|more\n", b"physics|ada\n Nothing found\n"])
def test_rows_of_another_shape_are_rejected(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="two requested columns"):
        parse_coordinators(answer)


@given(st.binary(max_size=200))
def test_any_answer_is_read_or_rejected(answer: bytes) -> None:
    try:
        coordinators = parse_coordinators(answer)
    except MalformedAnswer:
        return
    assert all(users and all(users) for users in coordinators.values())


def test_sacctmgr_is_queried_read_only() -> None:
    asked: list[tuple[str, Sequence[str]]] = []

    def run(name: str, arguments: Sequence[str]) -> bytes:
        asked.append((name, arguments))
        return b"physics|ada\n"

    assert {"physics": ("ada",)} == read_coordinators(run)
    ((name, arguments),) = asked
    assert ("sacctmgr", "--readonly") == (name, arguments[0])


def test_refusal_of_slurm_is_reported() -> None:
    def refuse(name: str, arguments: Sequence[str]) -> bytes:
        raise CommandRefused((name, *arguments), "sacctmgr could not reach slurmdbd")

    with pytest.raises(CommandRefused, match="slurmdbd"):
        read_coordinators(refuse)
