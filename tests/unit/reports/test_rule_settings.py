# SPDX-License-Identifier: Apache-2.0
"""Every threshold of every rule can be set, by flag, variable and file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.config import load
from slurmscope.core.errors import ConfigError
from slurmscope.jobs.findings import RULES
from slurmscope.reports.settings import (
    parse_bytes_threshold,
    parse_seconds_threshold,
    parse_threshold,
    rule_section,
    rule_sections,
    thresholds_of,
)


def test_without_settings_every_threshold_has_the_default_of_its_rule() -> None:
    config = load(rule_sections(), flags={}, environment={})

    expected = {f"{rule.id}.{threshold.name}": threshold.default for rule in RULES for threshold in rule.thresholds}
    assert expected | {"min_run_seconds": 300.0} == thresholds_of(config)


def test_threshold_is_set_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "slurmscope.toml"
    file.write_text("[rules.memory-over-requested]\nmin-used-ratio = 0.25\nfree-bytes-per-core = 5\n")

    thresholds = thresholds_of(load(rule_sections(), flags={}, environment={}, files=[file]))

    assert (0.25, 5.0) == (
        thresholds["memory_over_requested.min_used_ratio"],
        thresholds["memory_over_requested.free_bytes_per_core"],
    )


@pytest.mark.parametrize("wrong", ["-1", "nan", "inf", "much", "", "1e999"])
def test_wrong_threshold_is_reported_by_its_flag(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"rules\.memory-over-requested\.min-used-ratio.*not a number of 0 or more"):
        load(rule_sections(), flags={"rules.memory-over-requested.min-used-ratio": wrong}, environment={})


@pytest.mark.parametrize("wrong", [True, None, [1], {}])
def test_only_numbers_are_thresholds(wrong: object) -> None:
    with pytest.raises(ValueError, match="not a number"):
        parse_threshold(wrong)


def test_threshold_may_have_a_unit() -> None:
    flags: dict[str, object] = {
        "rules.memory-over-requested.free-bytes-per-core": "2GiB",
        "rules.too-short.min-run-seconds": "1m30s",
    }

    thresholds = thresholds_of(load(rule_sections(), flags=flags, environment={}))

    assert (2 * 2**30, 90.0) == (
        thresholds["memory_over_requested.free_bytes_per_core"],
        thresholds["too_short.min_run_seconds"],
    )


@pytest.mark.parametrize("wrong", ["-1", "nan", "inf", "much", "", "1e999", True, None, [1]])
def test_wrong_duration_or_size_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_seconds_threshold(wrong)
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes_threshold(wrong)


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_written_number_comes_back(number: float) -> None:
    assert number == parse_threshold(repr(number))


def test_rules_without_thresholds_have_no_section() -> None:
    bare = [rule.id for rule in RULES if not rule.thresholds]
    named = [section.name for section in rule_sections()]

    assert bare
    assert [None] * len(bare) == [rule_section(rule) for rule in bare]
    assert len(RULES) - len(bare) == len(set(named) - {"rules"})


def test_minimum_run_time_is_one_key(tmp_path: Path) -> None:
    file = tmp_path / "slurmscope.toml"
    file.write_text("[rules]\nmin-run-seconds = '20m'\n[rules.cpu-idle]\nmin-busy-ratio = 0.5\n")

    thresholds = thresholds_of(load(rule_sections(), flags={}, environment={}, files=[file]))

    assert (1200.0, 0.5) == (thresholds["min_run_seconds"], thresholds["cpu_idle.min_busy_ratio"])


def test_dropped_minimum_run_time_of_a_rule_names_the_one_key() -> None:
    with pytest.raises(ConfigError, match=r"_CPU_IDLE_MIN_RUN_SECONDS was removed: use rules\.min-run-seconds"):
        load(rule_sections(), flags={}, environment={"SLURMSCOPE_RULES_CPU_IDLE_MIN_RUN_SECONDS": "60"})
