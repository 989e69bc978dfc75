# SPDX-License-Identifier: Apache-2.0
"""Slurm is queried rarely for coordinators, and a failed query grants no access."""

from __future__ import annotations

from collections import Counter

import pytest

from slurmscope.core.errors import SourceError
from slurmscope.portal.sign_in.coordinators import CoordinatedAccounts
from tests.fakes.sign_in import FakeClock

GENEROUS_SECONDS = 30.0


class FakeSlurm:
    """Return accounts from a table, or fail while down."""

    def __init__(self) -> None:
        self.accounts = {"ada": frozenset({"physics"})}
        self.queries: Counter[str] = Counter()
        self.is_down = False

    def read(self, user: str) -> frozenset[str]:
        self.queries[user] += 1
        if self.is_down:
            raise SourceError("slurmdbd is unreachable")
        return self.accounts.get(user, frozenset())


def test_accounts_are_cached() -> None:
    slurm, clock = FakeSlurm(), FakeClock()
    accounts = CoordinatedAccounts(slurm.read, clock=clock, lifetime_seconds=300)
    assert frozenset({"physics"}) == accounts("ada")
    slurm.accounts.clear()

    clock.seconds += 299
    assert frozenset({"physics"}) == accounts("ada")
    clock.seconds += 1
    assert frozenset() == accounts("ada")
    assert 2 == slurm.queries["ada"]


def test_failed_query_means_no_accounts_and_is_reported() -> None:
    slurm, clock = FakeSlurm(), FakeClock()
    accounts = CoordinatedAccounts(slurm.read, clock=clock, lifetime_seconds=300, failure_seconds=30)
    accounts("ada")
    slurm.is_down = True
    clock.seconds += 300

    assert () == accounts.problems()
    assert frozenset() == accounts("ada")
    assert 1 == len(accounts.problems())
    assert frozenset() == accounts("bob")
    assert 0 == slurm.queries["bob"]

    slurm.is_down = False
    clock.seconds += 30
    assert frozenset({"physics"}) == accounts("ada")
    assert () == accounts.problems()


def test_unexpected_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        CoordinatedAccounts(lambda user: frozenset(user[:0] * (1 // 0)))("ada")
