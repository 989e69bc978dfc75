# SPDX-License-Identifier: Apache-2.0
"""Documents are made in processes of their own, few at a time; a failing one costs only its own document."""

from __future__ import annotations

import asyncio
import io
import sys

import pypdf
import pytest
from starlette.exceptions import HTTPException

from slurmscope.core.errors import OutputError
from slurmscope.portal.web.slow_results import DocumentRenderer
from tests.fakes.reports import make_report

PNG = b"\x89PNG\r\n\x1a\n"


def child(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def test_documents_are_rendered() -> None:
    async def render() -> tuple[bytes, bytes, bytes]:
        renderer, report = DocumentRenderer(), make_report()
        return await renderer.pdf(report), await renderer.chart(report.charts[0]), await renderer.pie(report)

    pdf, chart, pie = asyncio.run(render())

    assert "4711" in pypdf.PdfReader(io.BytesIO(pdf)).pages[0].extract_text()
    assert (PNG, PNG) == (chart[:8], pie[:8])


def test_documents_are_rendered_where_limits_cannot_be_set() -> None:
    # As under the example unit: the calls fail with EPERM.
    forbid = (
        "import os, resource, runpy\n"
        "def refuse(*_): raise PermissionError(1, 'Operation not permitted')\n"
        "os.nice = resource.setrlimit = refuse\n"
        "runpy.run_module('slurmscope.portal.web.document_child', run_name='__main__')"
    )
    pdf = asyncio.run(DocumentRenderer(child=child(forbid)).pdf(make_report()))

    assert b"%PDF" == pdf[:4]


def test_failing_process_is_an_error_with_its_message() -> None:
    renderer = DocumentRenderer(child=child("import sys; sys.stdin.read(); sys.exit('no font')"))

    with pytest.raises(OutputError, match="no font"):
        asyncio.run(renderer.pdf(make_report()))


def test_further_documents_are_rejected_and_succeed_later() -> None:
    renderer = DocumentRenderer(
        max_running=1, max_documents=2, child=child("import sys; sys.stdin.read(); print('made', end='')")
    )

    async def render() -> list[object]:
        many = [renderer.pdf(make_report()) for _ in range(5)]
        return [*await asyncio.gather(*many, return_exceptions=True), await renderer.pdf(make_report())]

    results = asyncio.run(render())
    refused = [result for result in results if isinstance(result, HTTPException)]

    assert [b"made"] * 3 == [result for result in results if isinstance(result, bytes)]
    assert [(503, "10")] * 3 == [(error.status_code, (error.headers or {})["Retry-After"]) for error in refused]


def test_cancelled_request_ends_its_process() -> None:
    # The process would write to its pipe for ever.
    renderer = DocumentRenderer(child=child("while True: print('x' * 1000)"))

    async def render() -> None:
        async with asyncio.timeout(0.5):
            await renderer.pdf(make_report())

    with pytest.raises(TimeoutError):
        asyncio.run(render())
