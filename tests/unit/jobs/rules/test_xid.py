# SPDX-License-Identifier: Apache-2.0
"""The error numbers of NVIDIA's driver are explained, with whose fault they usually are."""

from __future__ import annotations

import pytest

from slurmscope.jobs.rules.gpu import XIDS, Blame, describe_xid


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_faults_of_programs_are_named_so(number: int) -> None:
    assert Blame.APPLICATION is describe_xid(number).blame


@pytest.mark.parametrize("number", [48, 63, 64, 74, 79, 92, 94, 95])
def test_faults_of_hardware_are_named_so(number: int) -> None:
    assert Blame.HARDWARE is describe_xid(number).blame


def test_unknown_number_blames_no_one() -> None:
    unknown = describe_xid(9999)
    assert (9999, Blame.EITHER) == (unknown.number, unknown.blame)
    assert "no entry" in unknown.meaning


def test_every_meaning_is_one_sentence_under_its_own_number() -> None:
    for number, xid in XIDS.items():
        assert number == xid.number
        assert xid.meaning.endswith(".")
        assert ". " not in xid.meaning
