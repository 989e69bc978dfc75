# SPDX-License-Identifier: Apache-2.0
"""Read the filter of a list from the query of an API request: the parameters of the job list."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query

from slurmscope.model.archive import JobFilter
from slurmscope.model.finding import Severity
from slurmscope.model.metric_ranges import JobMetric
from slurmscope.portal.pages.context import Context
from slurmscope.portal.views.queries import MAX_IDS, parse_filter
from slurmscope.portal.views.ranges import describe_bound

Text = Annotated[str, Query(max_length=200)]
Day = Annotated[str, Query(pattern=r"^([0-9]{4}-[0-9]{2}-[0-9]{2})?$", description="Day of submission, in UTC.")]

_RANGES = {
    f"{metric.key}_{bound}": describe_bound(metric, is_low=bound == "min")
    for metric in JobMetric
    for bound in ("min", "max")
}

RANGE_PARAMETERS: dict[str, Any] = {
    "parameters": [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}, "description": description}
        for name, description in _RANGES.items()
    ]
}
"""The ranges of the filter for the OpenAPI document; they are too many for parameters of a function."""


def read_filter(  # noqa: PLR0913 - the filters of the list
    context: Context,
    *,
    cluster: Text = "",
    user: Text = "",
    account: Text = "",
    partition: Text = "",
    state: Text = "",
    name: Annotated[str, Query(max_length=200, description="Beginning of the job name.")] = "",
    rule: Text = "",
    node: Annotated[str, Query(max_length=200, description="Name of a node on which the job ran.")] = "",
    ids: Annotated[str, Query(max_length=MAX_IDS * 22, description="Job IDs, separated by commas.")] = "",
    worst: Severity | None = None,
    since: Day = "",
    until: Day = "",
) -> JobFilter:
    """Return the filter of a request."""
    given = {"user": user, "account": account, "partition": partition, "state": state, "name": name, "rule": rule}
    ranges = {key: text for key, text in context.query.items() if key in _RANGES}
    worst_text = worst.value if worst else ""
    return parse_filter(
        {
            **given,
            **ranges,
            "cluster": cluster,
            "node": node,
            "worst": worst_text,
            "since": since,
            "until": until,
            "ids": ids,
        }
    )


WantedJobs = Annotated[JobFilter, Depends(read_filter)]
