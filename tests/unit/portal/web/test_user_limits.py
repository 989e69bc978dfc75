# SPDX-License-Identifier: Apache-2.0
"""Requests of one person wait for each other; those of other people do not."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from slurmscope.portal.scope import AsgiMessage, Receive, Send
from slurmscope.portal.web.slow_results import PersonLimits, take_place

GENEROUS_SECONDS = 60.0


class Pages:
    """Count requests that run, until the gate is open; each takes its place twice, as two dependencies would."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.gate = asyncio.Event()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await take_place(scope, scope["person"])
        await take_place(scope, scope["person"])
        self.running.append(scope["person"])
        await self.gate.wait()
        if scope.get("fails"):
            raise ConnectionResetError
        self.running.remove(scope["person"])


async def no_message() -> AsgiMessage:
    return {}


async def no_send(message: AsgiMessage) -> None:
    return None


def request(limits: PersonLimits, person: str, *, fails: bool = False) -> asyncio.Task[None]:
    async def run() -> None:
        await limits({"type": "http", "person": person, "fails": fails}, no_message, no_send)

    return asyncio.create_task(run())


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_further_requests_of_a_person_wait_and_those_of_others_do_not() -> None:
    async def check() -> None:
        pages = Pages()
        limits = PersonLimits(pages, max_running=2, max_requests=10, wait_seconds=GENEROUS_SECONDS)
        requests = [request(limits, name) for name in ("eve", "eve", "eve", "eve", "ada")]
        await settle()
        assert ["eve", "eve", "ada"] == pages.running
        pages.gate.set()
        await asyncio.wait_for(asyncio.gather(*requests), GENEROUS_SECONDS)
        assert [] == pages.running

    asyncio.run(check())


def test_too_many_waiting_requests_are_rejected() -> None:
    async def check() -> None:
        pages = Pages()
        limits = PersonLimits(pages, max_running=1, max_requests=3, wait_seconds=GENEROUS_SECONDS)
        requests = [request(limits, "eve") for _ in range(3)]
        await settle()
        with pytest.raises(HTTPException) as refused:
            await request(limits, "eve")
        assert (429, {"Retry-After": "5"}) == (refused.value.status_code, refused.value.headers)
        pages.gate.set()
        await asyncio.wait_for(asyncio.gather(*requests), GENEROUS_SECONDS)

    asyncio.run(check())


def test_request_that_waited_too_long_is_rejected() -> None:
    async def check() -> None:
        pages = Pages()
        limits = PersonLimits(pages, max_running=1, max_requests=3, wait_seconds=0.01)
        first = request(limits, "eve")
        await settle()
        with pytest.raises(HTTPException):
            await request(limits, "eve")
        pages.gate.set()
        await first

    asyncio.run(check())


def test_place_is_free_after_failures_and_cancelled_requests() -> None:
    async def check() -> None:
        pages = Pages()
        limits = PersonLimits(pages, max_running=1, max_requests=3, wait_seconds=GENEROUS_SECONDS)
        failing, waiting = request(limits, "eve", fails=True), request(limits, "eve")
        await settle()
        waiting.cancel()
        pages.gate.set()
        for task in (failing, waiting):
            with suppress(ConnectionResetError, asyncio.CancelledError):
                await task
        requests = [request(limits, "eve") for _ in range(3)]
        await asyncio.wait_for(asyncio.gather(*requests), GENEROUS_SECONDS)

    asyncio.run(check())
