# SPDX-License-Identifier: Apache-2.0
"""What is kept for ever stays; neither a slip of the pen nor a wrong clock empties the archive."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pytest

from slurmscope.core.clock import Clock
from slurmscope.core.errors import ArchiveError
from slurmscope.reporter.retention import MAX_STEP_SECONDS, Retention, RetentionTask, parse_keep_seconds

DAY = 86400


@dataclass
class Bench:
    """Hold rows by their age, a clock, and what is stored in the archive."""

    wall: float = 1000 * DAY + 5000.0
    monotonic: float = 0.0
    newest: int | None = 1000 * DAY
    limits: list[int] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    failing: set[int] = field(default_factory=set)
    left: dict[int, int] = field(default_factory=dict)
    prepared: list[float] = field(default_factory=list)
    is_unreachable: bool = False

    def read_checkpoint(self, name: str) -> str | None:
        return self.texts.get(name)

    def write_checkpoint(self, name: str, text: str) -> None:
        self.texts[name] = text

    def read_newest(self) -> int | None:
        if self.is_unreachable:
            raise ArchiveError("no route to host")
        return self.newest

    def prepare(self) -> None:
        self.prepared.append(self.wall)
        if 0 in self.failing:
            raise ArchiveError("the database was too slow")

    def delete(self, before_seconds: int, days: int) -> int:
        self.limits.append(before_seconds)
        if days in self.failing:
            raise ArchiveError("the database was too slow")
        self.left[days] = max(0, self.left.get(days, 0) - 1)
        return self.left[days]

    def start(self, *keep_days: int) -> Retention:
        tasks = [
            RetentionTask(name=f"{days}", delete=partial(self.delete, days=days), keep_seconds=days * DAY)
            for days in keep_days
        ]
        clock = Clock(wall=lambda: self.wall, monotonic=lambda: self.monotonic)
        return Retention(tasks, clock, prepare=self.prepare, checkpoints=self, newest=self.read_newest)

    def pass_days(self, days: float) -> None:
        self.wall += days * DAY
        self.monotonic += days * DAY
        self.newest = int(self.wall)


@pytest.mark.parametrize(("given", "expected"), [("0", 0.0), (0, 0.0), ("7d", 604800.0), ("365d", 31536000.0)])
def test_time_to_keep_is_read(given: object, expected: float) -> None:
    assert expected == parse_keep_seconds(given)


@pytest.mark.parametrize("given", ["365", 365, "6d", "1s"])
def test_time_without_its_unit_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match=r"is less than the minimum of 7d; 0 keeps data forever"):
        parse_keep_seconds(given)


def test_what_is_kept_for_ever_is_not_deleted() -> None:
    bench = Bench()
    bench.start(0, 400).work()

    assert [600 * DAY] == bench.limits


def test_clock_that_jumps_ahead_deletes_nothing_of_the_time_to_keep() -> None:
    bench = Bench()
    retention = bench.start(365)
    retention.work()
    bench.pass_days(1)
    bench.wall += 400 * DAY
    for _ in range(10):
        bench.wall += DAY
        retention.work()
        # Also after a restart.
        bench.start(365).work()

    # The newest job is of day 1001: at most one day more than its age allows.
    assert max(bench.limits) <= (1002 - 365) * DAY


def test_clock_that_jumps_ahead_on_all_machines_deletes_two_weeks_a_day() -> None:
    bench = Bench()
    retention = bench.start(365)
    retention.work()
    bench.pass_days(1)
    for _ in range(10):
        bench.wall += 400 * DAY
        bench.newest = int(bench.wall)
        retention.work()

    assert [(1000 - 365) * DAY, (1000 - 365) * DAY + MAX_STEP_SECONDS] == bench.limits


def test_shorter_time_to_keep_is_reached_step_by_step() -> None:
    bench = Bench()
    bench.start(60).work()
    bench.texts["30 deleted until"] = bench.texts.pop("60 deleted until")
    retention = bench.start(30)
    for _ in range(5):
        bench.pass_days(1)
        retention.work()

    assert [940, 954, 968, 973, 974, 975] == [before // DAY for before in bench.limits]


def test_archive_without_jobs_keeps_everything() -> None:
    bench = Bench(newest=None)
    bench.start(365).work()

    assert [] == bench.limits


def test_day_of_an_empty_archive_begins_with_its_first_job() -> None:
    bench = Bench(newest=None)
    retention = bench.start(30)
    retention.work()
    bench.newest = int(bench.wall)
    retention.work()
    retention.work()

    assert [970 * DAY] == bench.limits


def test_task_that_fails_stops_no_other_and_is_retried_in_an_hour() -> None:
    bench = Bench(failing={200}, left={100: 2})
    retention = bench.start(100, 200, 300)
    for _ in range(3):
        retention.work()

    # The first has rows for two rounds; the second fails once; the third is done at once.
    assert [900, 800, 700, 900] == [before // DAY for before in bench.limits]
    assert {"100 deleted until", "300 deleted until"} == set(bench.texts)
    bench.failing.clear()
    bench.monotonic += 3600
    retention.work()
    assert [800] == [before // DAY for before in bench.limits[4:]]
    assert {f"{days} deleted until" for days in (100, 200, 300)} == set(bench.texts)


def test_partitions_are_made_once_a_day_also_where_everything_is_kept() -> None:
    bench = Bench(newest=None)
    retention = bench.start(0)
    retention.work()
    assert [] == bench.prepared  # the day of an empty archive begins with its first job
    bench.newest = int(bench.wall)
    for _ in range(3):
        retention.work()
    assert [bench.wall] == bench.prepared
    bench.pass_days(1)
    retention.work()
    assert [bench.wall] == bench.prepared[1:]
    assert [] == bench.limits


def test_partitions_that_cannot_be_made_are_tried_again_in_an_hour_and_delay_nothing() -> None:
    bench = Bench(failing={0})
    retention = bench.start(100)
    for _ in range(3):
        retention.work()
    assert (1, [900]) == (len(bench.prepared), [before // DAY for before in bench.limits])
    bench.monotonic += 3600
    retention.work()
    assert 2 == len(bench.prepared)


def test_another_process_is_to_try_if_all_that_is_due_fails() -> None:
    bench = Bench(failing={0, 100})
    retention = bench.start(100, 200)
    # One of two tasks succeeds; then nothing is due; then only what failed.
    assert [True, True] == [retention.work() for _ in range(2)]
    bench.monotonic += 3600
    assert not retention.work()
    bench.failing.clear()
    bench.monotonic += 3600
    assert retention.work()
    bench.is_unreachable = True
    assert not retention.work()
