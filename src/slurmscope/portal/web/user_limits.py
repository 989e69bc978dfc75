# SPDX-License-Identifier: Apache-2.0
"""Limit how many requests of one user are handled at the same time.

A user's further requests wait without a thread; if too many wait, they are rejected. A request counts until its
response is sent, so that slow readers use up their own places only.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException

from slurmscope.portal.scope import AsgiApp, Receive, Send

MAX_RUNNING = 6
"""As many as a browser opens connections to one host."""
MAX_REQUESTS = 46
"""Running and waiting: a page with its charts in several tabs."""
WAIT_SECONDS = 20.0
TOO_MANY = "You have too many requests at the same time. Try again in a few seconds."

_PLACE = "slurmscope.place"


async def take_place(scope: MutableMapping[str, Any], user: str) -> None:
    """Wait until this user's request may run; respond 429 if too many wait. Without the middleware, do nothing."""
    place: _Place | None = scope.get(_PLACE)
    if place is not None:
        await place.take(user)


class PersonLimits:
    """Give each request a place that it takes once its sender is known, and that is free again after the response."""

    def __init__(
        self,
        app: AsgiApp,
        *,
        max_running: int = MAX_RUNNING,
        max_requests: int = MAX_REQUESTS,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._app = app
        self._users = _Users(max_running=max_running, max_requests=max_requests, wait_seconds=wait_seconds)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Forward the request, and free its place at the end."""
        place = _Place(self._users)
        try:
            await self._app({**scope, _PLACE: place}, receive, send)
        finally:
            place.free()


@dataclass(slots=True)
class _User:
    running: asyncio.Semaphore
    requests: int = 0


@dataclass(slots=True, kw_only=True)
class _Users:
    max_running: int
    max_requests: int
    wait_seconds: float
    by_name: dict[str, _User] = field(default_factory=dict)

    async def enter(self, name: str) -> None:
        user = self.by_name.setdefault(name, _User(asyncio.Semaphore(self.max_running)))
        if user.requests >= self.max_requests:
            raise _too_many()
        user.requests += 1
        try:
            async with asyncio.timeout(self.wait_seconds):
                await user.running.acquire()
        except TimeoutError:
            self._forget(name, user)
            raise _too_many() from None
        except BaseException:
            self._forget(name, user)
            raise

    def leave(self, name: str) -> None:
        user = self.by_name[name]
        user.running.release()
        self._forget(name, user)

    def _forget(self, name: str, user: _User) -> None:
        user.requests -= 1
        if user.requests == 0:
            del self.by_name[name]


@dataclass(slots=True)
class _Place:
    users: _Users
    name: str | None = None

    async def take(self, name: str) -> None:
        if self.name is None:
            await self.users.enter(name)
            self.name = name

    def free(self) -> None:
        if self.name is not None:
            self.users.leave(self.name)
            self.name = None


def _too_many() -> HTTPException:
    return HTTPException(429, TOO_MANY, headers={"Retry-After": "5"})
