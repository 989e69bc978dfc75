# SPDX-License-Identifier: Apache-2.0
"""List the metrics of node agents that job reports and the rules in ``deploy/rules`` query.

The profile ``reports`` of the agent has these only, so that a large site stores no series that slurmscope does not
query.
"""

from __future__ import annotations

from collections.abc import Iterable

from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.jobs.series import SeriesQuery

RULE_METRICS = frozenset(
    {
        "slurmscope_collector_success",
        "slurmscope_config_last_reload_successful",
        "slurmscope_reading_age_seconds",
        "slurmscope_remote_write_dropped_samples_total",
        "slurmscope_series_dropped_total",
    }
)
"""Metrics of an agent that only the rules in ``deploy/rules`` query."""


def common_conditions(queries: Iterable[SeriesQuery]) -> dict[str, tuple[str, frozenset[str]]]:
    """Return the label and its values to which all queries of a metric are restricted, where they are."""
    by_metric: dict[str, list[tuple[tuple[str, str], ...]]] = {}
    for query in queries:
        by_metric.setdefault(query.metric, []).append(query.where)
    return {
        metric: (labels.pop(), frozenset(value for where in conditions for _, value in where))
        for metric, conditions in by_metric.items()
        if all(len(where) == 1 for where in conditions)
        and len(labels := {label for where in conditions for label, _ in where}) == 1
    }


REPORT_QUERIES = tuple(query for query in (*CURVES.values(), *TOTALS.values()) if not query.is_foreign)
REPORTS_METRICS = RULE_METRICS | {query.metric for query in REPORT_QUERIES}
"""Metrics of the profile ``reports``."""
REPORTS_CONDITIONS = common_conditions(REPORT_QUERIES)
"""Those of them that are exported with some values of a label only."""
