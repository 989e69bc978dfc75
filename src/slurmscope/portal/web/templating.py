# SPDX-License-Identifier: Apache-2.0
"""Make HTML of templates: every text is escaped, and what does not print is spelled out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from slurmscope import __version__
from slurmscope.figures import format_bytes, format_count, format_ratio, format_seconds, format_some
from slurmscope.model.archive import JobFilter
from slurmscope.model.job_states import ENDED_STATES, RUNNING
from slurmscope.model.viewer import Viewer
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.views.queries import render_query
from slurmscope.portal.web.static_files import StaticFiles
from slurmscope.reports import contents
from slurmscope.reports.charts_svg import describe
from slurmscope.reports.words import as_datetime, format_day, format_time, show
from slurmscope.rules import RULES

STATES = (RUNNING, *sorted(ENDED_STATES))
"""States to choose from in the filter of a list; jobs that wait are not archived, and found by their number."""
RULE_TITLES = {rule.id: rule.title for rule in sorted(RULES, key=lambda rule: rule.title)}


class PageMaker:
    """Hold the compiled templates of one portal."""

    def __init__(self, settings: PortalSettings, static: StaticFiles) -> None:
        self._settings = settings
        environment = _make_environment(settings.base_path, static)
        # Compiled now: many people may come at once, and the first one should not wait longer than the others.
        self._templates = {name: environment.get_template(name) for name in environment.list_templates()}

    def render(self, template: str, viewer: Viewer | None, context: Mapping[str, object]) -> str:
        """Return a page, or a part of one; without a viewer it says nothing that depends on who looks."""
        return self._templates[template].render(viewer=viewer, settings=self._settings, **context)


def _make_environment(base: str, static: StaticFiles) -> Environment:
    environment = Environment(
        loader=PackageLoader("slurmscope.portal", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_printable,
    )
    environment.globals |= {
        "base": base,
        "version": __version__,
        "contents": contents,
        "query": render_query,
        "describe": describe,
        "states": STATES,
        "rule_titles": RULE_TITLES,
        "static": lambda name: base + static.address(name),
        **_make_links(base),
    }
    environment.filters |= {
        "bytes": format_bytes,
        "count": format_count,
        "day": format_day,
        "ratio": format_ratio,
        "seconds": format_seconds,
        "some": format_some,
        "time": format_time,
        "short_time": lambda seconds: format_time(seconds)[:16],
        "iso": _format_iso,
        "hours": _format_hours,
        "level": _level,
        "memory_level": _memory_level,
        "percent_number": _percent_number,
        "rule_title": _name_rule,
        "spaced": lambda text: text.replace("_", " "),
    }
    return environment


def _make_links(base: str) -> dict[str, Callable[[str], str]]:
    # A job's number keeps its plus sign; in all other names a slash is a letter like any other.
    return {
        "job_url": lambda shown_id: f"{base}/jobs/{quote(shown_id, safe='+')}",
        "array_url": lambda array_id: f"{base}/arrays/{array_id}",
        "user_url": lambda name: f"{base}/users/{quote(name, safe='')}",
        "account_url": lambda name: f"{base}/accounts/{quote(name, safe='')}",
        "partition_link": lambda name: f"{base}/jobs{render_query(JobFilter(partition=name))}",
    }


def _printable(value: object) -> object:
    """Spell out control and direction characters of every text that a template shows; markup is our own."""
    return show(value, 8000) if isinstance(value, str) and not isinstance(value, Markup) else value


def _name_rule(rule: str) -> str:
    """Return the title that its findings have; the archive may know rules that are gone."""
    return RULE_TITLES.get(rule, rule.replace("_", " "))


def _format_hours(seconds: float | None) -> str:
    return format_count(None if seconds is None else round(seconds / 3600, 2))


def _format_iso(seconds: float | None) -> str:
    moment = as_datetime(seconds)
    return moment.isoformat(timespec="seconds") if moment else ""


def _percent_number(ratio: float | None) -> float:
    """Return how long a bar of a hundred units is; no bar goes beyond its end."""
    return round(100 * min(1.0, max(0.0, ratio or 0.0)), 1)


def _level(ratio: float | None) -> str:
    """Name how well something was used, for its colour; the number always stands beside it."""
    if ratio is None:
        return "unknown"
    return "low" if ratio < 0.3 else "middle" if ratio < 0.7 else "high"


def _memory_level(ratio: float | None) -> str:
    """Name how well memory was asked for: half of it used is well, nearly all of it is dangerous."""
    if ratio is None:
        return "unknown"
    return "low" if ratio < 0.1 or ratio >= 0.95 else "middle" if ratio < 0.5 else "high"
