# SPDX-License-Identifier: Apache-2.0
"""Requests are counted by route template, and timed until their response starts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from slurmscope.metrics.family import Histogram
from slurmscope.portal.metrics import BUCKETS, DURATION, REQUESTS, CountedApp, RequestCounts
from tests.fakes.asgi import call
from tests.fakes.portal_backend import USER_HEADER, make_backend
from tests.fakes.sign_in import make_scope


def counted(counts: RequestCounts) -> dict[tuple[str, str], float]:
    (samples,) = (family.samples for family in counts.families() if family.metric is REQUESTS)
    return dict(cast("Mapping[tuple[str, str], float]", samples))


def durations(counts: RequestCounts) -> Mapping[tuple[str], Histogram]:
    (samples,) = (family.samples for family in counts.families() if family.metric is DURATION)
    return cast("Mapping[tuple[str], Histogram]", samples)


def request(app: CountedApp, *urls: str, who: str = "ada") -> None:
    async def run() -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://portal.test") as client:
            for url in urls:
                await client.get(url, headers={USER_HEADER: who} if who else {})

    asyncio.run(run())


def test_many_addresses_are_one_route() -> None:
    counts = RequestCounts()

    request(
        CountedApp(make_backend().make_app(), counts),
        "/jobs/4711",
        "/jobs/4720",
        "/jobs/999",
        "/jobs/4711/charts/cpu.svg",
    )

    expected = {
        ("/jobs/{shown_id}", "2xx"): 2,
        ("/jobs/{shown_id}", "4xx"): 1,
        ("/jobs/{shown_id}/charts/{name}.svg", "2xx"): 1,
    }
    assert expected == counted(counts)


def test_unknown_addresses_create_no_series() -> None:
    counts = RequestCounts()

    request(CountedApp(make_backend().make_app(), counts), *(f"/invented/{number}" for number in range(5)))

    assert {("none", "4xx"): 5} == counted(counts)


def test_files_and_the_api_have_their_routes() -> None:
    counts = RequestCounts()

    request(CountedApp(make_backend().make_app(), counts), "/static/nothing.css", "/api/openapi.json", "/api/v2/jobs")

    assert {"/static/{address:path}", "/api/openapi.json", "/api/v2/jobs"} == {route for route, _ in counted(counts)}


def test_rejected_requests_are_counted() -> None:
    counts = RequestCounts()

    request(CountedApp(make_backend().make_app(), counts), "/jobs", who="")

    assert {("/jobs", "4xx"): 1} == counted(counts)


def test_failing_page_is_counted_as_5xx() -> None:
    app, counts = FastAPI(), RequestCounts()
    app.add_api_route("/broken", lambda: 1 / 0)

    request(CountedApp(app, counts), "/broken")

    assert {("/broken", "5xx"): 1} == counted(counts)


def test_request_without_a_response_is_counted_without_a_status() -> None:
    app, counts = FastAPI(), RequestCounts()

    async def wait(_: Request) -> Response:
        await asyncio.Event().wait()
        return PlainTextResponse("")

    app.add_route("/slow", wait)

    async def run() -> None:
        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(_: Any) -> None:
            raise AssertionError("a response was started")

        async with asyncio.timeout(0.05):
            await CountedApp(app, counts)(make_scope(path="/slow"), receive, send)

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert {("/slow", "none"): 1} == counted(counts)


def test_duration_ends_when_the_response_starts() -> None:
    app, counts, clock = FastAPI(), RequestCounts(), iter([10.0, 10.1, 99.0])

    app.add_route("/page", lambda _: PlainTextResponse("page"))
    call(CountedApp(app, counts, clock=lambda: next(clock)), make_scope(path="/page"))

    duration = durations(counts)[("/page",)]
    assert 0.1 == pytest.approx(duration.total)
    # 10.1 - 10.0 is slightly below 0.1, so it belongs to the bucket that ends there.
    assert [0.1] == [bound for bound, count in zip(BUCKETS, duration.counts, strict=False) if count]


@pytest.mark.parametrize(("seconds", "index"), [(0.0, 0), (0.005, 0), (0.0051, 1), (30.0, 12), (31.0, 13)])
def test_bounds_belong_to_the_bucket_they_end(seconds: float, index: int) -> None:
    counts = RequestCounts()

    counts.record("/page", 200, seconds)

    expected = [int(position == index) for position in range(14)]
    assert expected == list(durations(counts)[("/page",)].counts)
