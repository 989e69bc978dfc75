# SPDX-License-Identifier: Apache-2.0
"""Slurm is queried rarely for coordinators, and a failed query grants no access."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

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


def test_table_is_bounded() -> None:
    slurm = FakeSlurm()
    accounts = CoordinatedAccounts(slurm.read, clock=FakeClock(), max_users=2)
    for user in ("a", "b", "c", "a", "c"):
        accounts(user)

    assert {"a": 2, "b": 1, "c": 1} == slurm.queries


def test_concurrent_requests_share_one_query() -> None:
    queries, clock_reads = Counter[str](), threading.Semaphore(0)

    def clock() -> float:
        clock_reads.release()
        return 0.0

    def read(user: str) -> frozenset[str]:
        queries[user] += 1
        # All threads have checked the cache before the first query returns; the querying one twice.
        for _ in range(9 if queries[user] == 1 else 0):
            assert clock_reads.acquire(timeout=GENEROUS_SECONDS)
        return frozenset({"physics"})

    accounts = CoordinatedAccounts(read, clock=clock)
    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(accounts, ["ada"] * 8))

    assert {frozenset({"physics"})} == answers
    assert {"ada": 1} == queries


def test_cached_user_does_not_wait_for_the_query_of_another() -> None:
    is_reading, may_return = threading.Event(), threading.Event()

    def read(user: str) -> frozenset[str]:
        if user == "slow":
            is_reading.set()
            assert may_return.wait(GENEROUS_SECONDS)
        return frozenset({user})

    accounts = CoordinatedAccounts(read, clock=FakeClock())
    accounts("ada")
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(accounts, "slow")
        assert is_reading.wait(GENEROUS_SECONDS)

        assert frozenset({"ada"}) == accounts("ada")
        assert not slow.done()
        may_return.set()
        assert frozenset({"slow"}) == slow.result(GENEROUS_SECONDS)


def test_unexpected_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        CoordinatedAccounts(lambda user: frozenset(user[:0] * (1 // 0)))("ada")
