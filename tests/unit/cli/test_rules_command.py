# SPDX-License-Identifier: Apache-2.0
"""``slurmscope rules`` lists every rule, and counts on an archive what a person would count."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurmscope.jobs.findings import RULES
from tests.fakes.command_line import run_here


def _counts(output: str) -> dict[str, list[str]]:
    """Read the table: what stands beside the name of each rule."""
    return {words[0]: words[1:] for words in (line.split() for line in output.splitlines()[2:])}


def test_list_tells_every_rule_and_the_key_of_every_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMSCOPE_RULES_MEMORY_OVER_REQUESTED_MIN_USED_RATIO", "0.125")

    done = run_here("rules", "list")

    listed = re.findall(r"^(\w+)  \((\w+), (\w+)\)$", done.stdout, re.MULTILINE)
    assert [(rule.id, rule.severity, rule.subject) for rule in RULES] == listed
    assert (
        "    rules.memory-over-requested.min-used-ratio = 0.125  Report jobs that needed less than this share"
        in done.stdout
    )
    assert sum(len(rule.thresholds) for rule in RULES) == done.stdout.count("    rules.")
    assert "\nrules.min-run-seconds = 5m  " in done.stdout


def test_rules_count_jobs_that_ended_in_the_last_days(shared_archive: Path) -> None:
    week = run_here("rules", "test", "--archive.url", str(shared_archive))
    month = run_here("rules", "test", "--days", "30", "--archive.url", str(shared_archive))

    # Of this week ada has three jobs and bob one, ten days ago ada had one more. Each used a tenth of its memory, and
    # left four core hours unused; the archive knows a finding of this rule for each.
    assert week.stdout.startswith("4 jobs ended in the last 7 days\n")
    assert ["4", "2", "16.0", "4"] == _counts(week.stdout)["memory_over_requested"]
    assert ["5", "2", "20.0", "5"] == _counts(month.stdout)["memory_over_requested"]
    assert {rule.id for rule in RULES} == set(_counts(week.stdout))
    assert (0, "") == (week.returncode, week.stderr)


def test_rules_are_tried_with_the_thresholds_that_are_set(shared_archive: Path, tmp_path: Path) -> None:
    file = tmp_path / "changed.toml"
    file.write_text("rules.memory-over-requested.min-used-ratio = 0.05\n", encoding="utf-8")

    done = run_here("rules", "test", "--archive.url", str(shared_archive), "--config.file", str(file))

    assert ["0", "0", "0.0", "4"] == _counts(done.stdout)["memory_over_requested"]


def test_missing_archive_is_reported(tmp_path: Path) -> None:
    done = run_here("rules", "test", "--archive.url", str(tmp_path / "archive.db"))

    assert (2, 1) == (done.returncode, done.stderr.count("\n"))
    assert f"there is no readable archive at sqlite:///{tmp_path}/archive.db" in done.stderr
    assert not (tmp_path / "archive.db").exists()
