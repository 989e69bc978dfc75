# SPDX-License-Identifier: Apache-2.0
"""Show how a number is distributed over the jobs of a list."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from slurmscope.model.archive import JobFilter
from slurmscope.model.metric_ranges import JobHistogram, JobMetric
from slurmscope.portal.pages.context import Context, RequestContext
from slurmscope.portal.pages.jobs import bound_ranges
from slurmscope.portal.views.metric_histogram import make_histogram_view
from slurmscope.portal.views.queries import parse_filter, parse_format
from slurmscope.portal.views.query_errors import BadQuery
from slurmscope.portal.views.ranges import write_number
from slurmscope.portal.web.shared_results import SharedResult
from slurmscope.portal.web.tables import Table, make_table_response

router = APIRouter(include_in_schema=False)


@router.get("/histogram")
def show_histogram(context: Context) -> Response:
    """Show the newest jobs of a filter in classes of a metric, each with a link to its jobs."""
    metric, table_format = _parse_metric(context.query.get("metric", "")), parse_format(context.query)
    wanted = bound_ranges(context, parse_filter(context.query))
    counted = count_jobs(context, wanted, metric)
    histogram = counted.value
    if table_format != "html":
        rows = [
            (_write_bound(metric, each.low), _write_bound(metric, each.high), count)
            for each, count in zip(histogram.ranges, histogram.counts, strict=True)
        ]
        table = Table(columns=(f"{metric.key}_min", f"{metric.key}_max", "jobs"), rows=rows, is_cut=histogram.is_cut)
        return make_table_response(table, table_format, f"histogram-{metric.key}")
    view = make_histogram_view(histogram, wanted)
    return context.page(
        "histogram.html",
        view=view,
        wanted=wanted,
        metrics=tuple(JobMetric),
        age_seconds=counted.age_seconds,
    )


def count_jobs(context: RequestContext, wanted: JobFilter, metric: JobMetric) -> SharedResult[JobHistogram]:
    """Count the jobs of a list in classes, once for concurrent requests; the access of staff is audited."""
    context.audit(f"jobs of {f'user {wanted.user}' if wanted.user else 'all users'}", owner=wanted.user)
    return context.share(
        ("histogram", wanted, metric), lambda: context.archive.histogram(context.viewer, wanted, metric)
    )


def _write_bound(metric: JobMetric, bound: float | None) -> str | None:
    return None if bound is None else write_number(metric, bound)


def _parse_metric(text: str) -> JobMetric:
    by_key = {metric.key: metric for metric in JobMetric}
    if text and text not in by_key:
        raise BadQuery(f"The metric must be one of {', '.join(by_key)}.")
    return by_key[text] if text else JobMetric.CPU
