# SPDX-License-Identifier: Apache-2.0
"""Text from users runs no scripts in a real browser, on any page, with a real archive (W3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from slurmscope.jobs.processes import ProcessSummary, TraceSummary
from slurmscope.jobs.report import JobReport
from slurmscope.portal.cluster_now import NodeProblem
from tests.browser.watching import watching
from tests.fakes.archive_backend import open_archive_backend
from tests.fakes.asgi import running
from tests.fakes.portal_backend import CLUSTER, USER_HEADER, make_jobs
from tests.fakes.reports import HOSTILE_NAME, make_finding, make_record, make_report

PRINTABLE = "\"'><img id=evil src=x onerror=alert(2)><svg onload=alert(3)>{{7*7}}"
"""A name that can be searched for, so that its own page exists."""
HOSTILE = f"{HOSTILE_NAME}{PRINTABLE}</script><script id=evil>alert(4)</script>"

PAGES = (
    "/", "/jobs", "/jobs/66", "/jobs/66/live", "/jobs/60_1", "/arrays/60", "/users/{}", "/accounts/{}", "/cluster",
    "/waste", "/filesystems", "/compare?job=66&job=60_1", "/help", "/jobs?user={}&name={}&rule={}", "/search?q={}",
    "/jobs/{}",
)  # fmt: skip


def make_hostile_jobs() -> list[JobReport]:
    """Make jobs in which all text from users and nodes is hostile."""
    record = make_record(
        61, name=HOSTILE, user=PRINTABLE, account=PRINTABLE, partition=HOSTILE, qos=HOSTILE, work_dir=HOSTILE,
        submit_line=HOSTILE, reason=HOSTILE, nodes=(HOSTILE,), array_job_id=60, array_task_id=1, state="RUNNING",
        end_seconds=None,
    )  # fmt: skip
    report = make_report(record)
    chart = replace(
        report.charts[0], title=HOSTILE, help=HOSTILE, reference_label=HOSTILE,
        lines=(replace(report.charts[0].lines[0], label=HOSTILE),),
    )  # fmt: skip
    finding = replace(make_finding(), title=HOSTILE, explanation=HOSTILE, advice=HOSTILE, suggestion=HOSTILE)
    nodes = (replace(report.summary.nodes[0], node=HOSTILE),)
    process = ProcessSummary(node=HOSTILE, step=HOSTILE, rank=HOSTILE, pid=HOSTILE, command=HOSTILE)
    traces = TraceSummary(processes=(process, replace(process, step="0")))
    hostile = replace(
        report,
        summary=replace(report.summary, nodes=nodes, program_threads={HOSTILE: 3.0}, traces=traces),
        charts=(chart,), findings=(finding, replace(finding, rule=PRINTABLE)), missing=(HOSTILE,),
    )  # fmt: skip
    alone = replace(record, job_id=66, array_job_id=None, array_task_id=None)
    return [*make_jobs(), hostile, replace(hostile, summary=replace(hostile.summary, record=alone))]


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    with open_archive_backend(folder, make_hostile_jobs()) as backend:
        backend.fake.failures = (HOSTILE,)
        backend.fake.cluster = replace(CLUSTER, troubles=(NodeProblem(node=HOSTILE, state=HOSTILE, reason=HOSTILE),))
        with running(backend.make_app(), backend.fake.settings) as listener:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("path", PAGES)
def test_names_are_texts_in_a_browser(browser: Browser, portal: str, path: str) -> None:
    with watching(browser, portal, extra_http_headers={USER_HEADER: "root"}) as window:
        page = window.open(path.replace("{}", quote(PRINTABLE, safe="")))
        # Charts draw names into their legends.
        page.wait_for_load_state("networkidle")
        assert 0 == page.locator("#evil, img[src=x], [onerror], [onload], script:not([src])").count()
        sources = page.evaluate("Array.from(document.scripts, (script) => new URL(script.src).pathname)")
        assert all(re.match("/static/", source) for source in sources)
        links = page.evaluate("Array.from(document.links, (link) => link.protocol)")
        # Only the waste page offers to write to users.
        assert ({"http:", "mailto:"} if "/waste" == path else {"http:"}) >= set(links)
        # Invalid jobs are not found, which the browser logs to the console.
        window.errors[:] = [text for text in window.errors if "status of 404" not in text]


def test_hostile_name_is_shown_as_it_is_written(browser: Browser, portal: str) -> None:
    with watching(browser, portal, extra_http_headers={USER_HEADER: "root"}) as window:
        page = window.open("/jobs/66")
        assert "<script>alert(1)</script>" in page.locator("h1").inner_text()
        assert "<img id=evil" in page.locator(".chart-lines").first.inner_text()
        window.shoot("hostile-job")
