# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from dataclasses import replace

from slurmscope.model.report import JobReport
from slurmscope.portal.app import make_app
from slurmscope.portal.web.rendering_cache import KeptRenderings
from tests.fakes.browser import Visitor
from tests.fakes.portal_desk import make_desk
from tests.fakes.reports import make_record, make_report

PATIENCE_SECONDS = 30.0


def make_live_report(job_id: int = 4999, **changed: object) -> JobReport:
    return make_report(make_record(job_id, state="RUNNING", end_seconds=None, **changed))


class Painter:
    """Count how often it has to paint."""

    def __init__(self) -> None:
        self.times = 0

    def paint(self) -> str:
        self.times += 1
        return f"picture {self.times}"


def test_running_job_is_rendered_once() -> None:
    kept, painter, report = KeptRenderings(), Painter(), make_live_report()
    assert ["picture 1", "picture 1"] == [kept.get(report, "page", painter.paint) for _ in range(2)]


def test_every_part_is_kept_for_itself() -> None:
    kept, painter, report = KeptRenderings(), Painter(), make_live_report()
    assert ["picture 1", "picture 2"] == [kept.get(report, name, painter.paint) for name in ("page", "curves")]


def test_report_that_was_made_anew_is_rendered_anew() -> None:
    kept, painter, report = KeptRenderings(), Painter(), make_live_report()
    assert ["picture 1", "picture 2"] == [kept.get(made, "page", painter.paint) for made in (report, replace(report))]


def test_ended_job_is_not_kept() -> None:
    kept, painter, report = KeptRenderings(), Painter(), make_report()
    assert ["picture 1", "picture 2"] == [kept.get(report, "page", painter.paint) for _ in range(2)]


def test_what_was_asked_for_longest_ago_goes_first() -> None:
    kept, painter = KeptRenderings(size=2), Painter()
    one, two, three = (make_live_report(number) for number in (1, 2, 3))
    for report in (one, two, one, three):
        kept.get(report, "page", painter.paint)
    assert 3 == painter.times
    kept.get(one, "page", painter.paint)
    assert 3 == painter.times
    kept.get(two, "page", painter.paint)
    assert 4 == painter.times


def test_those_who_come_meanwhile_wait_for_the_first_rendering() -> None:
    kept, painter, report = KeptRenderings(), Painter(), make_live_report()
    has_begun, may_end = threading.Event(), threading.Event()
    texts: list[str] = []

    def paint_slowly() -> str:
        has_begun.set()
        assert may_end.wait(PATIENCE_SECONDS)
        return painter.paint()

    threads = [
        threading.Thread(target=lambda: texts.append(kept.get(report, "page", paint_slowly)), daemon=True)
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    assert has_begun.wait(PATIENCE_SECONDS)
    may_end.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert ["picture 1"] * 5 == texts


def test_page_of_a_running_job_tells_each_viewer_their_own_name() -> None:
    desk = make_desk()
    desk.live["4999"] = make_live_report()
    app = make_app(desk)
    mine, staff = (Visitor(app, name).get("/jobs/4999").text for name in ("ada", "sue"))
    assert 'href="/users/sue"' in staff
    assert 'href="/users/sue"' not in mine
    assert "/waste" not in mine


def test_job_that_is_kept_is_still_absent_for_others() -> None:
    desk = make_desk()
    desk.live["4999"] = make_live_report()
    app = make_app(desk)
    statuses = [Visitor(app, name).get("/jobs/4999").status_code for name in ("ada", "eve")]
    assert [200, 404] == statuses
