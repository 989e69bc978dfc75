# SPDX-License-Identifier: Apache-2.0
"""Render the traced processes as an HTML table or as JSON."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from slurmscope.figures import format_bytes
from slurmscope.model.trace import TracedProcess
from slurmscope.outputs.http.app import escape
from slurmscope.outputs.http.response import Response

ROWS_LIMIT = 1000
STYLE = (
    "body{font-family:sans-serif;margin:2em}table{border-collapse:collapse}"
    "th,td{padding:.2em .8em;text-align:left;border-bottom:1px solid #ccc}.n{text-align:right}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; frame-ancestors 'none'"

_Value = str | float | int | None


@dataclass(frozen=True, slots=True)
class _Column:
    key: str
    title: str
    value: Callable[[TracedProcess], _Value]
    is_number: bool = False
    is_size: bool = False


_COLUMNS = (
    _Column("job_id", "Job", lambda p: p.owner.job_id, is_number=True),
    _Column("hostname", "Host", lambda p: p.host),
    _Column("pid", "PID", lambda p: p.sample.pid, is_number=True),
    _Column("rank", "Rank", lambda p: p.sample.rank, is_number=True),
    _Column("step_id", "Step", lambda p: p.sample.step),
    _Column("command", "Command", lambda p: p.sample.command),
    _Column("cpus", "CPU %", lambda p: p.sample.cpu_percent, is_number=True),
    _Column("cpu_seconds", "CPU seconds", lambda p: p.sample.cpu_seconds, is_number=True),
    _Column("mem", "Memory", lambda p: p.sample.memory_bytes, is_number=True, is_size=True),
    _Column("threads", "Threads", lambda p: p.sample.threads, is_number=True),
    _Column("read_bytes", "Read", lambda p: p.sample.read_bytes, is_number=True, is_size=True),
    _Column("write_bytes", "Written", lambda p: p.sample.write_bytes, is_number=True, is_size=True),
    _Column("username", "User", lambda p: p.owner.user),
    _Column("account", "Account", lambda p: p.owner.account),
    _Column("way", "Sent by", lambda p: p.way),
)


def page_response(
    processes: Sequence[TracedProcess],
    query: Sequence[tuple[str, str]],
    *,
    is_json: bool,
    has_accounts: bool,
) -> Response:
    """Return the processes; ``?sort=KEY`` sorts them, ``?job_id=N`` selects one job."""
    wanted = dict(query)
    columns = [column for column in _COLUMNS if has_accounts or column.key != "account"]
    rows = [
        process for process in processes if wanted.get("job_id", str(process.owner.job_id)) == str(process.owner.job_id)
    ]
    sorted_by = next((column for column in columns if column.key == wanted.get("sort")), columns[0])
    rows.sort(key=_order_of(sorted_by))
    if is_json:
        body = json.dumps([{c.key: c.value(p) for c in columns} for p in rows]).encode()
        return Response(headers=(("Content-Type", "application/json"), *_COMMON_HEADERS), body=body)
    body = _render(columns, rows, wanted.get("job_id")).encode("utf-8", "replace")
    headers = (("Content-Type", "text/html; charset=utf-8"), ("Content-Security-Policy", POLICY), *_COMMON_HEADERS)
    return Response(headers=headers, body=body)


_COMMON_HEADERS = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("Vary", "Accept"))


def _order_of(column: _Column) -> Callable[[TracedProcess], tuple[object, ...]]:
    """Return the sort key: names and IDs upwards, amounts downwards, what was not measured last."""

    def key(process: TracedProcess) -> tuple[object, ...]:
        value = column.value(process)
        # Only amounts are floats.
        ranked = -value if isinstance(value, float) else value
        rest = (process.owner.job_id, process.host, process.sample.pid or 0)
        return (True, *rest) if value in (None, "") else (False, ranked, *rest)

    return key


def _render(columns: Sequence[_Column], rows: Sequence[TracedProcess], job_id: str | None) -> str:
    head = "".join(f"<th>{_sort_link(column, job_id)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(_cell(column, process) for column in columns)}</tr>\n" for process in rows[:ROWS_LIMIT]
    )
    shown = f"{len(rows)} traced processes"
    if len(rows) > ROWS_LIMIT:
        shown += f"; the first {ROWS_LIMIT} are shown"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Traced processes</title>\n'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>Traced processes</h1>\n<p>{shown}.</p>\n"
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</body>\n</html>\n"
    )


def _sort_link(column: _Column, job_id: str | None) -> str:
    query = {"sort": column.key} if job_id is None else {"job_id": job_id, "sort": column.key}
    return f'<a href="?{escape(urlencode(query))}">{escape(column.title)}</a>'


def _cell(column: _Column, process: TracedProcess) -> str:
    value = column.value(process)
    if value is None:
        text = ""
    elif column.is_size and isinstance(value, int | float):
        text = format_bytes(value)
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    css = ' class="n"' if column.is_number else ""
    return f"<td{css}>{escape(text)}</td>"
