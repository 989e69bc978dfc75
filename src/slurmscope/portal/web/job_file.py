# SPDX-License-Identifier: Apache-2.0
"""Send a long list of jobs as a file, without keeping it in memory as a whole.

The rows are rendered and compressed as they are read, and decompressed as they are sent: a slow reader of megabytes
takes a few hundred kilobytes. Nothing is sent before the last row is read, so that a failure has its own status.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice

from starlette.responses import Response, StreamingResponse

from slurmscope.model.archive import JobRow
from slurmscope.portal.web.tables import (
    MEDIA_TYPES,
    add_times,
    make_file_headers,
    make_job_table,
    render_csv,
    render_json_rows,
)
from slurmscope.reports.csv_rows import render_csv_rows

PART_ROWS = 500
_LEVEL = 1


def make_job_file(rows: Iterable[JobRow], format: str, name: str, *, limit: int) -> Response:
    """Send jobs up to the limit as CSV or JSON; if further ones are left out, the file name says so."""
    jobs = _LimitedRows(iter(rows), limit)
    render = _render_json if format == "json" else _render_csv
    packed, size = [], 0
    for text in render(jobs):
        packed.append(zlib.compress(text, _LEVEL))
        size += len(text)
    headers = make_file_headers(f"{name}-first-{jobs.count}" if jobs.is_cut else name, format)
    headers["Content-Length"] = str(size)
    return StreamingResponse(_unpack(packed), media_type=MEDIA_TYPES[format], headers=headers)


class _LimitedRows:
    """Read rows in parts up to a limit; afterwards ``is_cut`` says whether there were more."""

    def __init__(self, rows: Iterator[JobRow], limit: int) -> None:
        self._rows = rows
        self._limit = limit
        self.count = 0
        self.is_cut = False

    def __iter__(self) -> Iterator[list[JobRow]]:
        while part := list(islice(self._rows, min(PART_ROWS, self._limit - self.count))):
            self.count += len(part)
            yield part
        self.is_cut = next(self._rows, None) is not None


def _render_csv(jobs: _LimitedRows) -> Iterator[bytes]:
    yield render_csv(make_job_table(())).encode()
    for part in jobs:
        yield render_csv_rows(add_times(make_job_table(part)).rows).encode()


def _render_json(jobs: _LimitedRows) -> Iterator[bytes]:
    yield b'{"rows":['
    for part in jobs:
        is_first = jobs.count == len(part)
        yield (b"" if is_first else b",") + render_json_rows(make_job_table(part))[1:-1]
    yield b'],"is_cut":true}' if jobs.is_cut else b'],"is_cut":false}'


async def _unpack(packed: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in packed:
        yield zlib.decompress(part)
