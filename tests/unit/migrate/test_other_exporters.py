# SPDX-License-Identifier: Apache-2.0
"""Of pages with the names of exporters that slurmscope does not imitate, no metric is lost without an explanation."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmscope.cli.roles import all_collectors, feature_metrics
from slurmscope.exporter.collector import Role
from slurmscope.migrate.check import check_pages, declare, known_metrics
from slurmscope.migrate.pages import parse_page

FOLDER = Path(__file__).parents[2] / "fixtures" / "originals"
DECLARED = declare((c for role in Role for c in all_collectors(role)), feature_metrics(Role.CLUSTER))


@pytest.mark.parametrize("tool", ["sckyzo-exporter", "ceems", "cgroup-exporter", "jobstats"])
def test_every_metric_is_explained(tool: str) -> None:
    page = parse_page((FOLDER / tool / "page.prom").read_bytes())
    comparison = check_pages(page, {}, DECLARED)
    lost = {loss.difference.metric: loss.documented or loss.remedy for loss in comparison.losses}

    assert len(page) == comparison.compared > 5
    assert set() == page.keys() - DECLARED.keys() - known_metrics().keys()
    assert set() == {name for name in page if not lost.get(name)}
