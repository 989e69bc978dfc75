# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.archive.interface import JobFilter, ListOrder, PagePosition, SortColumn
from slurmscope.jobs.rule import Severity
from slurmscope.portal.queries import (
    BadQuery,
    parse_days,
    parse_filter,
    parse_order,
    parse_position,
    render_order,
    render_position,
    render_query,
)

TEXTS = st.text(max_size=30).map(str.strip).filter(str.isprintable)
DAYS = st.none() | st.integers(min_value=0, max_value=40_000).map(lambda day: day * 86400)


@given(
    st.builds(
        JobFilter, user=TEXTS, account=TEXTS, partition=TEXTS, name_part=TEXTS, rule=TEXTS, reason=TEXTS,
        worst=st.none() | st.sampled_from(Severity), array_job_id=st.none() | st.integers(0, 2**32),
        since_seconds=DAYS, until_seconds=DAYS.map(lambda day: None if day is None else day + 86400),
        is_running=st.none() | st.booleans(),
    )
)  # fmt: skip
def test_filter_round_trips_through_the_query_string(wanted: JobFilter) -> None:
    assert wanted == parse_filter(dict(parse_qsl(render_query(wanted).removeprefix("?"))))


@given(st.dictionaries(st.sampled_from(["user", "since", "until", "worst", "array", "running", "state"]), st.text()))
def test_any_query_is_parsed_or_rejected_with_a_message(query: dict[str, str]) -> None:
    try:
        parse_filter(query)
    except BadQuery as error:
        assert str(error).endswith(".")


def test_days_of_the_filter_are_whole_days_of_utc() -> None:
    wanted = parse_filter({"since": "2026-03-01", "until": "2026-03-01"})
    # date -u -d 2026-03-01 +%s
    assert (1772323200, 1772409600) == (wanted.since_seconds, wanted.until_seconds)


def test_empty_filter_has_no_query_string() -> None:
    assert "" == render_query(JobFilter())


def test_position_round_trips_through_the_query_string() -> None:
    assert PagePosition(1790000000, 4711) == parse_position(render_position(PagePosition(1790000000, 4711)) or "")
    assert (None, None) == (parse_position(""), render_position(None))


TIMES = st.integers(0, 2**33)
NUMBERS = st.floats(0, 1e12) | st.integers(0, 2**40)


@given(st.sampled_from(SortColumn), st.booleans(), TIMES, TIMES, NUMBERS, st.text(max_size=500))
def test_order_and_position_round_trip_through_the_query_string(
    column: SortColumn, is_ascending: bool, submitted: int, job_id: int, number: float, text: str
) -> None:
    order = ListOrder(column, is_ascending)
    assert order == parse_order(render_order(order))
    value = None if column is SortColumn.SUBMIT else text if column.is_text else number
    place = PagePosition(submitted, job_id, value)
    assert place == parse_position(render_position(place) or "", order)


@pytest.mark.parametrize("query", [{"sort": "rules"}, {"sort": "cpu", "dir": "up"}, {"sort": "CPU"}])
def test_unknown_order_is_rejected(query: dict[str, str]) -> None:
    with pytest.raises(BadQuery):
        parse_order(query)


@pytest.mark.parametrize("text", ["1-2", "1-2-", "1-2-nan", "1-2-inf", "1-2-x", "1-2-1e999"])
def test_position_of_a_sorted_list_has_a_finite_number(text: str) -> None:
    with pytest.raises(BadQuery):
        parse_position(text, ListOrder(SortColumn.CPU))


@pytest.mark.parametrize("text", ["1", "1-", "-1", "1-2-3", "a-b", "1-2\n", "99999999999-1"])
def test_malformed_position_is_rejected(text: str) -> None:
    with pytest.raises(BadQuery):
        parse_position(text)


def test_default_period_is_thirty_days() -> None:
    assert (30, 7) == (parse_days({}), parse_days({"days": "7"}))
