# SPDX-License-Identifier: Apache-2.0
"""Render HTML templates: all text is HTML-escaped, and control characters are made visible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from urllib.parse import urlencode

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from slurmscope import __version__
from slurmscope.analysis.pending.pending_reasons import explain_reason
from slurmscope.figures import format_bytes, format_count, format_ratio, format_seconds, format_some
from slurmscope.model.archive import GroupBy, JobFilter, JobRow
from slurmscope.model.finding import Severity, Subject
from slurmscope.model.job_states import ENDED_STATES, PENDING, RUNNING, SUSPENDED, WAITING_STATES
from slurmscope.model.summary import JobSummary
from slurmscope.model.viewer import Viewer
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.view_as import ViewAs
from slurmscope.portal.views.page_paths import (
    account_path,
    array_path,
    job_path,
    name_job,
    node_path,
    shown_cluster,
    user_path,
)
from slurmscope.portal.views.queries import render_query
from slurmscope.portal.views.waiting_summary import rate_wait
from slurmscope.portal.web.static_files import StaticFiles
from slurmscope.portal.web.times import make_time_filters
from slurmscope.reports import contents
from slurmscope.reports.failure import TITLE as FAILURE
from slurmscope.reports.failure import failure_rows
from slurmscope.reports.formatting import format_day, show
from slurmscope.reports.svg.charts import describe
from slurmscope.rules import RULES
from slurmscope.rules.exit_status import name_exit
from slurmscope.rules.rating import MANY_JOBS, RatedJob, rate_use, rated_job

STATES = (PENDING, RUNNING, *sorted(ENDED_STATES))
"""States to choose from in a job list."""
RULE_TITLES = {rule.id: rule.title for rule in sorted(RULES, key=lambda rule: rule.title)}


FindClusters = Callable[[], Sequence[str]]
"""Return the clusters that have jobs; links name the cluster if there are several."""


class _CompiledTemplates(BytecodeCache):
    """Keep compiled templates in memory: a portal with new settings does not compile them again."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Return the code of a template if its source is unchanged."""
        bucket.code = self._compiled.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the code of a template."""
        self._compiled[bucket.key, bucket.checksum] = bucket.code


COMPILED_TEMPLATES = _CompiledTemplates()


class PageRenderer:
    """Render pages from templates that are compiled once."""

    def __init__(
        self,
        settings: PortalSettings,
        static: StaticFiles,
        *,
        clusters: FindClusters = tuple,
        view_as: ViewAs | None = None,
    ) -> None:
        """Compile the templates; ``view_as`` adds the form of a demo to every page."""
        self._settings = settings
        environment = _make_environment(settings, static, clusters)
        environment.globals["view_as"] = view_as
        # Compiled at the start, so that the first request is not slower than others.
        self._templates = {name: environment.get_template(name) for name in environment.list_templates()}

    def render(self, template: str, viewer: Viewer | None, values: Mapping[str, object]) -> str:
        """Render a page, or a part of one; without a viewer, the result is the same for all viewers."""
        return self._templates[template].render(viewer=viewer, settings=self._settings, **values)


def _make_environment(settings: PortalSettings, static: StaticFiles, clusters: FindClusters) -> Environment:
    base = settings.base_path
    environment = Environment(
        loader=PackageLoader("slurmscope.portal", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        bytecode_cache=COMPILED_TEMPLATES,
        finalize=_printable,
    )
    environment.globals |= {
        "base": base,
        "version": __version__,
        "contents": contents,
        "failure_rows": failure_rows,
        "failure_title": FAILURE,
        "query": render_query,
        "describe": describe,
        "states": STATES,
        "severities": tuple(Severity),
        "rule_titles": RULE_TITLES,
        "static": lambda name: base + static.address(name),
        "clusters": clusters,
        **make_links(base, clusters),
    }
    environment.filters |= _FILTERS | make_time_filters(settings.time_zone)
    return environment


def make_links(base: str, clusters: FindClusters = tuple) -> dict[str, Callable[..., str]]:
    """Return functions that link to jobs, arrays and nodes, with their cluster, to users, accounts and partitions."""

    def named(cluster: str) -> str:
        return shown_cluster(cluster, clusters()) if cluster else ""

    # In names a slash is an ordinary character.
    return {
        "job_name": lambda shown_id, cluster="": name_job(shown_id, named(cluster)),
        "job_url": lambda shown_id, cluster="": f"{base}{job_path(shown_id, named(cluster))}",
        "array_url": lambda array_id, cluster="": f"{base}{array_path(array_id, named(cluster))}",
        "user_url": lambda name, cluster="": base + user_path(name, cluster),
        "account_url": lambda name, cluster="": base + account_path(name, cluster),
        "node_url": lambda name, cluster="": f"{base}{node_path(name, named(cluster))}",
        "partition_url": lambda name, cluster="": (
            f"{base}/jobs{render_query(JobFilter(cluster=cluster, partition=name))}"
        ),
        "cluster_url": lambda cluster="", **more: _cluster_url(base, named(cluster), more),
    }


def _cluster_url(base: str, cluster: str, more: Mapping[str, str]) -> str:
    query = urlencode({**more, **({"cluster": cluster} if cluster else {})})
    return f"{base}/cluster?{query}" if query else f"{base}/cluster"


def _printable(value: object) -> object:
    """Make control and direction characters of all text visible; markup comes from our own templates."""
    return show(value, 8000) if isinstance(value, str) and not isinstance(value, Markup) else value


def _name_rule(rule: str) -> str:
    """Return the title of a rule; the archive may contain rules that no longer exist."""
    return RULE_TITLES.get(rule, rule.replace("_", " "))


def _label_group(by: str) -> str:
    """Return the column title of totals by this group: findings are grouped by their rule."""
    return "Finding" if by == GroupBy.RULE else by.capitalize()


def _format_hours(seconds: float | None) -> str:
    return format_count(None if seconds is None else round(seconds / 3600, 2))


def _percent_number(ratio: float | None) -> float:
    """Return the length of a bar, from 0 to 100."""
    return round(100 * min(1.0, max(0.0, ratio or 0.0)), 1)


def _rate(ratio: float | None, subject: str | None, job: JobRow | JobSummary | None = None) -> str:
    """Rate a share, for its colour; the number is always shown next to it. Without a job, it is that of many jobs."""
    if isinstance(job, JobRow):
        rated = RatedJob(job.state, job.run_seconds, job.gpus, job.cpus, job.memory_bytes)
    else:
        rated = MANY_JOBS if job is None else rated_job(job)
    return rate_use(Subject(subject) if subject else None, ratio, rated).value


def _state_class(state: str) -> str:
    """Return the CSS class of a job state, for its colour."""
    if state == RUNNING:
        return "running"
    if state == SUSPENDED or state in WAITING_STATES:
        return "pending"
    return {"COMPLETED": "completed", "CANCELLED": "cancelled"}.get(state, "failed")


_FILTERS: dict[str, Callable[..., object]] = {
    "bytes": format_bytes,
    "count": format_count,
    "day": format_day,
    "ratio": format_ratio,
    "seconds": format_seconds,
    "some": format_some,
    "hours": _format_hours,
    "rate": _rate,
    "how_failed": lambda row: name_exit(row.exit_code, row.exit_signal),
    "percent_number": _percent_number,
    "rule_title": _name_rule,
    "group_label": _label_group,
    "state_class": _state_class,
    "wait_level": rate_wait,
    "reason_meaning": lambda reason: explain_reason(reason).meaning,
    "spaced": lambda text: text.replace("_", " "),
}
