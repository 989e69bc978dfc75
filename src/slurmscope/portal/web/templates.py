# SPDX-License-Identifier: Apache-2.0
"""Render HTML templates: all text is HTML-escaped, and control characters are made visible.

The content of an address never changes, so browsers may cache it for a year. Files are read once at the start:
request paths never reach the disk.

Every time is a ``<time>`` element with the moment itself, so that the script does not have to parse text.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from pathlib import Path
from types import CodeType
from urllib.parse import urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from slurmscope import __version__
from slurmscope.archive.interface import GroupBy, JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.waste import describe_lost, describe_rest
from slurmscope.core.units import (
    format_bytes,
    format_count,
    format_energy,
    format_hours,
    format_ratio,
    format_seconds,
    format_some,
)
from slurmscope.jobs.exit_status import name_exit
from slurmscope.jobs.findings import RULES
from slurmscope.jobs.pending.reasons import explain_reason
from slurmscope.jobs.rating import BUSY_FOR_NOTHING, MANY_JOBS, RatedJob, rate_use, rated_job
from slurmscope.jobs.render import contents
from slurmscope.jobs.render.energy import describe_energy_sum
from slurmscope.jobs.render.formatting import as_datetime, format_day, show
from slurmscope.jobs.render.svg.charts import describe
from slurmscope.jobs.render.svg.elements import LIGHT
from slurmscope.jobs.rule import Severity, Subject
from slurmscope.jobs.summary import JobSummary
from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.cluster_now import rate_wait
from slurmscope.portal.queries import render_cause, render_query
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.identity import ViewAs
from slurmscope.reports.page_paths import (
    account_path,
    array_path,
    job_path,
    name_job,
    node_path,
    shown_cluster,
    user_path,
)
from slurmscope.slurm.states import ACTIVE_STATES, ENDED_STATES, PENDING, RUNNING, SUSPENDED, WAITING_STATES

FOLDER = Path(__file__).parents[1] / "static"

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_CACHE_CONTROL = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    """One file, plain and compressed."""

    address: str
    content_type: str
    body: bytes
    compressed: bytes


class StaticFiles:
    """Find files by name and by address; addresses contain a hash of the content."""

    def __init__(self, folder: Path = FOLDER) -> None:
        files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.suffix in _TYPES}
        self._by_name: Mapping[str, StaticFile] = {name: _read_static(name, path) for name, path in files.items()}
        self._by_address = {file.address: file for file in self._by_name.values()}

    def address(self, name: str) -> str:
        """Return the address of a file; an unknown name is an error in a template."""
        return f"/static/{self._by_name[name].address}"

    async def serve(self, request: Request) -> Response:
        """Send a file; not in a thread, so that the style of error pages does not wait for one."""
        file = self._by_address.get(request.path_params["address"])
        if file is None:
            raise HTTPException(404)
        headers = {"Cache-Control": _CACHE_CONTROL, "Content-Type": file.content_type, "Vary": "Accept-Encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(file.body, headers=headers)
        return Response(file.compressed, headers={**headers, "Content-Encoding": "gzip"})


def _read_static(name: str, path: Path) -> StaticFile:
    body = path.read_bytes()
    return StaticFile(
        address=f"{hashlib.sha256(body).hexdigest()[:12]}/{name}",
        content_type=_TYPES[path.suffix],
        body=body,
        compressed=gzip.compress(body, mtime=0),
    )


ZONE_COOKIE = "slurmscope-time-zone"
"""Cookie in which the script keeps the name of the chosen time zone, for pictures and pages without scripts."""
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,30}(?:/[A-Za-z0-9_+-]{1,30}){0,2}\Z", re.ASCII)

SHOWN_LENGTH = 8000
"""Longer text is cut."""

FULL, SHORT = "full", "short"
_FORMATS = {FULL: "%Y-%m-%d %H:%M:%S %Z", SHORT: "%Y-%m-%d %H:%M"}
_IN_TEXT = re.compile(r"\b([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}) UTC\b", re.ASCII)


def make_time_filters(zone_name: str) -> dict[str, Callable[..., object]]:
    """Return the template filters for times in this zone: whole, without seconds, and times within a text."""
    zone = load_zone(zone_name)
    return {
        "time": lambda seconds: format_moment(seconds, zone),
        "short_time": lambda seconds: format_moment(seconds, zone, SHORT),
        "timed": lambda text: mark_times(text, zone),
    }


def load_zone(name: str) -> tzinfo:
    """Return a time zone; UTC needs no files of the system."""
    return UTC if name == "UTC" else ZoneInfo(name)


def choose_zone(given: str, site: str) -> str:
    """Return the zone that a browser names, or that of the site if this system does not know it."""
    if not _ZONE.match(given):
        return site
    try:
        load_zone(given)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return site
    return given


def format_moment(seconds: float | None, zone: tzinfo, form: str = FULL) -> Markup:
    """Return a Unix time as an element with its text in the zone."""
    moment = as_datetime(seconds)
    return Markup("unknown") if moment is None else _make_element(moment, zone, form)


def mark_times(text: str, zone: tzinfo) -> Markup:
    """Return text in which every time in UTC is such an element; all else is escaped."""
    made, last = Markup(), 0
    shown = show(text, SHOWN_LENGTH)
    for match in _IN_TEXT.finditer(shown):
        try:
            moment = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
        except ValueError:  # such as the 31st of February, in a name
            continue
        made += escape(shown[last : match.start()]) + _make_element(moment, zone, FULL)
        last = match.end()
    return made + escape(shown[last:])


def _make_element(moment: datetime, zone: tzinfo, form: str) -> Markup:
    try:
        text = moment.astimezone(zone).strftime(_FORMATS[form])
    except OverflowError:  # the last hours of the year 9999
        text = moment.strftime(_FORMATS[form])
    iso = moment.isoformat(timespec="seconds")
    return Markup(f'<time datetime="{iso}" data-form="{form}">{escape(text)}</time>')  # noqa: S704 - made of numbers


STATES = (PENDING, *ACTIVE_STATES, *sorted(ENDED_STATES))
"""States to choose from in a job list."""
RULE_TITLES = {rule.id: rule.title for rule in sorted(RULES, key=lambda rule: rule.title)}


FindClusters = Callable[[], Sequence[str]]
"""Return the clusters that have jobs; links name the cluster if there are several."""


class _CompiledTemplates(BytecodeCache):
    """Keep compiled templates in memory: a portal with new settings does not compile them again."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._compiled.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
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
        currency: str = "",
    ) -> None:
        """Compile the templates; ``view_as`` adds the form of a demo to every page, ``currency`` is that of energy."""
        self._settings = settings
        environment = _make_environment(settings, static, clusters)
        environment.globals["view_as"] = view_as
        environment.globals["describe_energy"] = lambda total: describe_energy_sum(total, currency)
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
        "line_colors": len(LIGHT.lines),
        "query": render_query,
        "cause_query": render_cause,
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
    # Of a page's 2,000 values, almost all are short and printable.
    if not isinstance(value, str) or (len(value) <= SHOWN_LENGTH and value.isprintable()) or isinstance(value, Markup):
        return value
    return show(value, SHOWN_LENGTH)


