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
    rule: str, *, idle: float = 0.0, failed: float = 0.0, gpus: float = 0.0, blocked: float = 0.0
) -> UseTotal:
    """Make the totals of three jobs, in hours."""
    return UseTotal(
        key=rule, jobs=3, core_seconds=1000 * HOUR, measured_core_seconds=1000 * HOUR, used_core_seconds=0.0,
        gpu_seconds=gpus * HOUR, measured_gpu_seconds=gpus * HOUR, used_gpu_seconds=0.0, jobs_with_findings=3,
        unused_core_seconds=idle * HOUR, failed_core_seconds=failed * HOUR, unused_gpu_seconds=gpus * HOUR,
        blocked_core_seconds=blocked * HOUR,
    )  # fmt: skip


def test_three_rules_with_the_most_lost_time_are_chosen() -> None:
    totals = [make_total(f"idle_{idle}", idle=idle) for idle in (90, 10, 50, 70)]
    fixes = choose_fixes(totals, {total.key: ROW for total in totals}, days=30)
    assert ["idle_90", "idle_70", "idle_50"] == [fix.rule for fix in fixes]
    assert "3 jobs in 30 days; 90 core-hours lost." == fixes[0].sentence


def test_time_of_failed_jobs_and_blocked_cores_count_like_idle_ones() -> None:
    totals = [make_total("cpu_idle", idle=60), make_total("oom_kill", failed=61), make_total("memory", blocked=62)]
    fixes = choose_fixes(totals, {total.key: ROW for total in totals}, days=30)
    assert ["memory", "oom_kill", "cpu_idle"] == [fix.rule for fix in fixes]
    assert "3 jobs in 30 days; 62 core-hours blocked for others." == fixes[0].sentence


def test_an_idle_gpu_counts_as_ten_cores() -> None:
    totals = [make_total("cpu_idle", idle=50), make_total("gpu_idle", gpus=6)]
    first, second = choose_fixes(totals, {total.key: ROW for total in totals}, days=7)
    assert ("gpu_idle", "cpu_idle") == (first.rule, second.rule)
    assert "3 jobs in 7 days; 6 GPU-hours lost." == first.sentence


def test_a_rule_without_accessible_jobs_is_left_out_and_one_without_waste_has_no_hours() -> None:
    fixes = choose_fixes([make_total("many_files"), make_total("cpu_idle")], {"many_files": ROW}, days=30)
    assert [("many_files", "3 jobs in 30 days.")] == [(fix.rule, fix.sentence) for fix in fixes]
