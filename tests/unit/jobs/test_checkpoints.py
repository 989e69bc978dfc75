# SPDX-License-Identifier: Apache-2.0
"""Checkpoints are found where a job writes much in equal intervals, and nowhere else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.checkpoints import find_checkpoints
from slurmscope.jobs.rule import Finding
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.summarize import summarize
from tests.fakes.job_summaries import all_findings
from tests.fakes.reports import START, make_record

MINUTE = 60.0
GB = 1e9


def curve(minutes: int, *bursts: int, width: int = 1, rate: float = GB / 60) -> tuple[list[float], list[float | None]]:
    """Return a curve with a point a minute; bursts end at these minutes."""
    busy = {end - back for end in bursts for back in range(width)}
    return [MINUTE * n for n in range(minutes + 1)], [rate if n in busy else 100.0 for n in range(minutes + 1)]


def test_bursts_in_equal_intervals_are_checkpoints() -> None:
    found = find_checkpoints(*curve(500, 100, 220, 340, 460, width=2))

    assert found is not None
    assert (4, 120 * MINUTE, 2 * MINUTE, 460 * MINUTE) == found


def test_one_odd_interval_of_many_does_not_matter() -> None:
    found = find_checkpoints(*curve(700, 100, 220, 340, 460, 490, 610))

    assert found is not None
    assert 120 * MINUTE == found.interval_seconds


def test_two_bursts_are_no_pattern() -> None:
    assert find_checkpoints(*curve(500, 100, 220)) is None


def test_irregular_bursts_are_no_checkpoints() -> None:
    assert find_checkpoints(*curve(900, 10, 40, 200, 220, 500, 505, 880)) is None


def test_a_job_that_writes_most_of_the_time_streams_its_results() -> None:
    assert find_checkpoints(*curve(100, *range(10, 100, 10), width=6)) is None


def test_little_that_is_written_in_equal_intervals_is_a_log() -> None:
    assert find_checkpoints(*curve(500, 100, 220, 340, 460, rate=1e5)) is None


def test_bursts_beside_a_steady_stream_are_no_checkpoints() -> None:
    times, rates = curve(500, 100, 220, 340, 460)

    assert find_checkpoints(times, [rate + GB / 600 if rate else rate for rate in rates]) is None


def test_gaps_of_a_tenth_of_the_curve_leave_nothing_known() -> None:
    times, rates = curve(500, 100, 220, 340, 460)
    few, many = rates.copy(), rates.copy()
    few[10:20] = [None] * 10
    many[10:80] = [None] * 70

    assert find_checkpoints(times, few) is not None
    assert find_checkpoints(times, many) is None


@given(st.lists(st.none() | st.floats(0, 1e12), max_size=60))
def test_any_curve_gives_nothing_or_what_can_be(rates: list[float | None]) -> None:
    times = [MINUTE * n for n in range(len(rates))]
    found = find_checkpoints(times, rates)

    assert found is None or (0 < found.interval_seconds and found.last_seconds in times)


def lost(
    state: str = "TIMEOUT", *, cpus: int = 64, suspended_seconds: int = 0, writing_minutes: int = 2
) -> Finding | None:
    """Return what is found about a job that wrote checkpoints every two hours."""
    end = START + 570 * MINUTE
    record = make_record(
        state=state, cpus=cpus, start_seconds=START, end_seconds=int(end), suspended_seconds=suspended_seconds
    )
    times, rates = curve(570, 100, 220, 340, 460, width=writing_minutes)
    series = Series(("n1",), tuple(START + time for time in times), tuple(rate or 0.0 for rate in rates))
    summary = summarize(record, Measured(curves={"write": (series,)}), now_seconds=end)
    return next((finding for finding in all_findings(summary) if finding.rule == "lost_since_checkpoint"), None)


def test_work_since_the_last_checkpoint_is_lost_with_the_job() -> None:
    finding = lost()

    assert finding is not None
    # 110 minutes of 64 cores; at most 40 with a checkpoint every 40 minutes, of which writing takes 5 %.
    assert (
        "It seems to have written 4 checkpoints, one every 2 h, and the last one 1 h 50 min before its end: "
        "117 core-hours were lost. "
        "One every 40 min would have saved at least 74.7 of them, for 3.3 % more time to write."
    ) == finding.explanation
    assert 110 * MINUTE * 64 == finding.numbers["lost_core_seconds"]


def test_checkpoints_that_take_long_are_not_to_be_written_more_often() -> None:
    # Four minutes are 5 % of 80: that is no shorter interval worth naming.
    finding = lost(writing_minutes=4)
    assert finding is not None
    assert finding.explanation.endswith("core-hours were lost.")


def test_completed_or_suspended_job_lost_nothing() -> None:
    assert lost("COMPLETED") is None
    assert lost(suspended_seconds=600) is None


def test_job_of_few_cores_lost_too_little_to_say_so() -> None:
    # 110 minutes of 5 cores are less than the ten core-hours of the rule's default, of 6 more.
    assert lost(cpus=5) is None
    assert lost(cpus=6) is not None
