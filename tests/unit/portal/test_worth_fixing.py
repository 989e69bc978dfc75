# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from slurmscope.archive.interface import UseTotal
from slurmscope.portal.home import choose_fixes
from tests.fakes.archive import make_row
from tests.fakes.reports import make_record, make_report

ROW = replace(make_row(make_report(make_record(1))), state="COMPLETED")
HOUR = 3600.0


def make_total(
    rule: str, *, held: float = 100.0, used: float = 100.0, gpus: float = 0.0, busy: float = 0.0
) -> UseTotal:
    """Make the totals of three jobs, in hours."""
    return UseTotal(
        key=rule, jobs=3, core_seconds=held * HOUR, measured_core_seconds=held * HOUR, used_core_seconds=used * HOUR,
        gpu_seconds=gpus * HOUR, measured_gpu_seconds=gpus * HOUR, used_gpu_seconds=busy * HOUR, jobs_with_findings=3,
    )  # fmt: skip


def test_three_rules_with_the_most_idle_time_are_chosen() -> None:
    totals = [make_total(f"idle_{used}", used=used) for used in (10, 90, 50, 30)]
    fixes = choose_fixes(totals, {total.key: ROW for total in totals}, days=30)
    assert ["idle_10", "idle_30", "idle_50"] == [fix.rule for fix in fixes]
    assert "3 jobs in 30 days; 90 core-hours idle." == fixes[0].sentence


def test_all_time_of_jobs_that_did_not_complete_is_lost() -> None:
    totals = [make_total("cpu_idle", used=40), make_total("oom_kill", used=99)]
    newest = {"cpu_idle": ROW, "oom_kill": replace(ROW, state="OUT_OF_MEMORY")}
    first, second = choose_fixes(totals, newest, days=30)
    assert ("oom_kill", "cpu_idle") == (first.rule, second.rule)
    assert "3 jobs in 30 days; they held 100 core-hours, and the newest did not complete." == first.sentence


def test_an_idle_gpu_counts_as_ten_cores() -> None:
    totals = [make_total("cpu_idle", used=50), make_total("gpu_idle", gpus=10, busy=4)]
    first, second = choose_fixes(totals, {total.key: ROW for total in totals}, days=7)
    assert ("gpu_idle", "cpu_idle") == (first.rule, second.rule)
    assert "3 jobs in 7 days; 6 GPU-hours idle." == first.sentence


def test_a_rule_without_accessible_jobs_is_left_out_and_one_without_waste_has_no_hours() -> None:
    fixes = choose_fixes([make_total("many_files"), make_total("cpu_idle")], {"many_files": ROW}, days=30)
    assert [("many_files", "3 jobs in 30 days.")] == [(fix.rule, fix.sentence) for fix in fixes]
