# SPDX-License-Identifier: Apache-2.0
"""A recorder answers for the jobs of its own cluster only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from slurmscope.core.errors import CommandFailed
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.jobs.series import JobSpan
from slurmscope.reports.sources import OwnSeries
from tests.fakes.reporting import FakeSeries

SPANS = [JobSpan(1, 0.0, 60.0)]


def name_lab(command: str, arguments: Sequence[str]) -> bytes:
    return b"ClusterName = lab\nPrivateData = none\n"


def fail(command: str, arguments: Sequence[str]) -> bytes:
    raise CommandFailed([command], "cannot connect")


def found(series: OwnSeries, cluster: str) -> list[bool]:
    totals = series.read_totals(replace(TOTALS["cpu"], cluster=cluster), SPANS, until=0.0)
    curves = series.read_curves(replace(CURVES["cpu"], cluster=cluster), SPANS, points=10, until=0.0)
    return [bool(totals.by_job), bool(curves.by_job)]


def test_jobs_of_other_clusters_are_not_measured() -> None:
    series = OwnSeries(FakeSeries(max_concurrent_queries=3), name_lab)
    assert ([True, True], [False, False], 3) == (
        found(series, "lab"), found(series, "beta"), series.max_concurrent_queries,
    )  # fmt: skip


def test_jobs_wait_until_the_name_of_the_cluster_is_known() -> None:
    with pytest.raises(CommandFailed):
        found(OwnSeries(FakeSeries(), fail), "lab")
