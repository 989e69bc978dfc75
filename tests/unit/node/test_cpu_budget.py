# SPDX-License-Identifier: Apache-2.0
"""A thread may work in bursts, and over time only for its share."""

from __future__ import annotations

import pytest

from slurmscope.node.tracker import CpuBudget


class Clocks:
    """Hold a wall clock and a CPU clock that a test moves."""

    def __init__(self) -> None:
        self.wall = 100.0
        self.cpu = 5.0

    def work(self, budget: CpuBudget, seconds: float) -> None:
        with budget.charged():
            self.wall += seconds
            self.cpu += seconds


@pytest.fixture
def clocks() -> Clocks:
    """Give two clocks that stand still."""
    return Clocks()


@pytest.fixture
def budget(clocks: Clocks) -> CpuBudget:
    """Allow a twentieth of a core, and half a second at once."""
    return CpuBudget(0.05, 0.5, clock=lambda: clocks.wall, cpu_clock=lambda: clocks.cpu)


def test_burst_is_free(clocks: Clocks, budget: CpuBudget) -> None:
    clocks.work(budget, 0.4)
    assert 0.0 == budget.low_seconds()


def test_budget_is_low_until_a_tenth_of_the_burst_is_earned(clocks: Clocks, budget: CpuBudget) -> None:
    clocks.work(budget, 0.5)
    assert pytest.approx(1.0) == budget.low_seconds()
    clocks.wall += 0.5
    assert pytest.approx(0.5) == budget.low_seconds()
    clocks.wall += 0.6
    assert 0.0 == budget.low_seconds()


def test_work_beyond_the_burst_is_paid_for_by_rest(clocks: Clocks, budget: CpuBudget) -> None:
    clocks.work(budget, 0.55)
    # 0.05 s too much, and a tenth of the burst to be earned, at a twentieth of the time.
    assert pytest.approx(2.0) == budget.low_seconds()


def test_one_very_long_piece_of_work_is_forgiven_in_part(clocks: Clocks, budget: CpuBudget) -> None:
    clocks.work(budget, 100.0)
    # A fifth of the burst at most is owed.
    assert pytest.approx(3.0) == budget.low_seconds()


def test_long_rest_earns_no_more_than_a_burst(clocks: Clocks, budget: CpuBudget) -> None:
    clocks.wall += 1e6
    clocks.work(budget, 0.55)
    assert pytest.approx(2.0) == budget.low_seconds()


def test_sleep_inside_the_work_is_not_charged(clocks: Clocks, budget: CpuBudget) -> None:
    with budget.charged():
        clocks.wall += 100.0
    assert 0.0 == budget.low_seconds()


def test_endless_work_gets_its_share_and_no_more(clocks: Clocks, budget: CpuBudget) -> None:
    began_wall, began_cpu = clocks.wall, clocks.cpu
    while clocks.wall < began_wall + 1000.0:
        clocks.wall += budget.low_seconds()
        clocks.work(budget, 0.003)
    share = (clocks.cpu - began_cpu - 0.5) / (clocks.wall - began_wall)
    assert pytest.approx(0.05, rel=0.02) == share


def test_work_that_fails_is_charged_too(clocks: Clocks, budget: CpuBudget) -> None:
    def fail() -> None:
        with budget.charged():
            clocks.cpu += 0.55
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert pytest.approx(2.0) == budget.low_seconds()
