# SPDX-License-Identifier: Apache-2.0
"""Make small jobs for an archive, and compare its totals with those of a plain list."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.viewer import Viewer
from tests.contracts.model import (
    ACCOUNTS,
    CLUSTERS,
    DAY,
    NEW_YEAR,
    PARTITIONS,
    RULES,
    STATES,
    USERS,
    Fact,
    ListArchive,
)
from tests.fakes.reports import (
    START,
    make_record,
    make_unmeasured_report,
)

END_OF_TIME = 2**40


def make_small_report(job_id: int, submit_seconds: int = START) -> JobReport:
    return make_unmeasured_report(make_record(job_id, submit_seconds=submit_seconds))


def make_fact(number: int) -> Fact:
    """Return one of jobs of two months that differ in all their names."""
    return Fact(
        cluster=CLUSTERS[number % 2], job_id=number, submit=NEW_YEAR + number * DAY, name="relax",
        user=USERS[number % 4], account=ACCOUNTS[number % 2], partition=PARTITIONS[number // 2 % 2],
        state=STATES[number % 4], array_job_id=None, cpus=4, gpus=number % 3, run_seconds=100.0 + number,
        used_cores=None if number % 5 == 0 else 1.5, gpu_utilization=0.25, node="n1",
        findings=tuple((rule, Severity.WARNING) for rule in RULES[: number % 3]), memory_share=0.5,
    )  # fmt: skip


def check_totals(archive: SqlArchive, model: ListArchive, viewer: Viewer, wanted: JobFilter, by: GroupBy) -> None:
    totals = archive.total(viewer, wanted, by)
    expected = model.sums(viewer, wanted, by)
    actual = {total.key: list(astuple(total)[1:]) for total in totals}
    assert expected.keys() == actual.keys()
    for key, numbers in expected.items():
        assert pytest.approx(numbers) == actual[key]
    waste = [total.measured_core_seconds - total.used_core_seconds for total in totals]
    in_order = sorted(expected) if by is GroupBy.DAY else None
    assert in_order == [total.key for total in totals] if in_order is not None else waste == sorted(waste, reverse=True)
