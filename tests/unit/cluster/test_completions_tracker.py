# SPDX-License-Identifier: Apache-2.0
"""Every ended job is counted once, however readings fall and fail."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.cluster.completions import Completions
from slurmscope.cluster.completions_tracker import (
    GAP_SECONDS,
    LONGEST_WINDOW_SECONDS,
    SETTLE_SECONDS,
    SHORTEST_WINDOW_SECONDS,
    CompletionsTracker,
)
from slurmscope.core.errors import CommandRefused, CommandTimedOut
from slurmscope.slurm.command import random_separator
from tests.fakes.accounting import START, Accounting, Record

MINUTE = 60
HOUR = 3600


def track(accounting: Accounting, file: Path | None = None) -> CompletionsTracker:
    return CompletionsTracker(wall_clock=accounting.wall_clock, state_file=file)


def ended(completions: Completions) -> int:
    return sum(completions.ended.values())


def read_for(accounting: Accounting, tracker: CompletionsTracker, seconds: int, every: int = MINUTE) -> Completions:
    """Read again and again for some time and return the last result."""
    for _ in range(seconds // every):
        accounting.now += every
        completions = tracker.update(accounting.run)
    return completions


class TestCounting:
    def test_job_is_counted_at_the_next_reading_and_never_again(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        accounting.end_job()

        assert 1 == ended(read_for(accounting, tracker, MINUTE))
        assert 1 == ended(read_for(accounting, tracker, 2 * HOUR))

    def test_what_ended_before_us_is_history(self) -> None:
        accounting = Accounting()
        accounting.end_job(ago=1)
        tracker = track(accounting)

        completions = read_for(accounting, tracker, HOUR)

        assert 0 == ended(completions)
        assert START == completions.since

    def test_job_that_ends_on_the_edge_of_a_window_is_counted_once(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        for _ in range(30):
            accounting.now += MINUTE
            accounting.end_job()
            tracker.update(accounting.run)

        assert 30 == ended(read_for(accounting, tracker, HOUR))

    def test_same_id_submitted_again_is_another_job(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        for submit in (START - 50, START - 40):
            accounting.records.append(Record(job_id=7, submit=submit, end=START, known_at=START))

        assert 2 == ended(read_for(accounting, tracker, MINUTE))

    def test_record_known_minutes_after_the_end_is_counted(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        read_for(accounting, tracker, HOUR)
        accounting.end_job(known_in=SETTLE_SECONDS - 2 * MINUTE)

        assert 1 == ended(read_for(accounting, tracker, HOUR))

    def test_record_without_the_start_is_counted_when_the_start_is_known(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        whole = accounting.end_job()
        accounting.records[0] = replace(whole, partition="")

        assert 0 == ended(read_for(accounting, tracker, 2 * MINUTE))
        accounting.records[0] = whole
        assert {("debug", "physics", "COMPLETED", "ok"): 1} == read_for(accounting, tracker, 2 * MINUTE).ended
        assert 1 == ended(read_for(accounting, tracker, HOUR))

    @pytest.mark.parametrize("every", [MINUTE, GAP_SECONDS + MINUTE])
    def test_record_whose_start_never_comes_is_counted_once(self, every: int) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        accounting.records.append(replace(accounting.end_job(), job_id=2, partition=""))

        assert 1 == ended(read_for(accounting, tracker, every, every))
        assert 2 == ended(read_for(accounting, tracker, 2 * HOUR, every))

    def test_sums_have_the_time_up_to_which_they_count(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        accounting.end_job()
        accounting.end_job()

        completions = read_for(accounting, tracker, MINUTE)

        assert {("debug", "physics", "COMPLETED", "ok"): 2} == completions.ended
        assert {("debug", "physics"): 40} == completions.cpu_seconds
        assert {} == completions.gpu_seconds
        assert START + MINUTE == completions.read_until

    def test_sums_that_were_returned_do_not_change(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        accounting.end_job()
        before = read_for(accounting, tracker, MINUTE)
        accounting.end_job()
        read_for(accounting, tracker, MINUTE)

        assert 1 == ended(before)

    def test_each_call_has_its_own_separator(self) -> None:
        assert random_separator() != random_separator()
        assert random_separator().isalnum()


class TestFailures:
    def test_failed_reading_loses_nothing(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        accounting.end_job()
        accounting.go_down()
        accounting.now += MINUTE
        with pytest.raises(CommandRefused):
            tracker.update(accounting.run)
        accounting.error = None

        assert 1 == ended(read_for(accounting, tracker, MINUTE))
        assert [(START, START + MINUTE), (START, START + 2 * MINUTE)] == accounting.windows

    def test_ends_delivered_minutes_after_an_outage_are_counted(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        read_for(accounting, tracker, HOUR)
        accounting.go_down()
        for _ in range(45):
            accounting.now += MINUTE
            back_in = START + HOUR + 45 * MINUTE - accounting.now
            accounting.end_job(known_in=back_in + SETTLE_SECONDS - 2 * MINUTE)
            with pytest.raises(CommandRefused):
                tracker.update(accounting.run)
        accounting.error = None

        assert 0 == ended(read_for(accounting, tracker, MINUTE))
        assert 45 == ended(read_for(accounting, tracker, 2 * HOUR))

    def test_slow_answer_halves_the_window_and_good_ones_double_it(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        accounting.now += 100 * HOUR
        accounting.error = CommandTimedOut(["sacct"], "too slow")
        for _ in range(8):
            with pytest.raises(CommandTimedOut):
                tracker.update(accounting.run)
        accounting.error = None
        for _ in range(8):
            tracker.update(accounting.run)

        spans = [end - start for start, end in accounting.windows]
        assert [3600, 1800, 900, 450, 225, 112, 60, 60] == spans[:8]
        assert [60, 120, 240, 480, 960, 1920, 3600, 3600] == spans[8:]
        assert SHORTEST_WINDOW_SECONDS == min(spans)

    def test_shorter_window_settles_nothing_beyond_itself(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        accounting.now += 2000
        accounting.end_job(ago=100, known_in=MINUTE)
        tracker.update(accounting.run)
        accounting.now += SETTLE_SECONDS
        accounting.error = CommandTimedOut(["sacct"], "too slow")
        for _ in range(6):
            with pytest.raises(CommandTimedOut):
                tracker.update(accounting.run)
        accounting.error = None

        assert 1 == ended(read_for(accounting, tracker, HOUR))

    def test_refusal_does_not_change_the_window(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        accounting.now += 100 * HOUR
        accounting.go_down()
        for _ in range(3):
            with pytest.raises(CommandRefused):
                tracker.update(accounting.run)

        assert {LONGEST_WINDOW_SECONDS} == {end - start for start, end in accounting.windows}

    def test_days_are_caught_up_with_hour_by_hour(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        read_for(accounting, tracker, HOUR)
        for _ in range(48):
            accounting.now += HOUR
            accounting.end_job()
        accounting.windows.clear()

        completions = read_for(accounting, tracker, HOUR + SETTLE_SECONDS)

        assert 48 == ended(completions)
        assert accounting.now == completions.read_until
        assert LONGEST_WINDOW_SECONDS >= max(end - start for start, end in accounting.windows)

    @pytest.mark.parametrize("every", [GAP_SECONDS + 1, SETTLE_SECONDS, 20 * MINUTE])
    def test_rare_readings_keep_up_with_time(self, every: int) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        for _ in range(60):
            accounting.now += every
            accounting.end_job()
            completions = tracker.update(accounting.run)

        assert 60 == ended(completions)
        assert accounting.now == completions.read_until

    def test_unreadable_rows_are_counted(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        accounting.end_job()
        accounting.now += MINUTE

        completions = tracker.update(lambda name, arguments: b"Hello!\n" + accounting.run(name, arguments))

        assert 1 == completions.unreadable_rows
        assert 1 == ended(completions)


class TestClock:
    def test_clock_set_back_an_hour_loses_and_doubles_nothing(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        for _ in range(60):
            accounting.end_job()
            read_for(accounting, tracker, MINUTE)
        accounting.now -= HOUR
        for _ in range(60):
            # The controller's clock is right all the time.
            accounting.end_job(ago=-HOUR)
            read_for(accounting, tracker, MINUTE)
        accounting.now += HOUR

        assert 120 == ended(read_for(accounting, tracker, 2 * HOUR))

    def test_clock_that_ran_ahead_for_a_moment_loses_nothing(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)
        read_for(accounting, tracker, HOUR)
        accounting.now += HOUR
        tracker.update(accounting.run)
        accounting.now -= HOUR
        accounting.end_job()

        assert 1 == ended(read_for(accounting, tracker, 2 * HOUR))

    def test_mark_from_the_future_is_brought_back_with_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        accounting = Accounting()
        accounting.now += 1000 * HOUR
        tracker = track(accounting)
        accounting.end_job()
        tracker.update(accounting.run)
        accounting.now = START
        caplog.set_level(logging.WARNING)

        tracker.update(accounting.run)
        accounting.end_job()
        completions = read_for(accounting, tracker, HOUR)

        assert 2 == ended(completions)
        assert START == completions.since
        assert ["the clock was set back; counting ended jobs from now on"] == [r.getMessage() for r in caplog.records]

    def test_future_is_not_reported_as_read(self) -> None:
        accounting = Accounting()
        tracker = track(accounting)

        assert START == tracker.update(accounting.run).read_until


class TestMemory:
    def test_final_jobs_are_dropped_from_the_state(self, tmp_path: Path) -> None:
        accounting = Accounting()
        file = tmp_path / "state"
        tracker = track(accounting, file)
        for _ in range(50):
            accounting.end_job()
            read_for(accounting, tracker, MINUTE)
        sizes = [file.stat().st_size]
        for _ in range(100):
            accounting.end_job()
            read_for(accounting, tracker, MINUTE)
            sizes.append(file.stat().st_size)

        assert 100 > max(sizes) - min(sizes)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("end"), st.integers(0, 300)),
        st.tuples(st.just("read"), st.integers(1, 2 * HOUR)),
        st.tuples(st.just("fail"), st.integers(1, 2 * HOUR)),
        st.tuples(st.just("restart"), st.integers(0, 2 * HOUR)),
    ),
    max_size=40,
)


def delay(accounting: Accounting, delayed: set[int]) -> None:
    """Let what was not delivered before an outage arrive minutes after it."""
    for position, record in enumerate(accounting.records):
        if record.known_at > accounting.now and record.job_id not in delayed:
            delayed.add(record.job_id)
            accounting.records[position] = replace(record, known_at=accounting.now + 300)


@settings(deadline=None, max_examples=50)
@given(steps=STEPS, data=st.data())
def test_every_end_is_counted_exactly_once(steps: list[tuple[str, int]], data: st.DataObject) -> None:
    accounting = Accounting()
    delayed: set[int] = set()
    served = 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "completions.json"
        tracker = track(accounting, file)
        tracker.update(accounting.run)
        for step, number in steps:
            if step == "end":
                accounting.end_job(known_in=number)
                continue
            accounting.now += number
            if step == "fail" or data.draw(st.booleans()):
                delay(accounting, delayed)
            if step == "restart":
                tracker = track(accounting, file)
            accounting.error = CommandRefused(["sacct"], "down") if step == "fail" else None
            with contextlib.suppress(CommandRefused):
                total = ended(tracker.update(accounting.run))
                assert served <= total <= len(accounting.records)
                served = total
        accounting.error = None
        tracker = track(accounting, file)
    # Without its folder the file is not written any more: that is quicker and changes nothing.
    completions = read_for(accounting, tracker, 2 * SETTLE_SECONDS + 2 * HOUR * len(steps) // 6 + HOUR)

    assert accounting.now == completions.read_until
    assert len(accounting.records) == ended(completions)


def test_job_whose_partition_is_not_known_yet_is_counted_at_the_next_reading() -> None:
    """Seen on a real slurmdbd: for a moment a job has ended and has no partition."""
    accounting = Accounting()
    tracker = track(accounting)
    record = accounting.end_job()
    accounting.records = [replace(record, partition="")]

    assert 0 == ended(read_for(accounting, tracker, MINUTE))
    accounting.records = [record]
    assert {("debug", "physics", "COMPLETED", "ok"): 1} == dict(read_for(accounting, tracker, MINUTE).ended)


def test_job_without_a_partition_is_counted_in_the_end() -> None:
    accounting = Accounting()
    tracker = track(accounting)
    accounting.records = [replace(accounting.end_job(), partition="")]

    assert 1 == ended(read_for(accounting, tracker, HOUR))
