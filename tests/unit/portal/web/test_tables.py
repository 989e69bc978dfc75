# SPDX-License-Identifier: Apache-2.0
"""A list sent in parts is the same as one rendered as a whole, and its name says if rows were left out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterable
from typing import cast

import pytest
from starlette.responses import StreamingResponse

from slurmscope.archive.interface import JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.portal.web.tables import PART_ROWS, make_job_file, make_table, render_csv, render_table_json
from tests.fakes.archive import FakeArchive
from tests.fakes.reports import make_report

ROWS = FakeArchive([make_report()]).list_jobs(EVERYTHING, JobFilter()).rows


def send(rows: list[JobRow], format: str, limit: int) -> tuple[bytes, dict[str, str]]:
    response = make_job_file(iter(rows), format, "jobs", limit=limit)
    assert isinstance(response, StreamingResponse)

    async def read() -> bytes:
        return b"".join([part async for part in cast("AsyncIterable[bytes]", response.body_iterator)])

    return asyncio.run(read()), dict(response.headers)


@pytest.mark.parametrize("count", [0, 1, PART_ROWS, PART_ROWS + 1, 2 * PART_ROWS + 3])
def test_parts_make_the_same_file(count: int) -> None:
    rows = [ROWS[0]] * count
    csv, csv_headers = send(rows, "csv", 10_000)
    text, _ = send(rows, "json", 10_000)

    assert render_csv(make_table(JobRow, rows)).encode() == csv
    assert json.loads(render_table_json(make_table(JobRow, rows))) == json.loads(text)
    assert (str(len(csv)), 'attachment; filename="jobs.csv"') == (
        csv_headers["content-length"],
        csv_headers["content-disposition"],
    )


@pytest.mark.parametrize(("count", "is_cut"), [(PART_ROWS + 2, False), (PART_ROWS + 3, True)])
def test_rows_beyond_the_limit_are_left_out(count: int, is_cut: bool) -> None:
    body, headers = send([ROWS[0]] * count, "json", PART_ROWS + 2)
    found = json.loads(body)

    assert (PART_ROWS + 2, is_cut) == (len(found["rows"]), found["is_cut"])
    assert is_cut == (f"jobs-first-{PART_ROWS + 2}.json" in headers["content-disposition"])