def name_rule(rule: str) -> str:
    """Return the title of a rule; the archive may contain rules that no longer exist."""
    return RULE_TITLES.get(rule, rule.replace("_", " "))


def _label_group(by: str) -> str:
    """Return the column title of totals by this group: findings are grouped by their rule."""
    return "Finding" if by == GroupBy.RULE else by.capitalize()


def _percent_number(ratio: float | None) -> float:
    """Return the length of a bar, from 0 to 100."""
    return round(100 * min(1.0, max(0.0, ratio or 0.0)), 1)


def _rate(ratio: float | None, subject: str | None, job: JobRow | JobSummary | None = None) -> str:
    """Rate a share, for its colour; the number is always shown next to it. Without a job, it is that of many jobs."""
    if isinstance(job, JobRow):
        rated = RatedJob(
            job.state,
            job.run_seconds,
            job.gpus,
            job.cpus,
            job.memory_bytes,
            job.gpu_ratio,
            job.least_gpu_ratio,
            not BUSY_FOR_NOTHING.isdisjoint(job.rules),
        )
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


def _spark_path(spark: str) -> str:
    """Return the path of a sparkline, 100 wide and 18 high; it is interrupted where nothing was measured."""
    parts, command = list[str](), "M"
    for across, digit in zip(_spark_places(len(spark)), spark, strict=True):
        height = _SPARK_HEIGHTS.get(digit)
        if height is None:
            command = "M"
        else:
            parts.append(f"{command}{across} {height}")
            command = "L"
    return "".join(parts)


_SPARK_HEIGHTS = {str(digit): f"{17 - digit * 16 / 9:.1f}" for digit in range(10)}


@lru_cache(maxsize=64)
def _spark_places(count: int) -> tuple[str, ...]:
    width = 100 / max(1, count - 1)
    return tuple(f"{place * width:.1f}" for place in range(count))


_FILTERS: dict[str, Callable[..., object]] = {
    "bytes": format_bytes,
    "energy": format_energy,
    "count": format_count,
    "day": format_day,
    "ratio": format_ratio,
    "seconds": format_seconds,
    "some": format_some,
    "hours": format_hours,
    "rate": _rate,
    "how_failed": lambda row: name_exit(row.exit_code, row.exit_signal),
    "percent_number": _percent_number,
    "rule_title": name_rule,
    "group_label": _label_group,
    "state_class": _state_class,
    "wait_level": rate_wait,
    "reason_meaning": lambda reason: explain_reason(reason).meaning,
    "spark_path": _spark_path,
    "lost": lambda total: tuple(describe_lost(total)),
    "waste_rest": lambda total: tuple(describe_rest(total)),
    "spaced": lambda text: text.replace("_", " "),
}
