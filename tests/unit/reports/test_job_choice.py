# SPDX-License-Identifier: Apache-2.0
"""Jobs are chosen by ID, range, list of tasks, or as one's own."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import ConfigError
from slurmscope.reports.job_choice import MAX_IDS, JobChoice, parse_choice, parse_since, parse_state

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["12"], ["12"]),
        (["12_3", "12+1"], ["12_3", "12+1"]),
        (["100-103"], ["100", "101", "102", "103"]),
        (["100,103", "100"], ["100", "103"]),
        (["12_[1-3,7]"], ["12_1", "12_2", "12_3", "12_7"]),
        (["12_[0-6:3],15"], ["12_0", "12_3", "12_6", "15"]),
        (["7-7"], ["7"]),
    ],
)
def test_ids_ranges_and_tasks_are_expanded_in_order(words: list[str], ids: list[str]) -> None:
    assert JobChoice(shown_ids=tuple(ids)) == parse_choice(words)


def test_own_jobs_are_the_default() -> None:
    assert parse_choice([]) == parse_choice(["me"]) == JobChoice()
    assert parse_choice(["me"]).is_own
    assert parse_choice(["last"]).is_last
    assert not parse_choice(["12"]).is_own


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["120-100"], "empty range: 120 is larger than 100"),
        (["12_[5-1]"], "empty range: 5 is larger than 1"),
        (["1-4294967295"], f"more than {MAX_IDS:,} jobs"),
        (["12_[0-999999999]"], f"more than {MAX_IDS:,} jobs"),
        (["me", "12"], "me cannot be combined"),
        (["12,last"], "last cannot be combined"),
        (["12_[]"], "is not a job ID"),
        (["12_[1--2]"], "is not a job ID"),
        (["12_[1-2:0]"], "is not a job ID"),
        (["12,,13"], "is not a job ID"),
        (["0-5"], "is not a job ID"),
    ],
)
def test_wrong_choice_is_explained_in_one_sentence(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_choice(words)

    assert message in str(raised.value)
    assert str(raised.value).isprintable()


@given(st.text(max_size=30))
def test_any_text_is_a_choice_or_a_printable_error(text: str) -> None:
    try:
        choice = parse_choice([text])
    except ConfigError as error:
        assert str(error).isprintable()
    else:
        assert len(choice.shown_ids) <= MAX_IDS


def test_state_is_one_of_slurm_in_any_case() -> None:
    assert "OUT_OF_MEMORY" == parse_state("out_of_memory")
    with pytest.raises(ConfigError, match="DONE is not a job state; choose from PENDING, RUNNING"):
        parse_state("DONE")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("12h", NOW - 43200), ("7d", NOW - 7 * 86400), ("1d12h", NOW - 129600), ("2026-03-10T11:00+00:00", NOW - 3600)],
)
def test_since_is_a_duration_or_a_time(text: str, seconds: float) -> None:
    assert seconds == parse_since(text, NOW)


def test_since_without_a_time_zone_is_local_time() -> None:
    assert datetime(2026, 3, 1).astimezone().timestamp() == parse_since("2026-03-01", NOW)


@pytest.mark.parametrize("text", ["", "7", "x", "2026-13-01", "2030-01-01", "-7d", "999999999d", "yesterday", "\x1b"])
def test_since_that_is_no_past_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--since: .* is neither a duration such as 12h or 7d nor a past time"):
        parse_since(text, NOW)
