# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from slurmscope.jobs.report import JobReport
from slurmscope.portal.web.slow_results import RenderingCache
from tests.fakes.browser import PortalClient
from tests.fakes.portal_backend import make_backend
from tests.fakes.reports import make_record, make_report

PATIENCE_SECONDS = 30.0


def make_live_report(job_id: int = 4999, **changed: object) -> JobReport:
    return make_report(make_record(job_id, state="RUNNING", end_seconds=None, **changed))


class Renderer:
    """Count its renderings."""

    def __init__(self) -> None:
        self.times = 0

    def render(self) -> str:
        self.times += 1
        return f"text {self.times}"


def test_running_job_is_rendered_once() -> None:
    cache, renderer, report = RenderingCache(), Renderer(), make_live_report()
    assert ["text 1", "text 1"] == [cache.get(report, "page", renderer.render) for _ in range(2)]


def test_each_part_is_cached_separately() -> None:
    cache, renderer, report = RenderingCache(), Renderer(), make_live_report()
    assert ["text 1", "text 2"] == [cache.get(report, name, renderer.render) for name in ("page", "curves")]


def test_new_report_is_rendered_again() -> None:
    cache, renderer, report = RenderingCache(), Renderer(), make_live_report()
    assert ["text 1", "text 2"] == [cache.get(made, "page", renderer.render) for made in (report, replace(report))]


def test_ended_job_is_not_cached() -> None:
    cache, renderer, report = RenderingCache(), Renderer(), make_report()
    assert ["text 1", "text 2"] == [cache.get(report, "page", renderer.render) for _ in range(2)]


def test_page_of_a_running_job_shows_each_viewer_their_own_name() -> None:
    backend = make_backend()
    backend.live["4999"] = make_live_report()
    app = backend.make_app()
    mine, staff = (PortalClient(app, name).get("/jobs/4999").text for name in ("ada", "sue"))
    assert 'href="/users/sue"' in staff
    assert 'href="/users/sue"' not in mine
    assert "/waste" not in mine


def test_cached_job_is_still_absent_for_others() -> None:
    backend = make_backend()
    backend.live["4999"] = make_live_report()
    app = backend.make_app()
    statuses = [PortalClient(app, name).get("/jobs/4999").status_code for name in ("ada", "eve")]
    assert [200, 404] == statuses
