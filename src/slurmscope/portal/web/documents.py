# SPDX-License-Identifier: Apache-2.0
"""Render PDF and PNG in processes of their own, a few at a time.

A document takes up to seconds of CPU time. In the portal's own threads, some dozens at once would delay every page.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import pickle
import sys

from starlette.exceptions import HTTPException

from slurmscope.core.errors import MissingExtraError, OutputError
from slurmscope.core.log import escape
from slurmscope.jobs.report import Chart, JobReport
from slurmscope.portal.web.document_child import CHART, PDF, PIE

CHILD = (sys.executable, "-P", "-m", "slurmscope.portal.web.document_child")
MAX_RUNNING = 2
MAX_DOCUMENTS = 18
"""Running and waiting, of all users together."""
WAIT_SECONDS = 20.0
RENDER_SECONDS = 30.0
BUSY = "Too many PDF files and images are being made at the moment. Try again in a few seconds."
TOO_SLOW = "Making this file took too long. Try again later."


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
