# SPDX-License-Identifier: Apache-2.0
"""Times of pages are elements in the zone of the site, also within texts, and nothing in a text becomes markup."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest

from slurmscope.portal.settings import parse_time_zone
from slurmscope.portal.web.templates import SHORT, format_moment, load_zone, make_time_filters, mark_times

# Noon of a day in March; an hour later in the zone.
NOON = 1_772_539_200
PLUS_ONE = timezone(timedelta(hours=1), "CET")


def test_moment_is_shown_in_the_zone_and_keeps_its_instant() -> None:
    expected = '<time datetime="2026-03-03T12:00:00+00:00" data-form="full">2026-03-03 13:00:00 CET</time>'
    assert expected == format_moment(NOON, PLUS_ONE)
    assert ">2026-03-03 13:00</time>" in format_moment(NOON, PLUS_ONE, SHORT)


@pytest.mark.parametrize("seconds", [None, 1e18])
def test_unknown_moment_is_a_word(seconds: float | None) -> None:
    assert "unknown" == format_moment(seconds, UTC)


def test_end_of_the_calendar_is_shown_in_utc() -> None:
    assert "9999-12-31 23:59:59 UTC" in format_moment(253_402_300_799, PLUS_ONE)


def test_times_within_a_text_are_marked_and_the_rest_is_escaped() -> None:
    text = "<b> from 2026-03-03 12:00:00 UTC to 2026-03-03 12:30:00 UTC & more"
    marked = mark_times(text, PLUS_ONE)
    assert 2 == marked.count("<time ")
    assert marked.startswith("&lt;b&gt; from <time ")
    assert ">2026-03-03 13:30:00 CET</time> &amp; more" in marked


def test_impossible_date_in_a_name_stays_text() -> None:
    assert "2026-02-31 99:00:00 UTC" == mark_times("2026-02-31 99:00:00 UTC", PLUS_ONE)


def test_control_characters_are_visible() -> None:
    assert "\x1b" not in mark_times("\x1b[31m", UTC)


def test_utc_needs_no_files_and_filters_use_the_zone() -> None:
    assert UTC is load_zone("UTC")
    assert "12:00:00 UTC" in str(make_time_filters("UTC")["time"](NOON))


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "/etc/localtime", ""])
def test_zone_that_the_system_does_not_know_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone of this system"):
        parse_time_zone(name)
