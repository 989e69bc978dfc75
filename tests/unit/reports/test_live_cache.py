# SPDX-License-Identifier: Apache-2.0
"""What is slow to make is made once for many callers, kept for a while, and bounded."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from slurmscope.core.errors import CommandTimedOut
from slurmscope.jobs.report import JobReport
from slurmscope.reports.live_cache import FRESH_SECONDS, KEPT_VALUES, MADE_AT_ONCE, STALE_SECONDS, LiveCache
from tests.fakes.report_finding import TIMED_OUT
from tests.fakes.reports import make_report
from tests.processes import until


def test_kept_reports_are_bounded() -> None:
    live = LiveCache(lambda _: make_report())
    for number in range(KEPT_VALUES + 10):
        live.get(str(number))
    assert KEPT_VALUES == len(live)


def test_kept_absences_are_bounded() -> None:
    live = LiveCache[JobReport](lambda _: None)
    for number in range(KEPT_VALUES + 10):
        live.get(str(number))
    assert KEPT_VALUES == len(live)


def test_absence_is_kept_as_long_as_a_value() -> None:
    now, made, there = [0.0], list[str](), list[JobReport]()

    def make(shown_id: str) -> JobReport | None:
        made.append(shown_id)
        return there[0] if there else None

    live = LiveCache(make, lambda: now[0])
    assert [None] * 3 == [live.get("12") for _ in range(3)]
    assert ["12"] == made
    there.append(make_report())
    now[0] += FRESH_SECONDS
    until(lambda: live.get("12") is not None)
    assert ["12", "12"] == made


def test_absence_that_is_too_old_is_queried_again_at_once() -> None:
    now, there = [0.0], list[JobReport]()
    live = LiveCache(lambda _: there[0] if there else None, lambda: now[0])
    live.get("12")
    there.append(make_report())
    now[0] += STALE_SECONDS
    assert there[0] == live.get("12")


def test_kept_absence_is_nothing_to_show() -> None:
    made = list[str]()
    live = LiveCache[JobReport](made.append, lambda: 0.0)
    assert live.get("12") is None
    # Who has an archived report may show it while another attempt is made; that is enough for a while.
    assert live.begin("12")
    until(lambda: ["12", "12"] == made and not live.begin("12"))


def test_old_report_is_shown_while_one_new_one_is_made() -> None:
    now, made = [0.0], []
    go_on = threading.Event()

    def make(shown_id: str) -> JobReport:
        made.append(shown_id)
        assert len(made) == 1 or go_on.wait(60)
        return make_report(made_seconds=len(made))

    live = LiveCache(make, lambda: now[0])
    first = live.get("12")
    now[0] += FRESH_SECONDS
    assert [first] * 3 == [live.get("12") for _ in range(3)]
    go_on.set()
    until(lambda: live.get("12") != first)
    assert ["12", "12"] == made


def test_report_that_cannot_be_renewed_stays_for_a_while() -> None:
    now, made = [0.0], []

    def make(shown_id: str) -> JobReport:
        made.append(shown_id)
        if len(made) > 1:
            raise TIMED_OUT
        return make_report()

    live = LiveCache(make, lambda: now[0])
    first = live.get("12")
    now[0] += FRESH_SECONDS
    assert first == live.get("12")
    until(lambda: len(made) == 2)
    now[0] += STALE_SECONDS
    with pytest.raises(CommandTimedOut):
        live.get("12")


def test_only_so_many_are_made_in_the_background() -> None:
    go_on = threading.Event()

    def make(_: str) -> JobReport:
        assert go_on.wait(60)
        return make_report()

    live = LiveCache(make)
    names = [str(number) for number in range(MADE_AT_ONCE + 2)]
    assert [True] * MADE_AT_ONCE + [False] * 2 == [live.begin(name) for name in names]
    assert [True] * MADE_AT_ONCE == [live.begin(name) for name in names[:MADE_AT_ONCE]]
    go_on.set()
    until(lambda: not live.begin(names[0]))
    until(lambda: live.begin(names[-1]))


def test_all_callers_wait_for_the_first_report() -> None:
    made = []

    def make(shown_id: str) -> JobReport:
        made.append(shown_id)
        return make_report()

    live = LiveCache(make)
    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(live.get, ["12"] * 8))
    assert (8, ["12"]) == (len([report for report in reports if report]), made)
