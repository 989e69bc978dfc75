# SPDX-License-Identifier: Apache-2.0
"""Slurm is asked seldom who coordinates what, and its silence gives nobody more rights."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from slurmscope.errors import SourceError
from slurmscope.portal.sign_in.coordinated_accounts import CoordinatedAccounts
from tests.fakes.sign_in import FakeClock

GENEROUS_SECONDS = 30.0


class FakeSlurm:
    """Answer from a table, or not at all while it is down."""

    def __init__(self) -> None:
        self.accounts = {"ada": frozenset({"physics"})}
        self.asked: Counter[str] = Counter()
        self.is_down = False

    def ask(self, user: str) -> frozenset[str]:
        self.asked[user] += 1
        if self.is_down:
            raise SourceError("slurmdbd does not answer")
        return self.accounts.get(user, frozenset())


def test_answer_is_kept_for_a_while() -> None:
    slurm, clock = FakeSlurm(), FakeClock()
    accounts = CoordinatedAccounts(slurm.ask, clock=clock, lifetime_seconds=300)
    assert frozenset({"physics"}) == accounts("ada")
    slurm.accounts.clear()

    clock.seconds += 299
    assert frozenset({"physics"}) == accounts("ada")
    clock.seconds += 1
    assert frozenset() == accounts("ada")
    assert 2 == slurm.asked["ada"]


def test_silence_of_slurm_takes_the_accounts_away_and_is_told() -> None:
    slurm, clock = FakeSlurm(), FakeClock()
    accounts = CoordinatedAccounts(slurm.ask, clock=clock, lifetime_seconds=300, failure_seconds=30)
    accounts("ada")
    slurm.is_down = True
    clock.seconds += 300

    assert () == accounts.problems()
    assert frozenset() == accounts("ada")
    assert 1 == len(accounts.problems())
    assert frozenset() == accounts("bob")
    assert 0 == slurm.asked["bob"]

    slurm.is_down = False
    clock.seconds += 30
    assert frozenset({"physics"}) == accounts("ada")
    assert () == accounts.problems()


def test_table_is_bounded() -> None:
    slurm = FakeSlurm()
    accounts = CoordinatedAccounts(slurm.ask, clock=FakeClock(), size_limit=2)
    for user in ("a", "b", "c", "a", "c"):
        accounts(user)

    assert {"a": 2, "b": 1, "c": 1} == slurm.asked


def test_many_at_once_ask_one_question() -> None:
    questions, looks = Counter[str](), threading.Semaphore(0)

    def clock() -> float:
        looks.release()
        return 0.0

    def ask(user: str) -> frozenset[str]:
        questions[user] += 1
        # Everybody has looked, and found nothing, before the first answer comes; who asks has looked twice.
        for _ in range(9 if questions[user] == 1 else 0):
            assert looks.acquire(timeout=GENEROUS_SECONDS)
        return frozenset({"physics"})

    accounts = CoordinatedAccounts(ask, clock=clock)
    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(accounts, ["ada"] * 8))

    assert {frozenset({"physics"})} == answers
    assert {"ada": 1} == questions


def test_who_is_known_does_not_wait_for_the_question_about_another() -> None:
    is_asking, may_answer = threading.Event(), threading.Event()

    def ask(user: str) -> frozenset[str]:
        if user == "slow":
            is_asking.set()
            assert may_answer.wait(GENEROUS_SECONDS)
        return frozenset({user})

    accounts = CoordinatedAccounts(ask, clock=FakeClock())
    accounts("ada")
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(accounts, "slow")
        assert is_asking.wait(GENEROUS_SECONDS)

        assert frozenset({"ada"}) == accounts("ada")
        assert not slow.done()
        may_answer.set()
        assert frozenset({"slow"}) == slow.result(GENEROUS_SECONDS)


def test_bug_is_not_taken_for_silence() -> None:
    with pytest.raises(ZeroDivisionError):
        CoordinatedAccounts(lambda user: frozenset(user[:0] * (1 // 0)))("ada")
