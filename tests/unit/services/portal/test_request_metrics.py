# SPDX-License-Identifier: Apache-2.0
"""Requests are counted by the template of their route, and the wait ends where the answer begins."""

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
from slurmscope.portal.app import make_app
from slurmscope.services.portal.request_metrics import BUCKETS, DURATION, REQUESTS, CountedApp, RequestCounts
from tests.fakes.asgi import call
from tests.fakes.portal_desk import WHO, make_desk
from tests.fakes.sign_in import make_scope


def counted(ledger: RequestCounts) -> dict[tuple[str, str], float]:
    (samples,) = (family.samples for family in ledger.families() if family.metric is REQUESTS)
    return dict(cast("Mapping[tuple[str, str], float]", samples))


def waits(ledger: RequestCounts) -> Mapping[tuple[str], Histogram]:
    (samples,) = (family.samples for family in ledger.families() if family.metric is DURATION)
    return cast("Mapping[tuple[str], Histogram]", samples)


def ask(app: CountedApp, *urls: str, who: str = "ada") -> None:
    async def run() -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://portal.test") as client:
            for url in urls:
                await client.get(url, headers={WHO: who} if who else {})

    asyncio.run(run())


def test_many_addresses_are_one_route() -> None:
    ledger = RequestCounts()

    ask(CountedApp(make_app(make_desk()), ledger), "/jobs/4711", "/jobs/4720", "/jobs/999", "/jobs/4711/charts/cpu.svg")

    expected = {
        ("/jobs/{shown_id}", "2xx"): 2,
        ("/jobs/{shown_id}", "4xx"): 1,
        ("/jobs/{shown_id}/charts/{name}.svg", "2xx"): 1,
    }
    assert expected == counted(ledger)


def test_invented_addresses_invent_no_series() -> None:
    ledger = RequestCounts()

    ask(CountedApp(make_app(make_desk()), ledger), *(f"/invented/{number}" for number in range(5)))

    assert {("none", "4xx"): 5} == counted(ledger)


def test_files_and_the_api_have_their_routes() -> None:
    ledger = RequestCounts()

    ask(CountedApp(make_app(make_desk()), ledger), "/static/nothing.css", "/api/openapi.json", "/api/v2/jobs")

    assert {"/static/{address:path}", "/api/openapi.json", "/api/v2/jobs"} == {route for route, _ in counted(ledger)}


def test_who_is_turned_away_is_counted_too() -> None:
    ledger = RequestCounts()

    ask(CountedApp(make_app(make_desk()), ledger), "/jobs", who="")

    assert {("/jobs", "4xx"): 1} == counted(ledger)


def test_page_that_breaks_is_an_answer_of_the_class_5xx() -> None:
    app, ledger = FastAPI(), RequestCounts()
    app.add_api_route("/broken", lambda: 1 / 0)

    ask(CountedApp(app, ledger), "/broken")

    assert {("/broken", "5xx"): 1} == counted(ledger)


def test_request_that_is_cut_before_its_answer_began_is_counted_without_a_status() -> None:
    app, ledger = FastAPI(), RequestCounts()

    async def wait(_: Request) -> Response:
        await asyncio.Event().wait()
        return PlainTextResponse("")

    app.add_route("/slow", wait)

    async def run() -> None:
        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(_: Any) -> None:
            raise AssertionError("an answer was begun")

        async with asyncio.timeout(0.05):
            await CountedApp(app, ledger)(make_scope(path="/slow"), receive, send)

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert {("/slow", "none"): 1} == counted(ledger)


def test_wait_ends_when_the_answer_begins_and_falls_into_its_bucket() -> None:
    app, ledger, clock = FastAPI(), RequestCounts(), iter([10.0, 10.1, 99.0])

    app.add_route("/page", lambda _: PlainTextResponse("page"))
    call(CountedApp(app, ledger, clock=lambda: next(clock)), make_scope(path="/page"))

    wait = waits(ledger)[("/page",)]
    assert 0.1 == pytest.approx(wait.total)
    # 10.1 - 10.0 is a hair below 0.1, so it belongs to the bucket that ends there.
    assert [0.1] == [bound for bound, count in zip(BUCKETS, wait.counts, strict=False) if count]


@pytest.mark.parametrize(("seconds", "index"), [(0.0, 0), (0.005, 0), (0.0051, 1), (30.0, 12), (31.0, 13)])
def test_bounds_belong_to_the_bucket_they_end(seconds: float, index: int) -> None:
    ledger = RequestCounts()

    ledger.note("/page", 200, seconds)

    expected = [int(position == index) for position in range(14)]
    assert expected == list(waits(ledger)[("/page",)].counts)


def test_what_is_no_request_is_passed_on_uncounted() -> None:
    ledger, app = RequestCounts(), FastAPI()
    sent: list[str] = []

    async def run() -> None:
        left = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

        async def receive() -> Any:
            return left.pop(0)

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await CountedApp(app, ledger)({"type": "lifespan", "state": {}}, receive, send)

    asyncio.run(run())
    assert ["lifespan.startup.complete", "lifespan.shutdown.complete"] == sent
    assert {} == counted(ledger)
