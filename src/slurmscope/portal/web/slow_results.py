# SPDX-License-Identifier: Apache-2.0
"""Keep slow requests from delaying others: documents are made a few at a time, sums once for all, users are limited.

A document takes up to seconds of CPU time. In the portal's own threads, some dozens at once would delay every page.

A result is kept for twenty times as long as it took, and for a minute at most: quick ones are always new, and slow ones
take a twentieth of a core however many users request them. A failure is raised to all who waited for it, and not kept.

A new report is another object, and is rendered again. Cached text must not depend on the viewer.

A user's further requests wait without a thread; if too many wait, they are rejected. A request counts until its
response is sent, so that slow readers use up their own places only.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import pickle
import time
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from starlette.exceptions import HTTPException

from slurmscope.core.cache import Cache, WaitTooLong
from slurmscope.core.errors import ArchiveError, MissingExtraError, OutputError
from slurmscope.core.log import escape
from slurmscope.core.own_files import module_command
from slurmscope.jobs.report import Chart, JobReport
from slurmscope.portal.scope import AsgiApp, Receive, Send
from slurmscope.portal.web.document_child import CHART, PDF, PIE

CHILD = module_command("slurmscope.portal.web.document_child")
MAX_RUNNING = 2
MAX_DOCUMENTS = 18
"""Running and waiting, of all users together."""
WAIT_SECONDS = 20.0
RENDER_SECONDS = 30.0
BUSY = "Too many PDF files and images are being made at the moment. Try again in a few seconds."
TOO_SLOW = "Making this file took too long. Try again later."

MAX_TEXTS = 128
"""The texts of a large job take about 300 KB."""
MAX_RUNNING_OF_USER = 6
"""As many as a browser opens connections to one host."""
MAX_REQUESTS = 46
"""Running and waiting: a page with its charts in several tabs."""
PLACE_WAIT_SECONDS = 20.0
TOO_MANY = "You have too many requests at the same time. Try again in a few seconds."

_PLACE = "slurmscope.place"


class DocumentRenderer:
    """Render documents from one event loop; respond 503 if too many are wanted or one takes too long."""

    def __init__(
        self, *, max_running: int = MAX_RUNNING, max_documents: int = MAX_DOCUMENTS, child: tuple[str, ...] = CHILD
    ) -> None:
        self._running = asyncio.Semaphore(max_running)
        self._max_documents = max_documents
        self._documents = 0
        self._child = child

    async def pdf(self, report: JobReport) -> bytes:
        return await self._render(PDF, report)

    async def chart(self, chart: Chart) -> bytes:
        return await self._render(CHART, chart)

    async def pie(self, report: JobReport) -> bytes:
        """Return a pie chart of system and user time as PNG."""
        return await self._render(PIE, report)

    async def _render(self, kind: str, value: object) -> bytes:
        if importlib.util.find_spec("typst") is None:
            raise MissingExtraError("a report in PDF", "reports")
        if self._documents >= self._max_documents:
            raise _busy(BUSY)
        self._documents += 1
        try:
            await self._wait()
            try:
                return await _run(self._child, pickle.dumps((kind, value)))
            finally:
                self._running.release()
        finally:
            self._documents -= 1

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._running.acquire()
        except TimeoutError:
            raise _busy(BUSY) from None


async def _run(argv: tuple[str, ...], given: bytes) -> bytes:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(RENDER_SECONDS):
            made, errors = await process.communicate(given)
    except TimeoutError:
        raise _busy(TOO_SLOW) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            # Not wait(): with Python 3.11.2 (Debian 12) it never returns if a pipe is full.
            await process.communicate()
    if process.returncode != 0:
        raise OutputError(f"a document could not be made: {escape(errors.decode(errors='replace'), 300)}")
    return made


def _busy(message: str) -> HTTPException:
    return HTTPException(503, message, headers={"Retry-After": "10"})


class RenderingCache:
    """Cache texts by report and name, from any thread; concurrent requests wait for one rendering."""

    def __init__(self) -> None:
        # Each text with its report, so that no other report gets its id.
        self._cache = Cache[tuple[JobReport, str]](float("inf"), max_keys=MAX_TEXTS)

    def get(self, report: JobReport, name: str, render: Callable[[], str]) -> str:
        """Return a rendering of a report; reports of ended jobs come from the archive each time, and are not cached."""
        if report.record.has_ended:
            return render()
        return self._cache.get((id(report), name), lambda: (report, render()))[1]


KEPT_TIMES = 20
MAX_KEPT_SECONDS = 60.0
MAX_RESULTS = 256
RESULT_WAIT_SECONDS = 60.0
"""Longer than a query of the archive is allowed to take by default; a page with several that are slow takes longer."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedResult(Generic[T]):
    """A result and how old it is."""

    value: T
    age_seconds: float


@dataclass(frozen=True, slots=True)
class _Computed:
    value: Any
    began_at: float
    made_at: float


def _keep_seconds(computed: _Computed) -> float:
    return min(MAX_KEPT_SECONDS, KEPT_TIMES * (computed.made_at - computed.began_at))


class SharedResults:
    """Keep results by key, from any thread; quick ones, which can be requested in numbers, displace no slow one."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wait_seconds: float = RESULT_WAIT_SECONDS,
    ) -> None:
        self._clock = clock
        self._cache = Cache[_Computed](_keep_seconds, max_keys=MAX_RESULTS, wait_seconds=wait_seconds, clock=clock)

    def get(self, key: Hashable, compute: Callable[[], T]) -> SharedResult[T]:
        """Return the result of a key; compute it unless another thread does so, or did so lately.

        Raises ArchiveError if that one takes too long.
        """

        def read() -> _Computed:
            began_at = self._clock()
            return _Computed(compute(), began_at, self._clock())

        try:
            found = self._cache.get(key, read)
        except WaitTooLong as error:
            raise ArchiveError("the archive took too long to compute sums for another request") from error
        value: T = found.value
        return SharedResult(value, max(0.0, self._clock() - found.made_at))


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
        max_running: int = MAX_RUNNING_OF_USER,
        max_requests: int = MAX_REQUESTS,
        wait_seconds: float = PLACE_WAIT_SECONDS,
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
