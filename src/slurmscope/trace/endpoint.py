# SPDX-License-Identifier: Apache-2.0
"""Answer posts of trace samples, and show the traced processes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from slurmscope.core.log import fields
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.core.units import format_bytes
from slurmscope.http.server.app import Route, escape, prefers_json
from slurmscope.http.server.page_slots import PageSlots
from slurmscope.http.server.request import BadRequest, HttpRequest
from slurmscope.http.server.response import NO_CONTENT, Response, Upload
from slurmscope.trace.callers import (
    JSON_TYPE,
    Caller,
    CallerFinder,
    Refusal,
    has_credential,
    limit_posts,
    refusal_response,
)
from slurmscope.trace.samples import MalformedSample, RunningJobOwner, TracedProcess, TraceSample, parse_samples
from slurmscope.trace.settings import TraceLimits

if TYPE_CHECKING:
    from slurmscope.trace.owners import OwnerFinder

logger = logging.getLogger(__name__)


CheckSample = Callable[[Caller, TraceSample], TracedProcess]
"""Return a sample with owner and node, or raise Refusal."""


class SlurmCheck:
    """Check samples against the running jobs of the cluster."""

    def __init__(self, owners: OwnerFinder, privileged_uids: Callable[[], Collection[int]]) -> None:
        """Take where owners are found; privileged users may send samples for any job."""
        self._owners = owners
        self._privileged_uids = privileged_uids

    def __call__(self, caller: Caller, sample: TraceSample) -> TracedProcess:
        """Return the sample with owner and node, or raise Refusal."""
        if caller.job_id not in (None, sample.job_id):
            raise Refusal(403, "owner", f"The credential is not for job {sample.job_id}.")
        owner = self._owners.find(sample.job_id)
        if not self._may_send(caller, owner):
            raise Refusal(403, "owner", f"Job {owner.job_id} belongs to another user.")
        check_user(sample, owner.user)
        return TracedProcess(owner, self._find_node(caller, sample, owner), caller.way, sample)

    def _may_send(self, caller: Caller, owner: RunningJobOwner) -> bool:
        if caller.uid is None or caller.uid == owner.uid:
            return True
        # A token is for the one user it names, also if that user is privileged.
        return caller.job_id is None and caller.uid in self._privileged_uids()

    def _find_node(self, caller: Caller, sample: TraceSample, owner: RunningJobOwner) -> str:
        if caller.node is None:
            return self._owners.find_node(owner, sample.host) if sample.host else self._owners.single_node(owner)
        node = self._owners.find_node(owner, caller.node)
        if sample.host and not self._owners.is_host_of(node, sample.host):
            raise Refusal(409, "host", f"The credential is not for host {sample.host[:64]!a}.")
        return node


def is_quick(callers: CallerFinder, owners: OwnerFinder, request: HttpRequest) -> bool:
    """Return whether a post can be checked without waiting for Slurm or munged: it has the token of a known job."""
    job_id = callers.find_job(request)
    return job_id is not None and owners.is_known(job_id)


def check_user(sample: TraceSample, user: str) -> None:
    if sample.user and sample.user != user:
        raise Refusal(403, "user", f"Job {sample.job_id} does not belong to this user name.")


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


BODY_LIMIT_BYTES = 64 * 1024
PAGES = 4
"""Pages that are made or sent at the same time: one of all processes takes 17 MB."""
_BLOCK_BYTES = 64 * 1024
HIDING_LABELS = frozenset({"user", "username", "jobid", "slurm_job"})
"""Labels of the processes' series: if PrivateData hides one of them, no process is shown."""

_DONE = Response(status=NO_CONTENT)


class TraceReceiver:
    """Accept posts: authenticate the sender, parse the body, check each sample, and deliver all or none.

    What is known about the sender without the body limits its posts before the body is parsed.
    """

    def __init__(
        self,
        *,
        find_caller: Callable[[HttpRequest], Caller],
        check: CheckSample,
        deliver: Callable[[tuple[TracedProcess, ...]], None],
        count_refusal: Callable[[str], None],
        limits: TraceLimits,
        is_quick: Callable[[HttpRequest], bool] = lambda _: False,
    ) -> None:
        """Take the steps that differ between the cluster exporter and the node agent.

        ``is_quick`` returns whether a post is answered without waiting for anything, by its head.
        """
        self._find_caller = find_caller
        self._check = check
        self._deliver = deliver
        self._count_refusal = count_refusal
        self._is_quick = is_quick
        self._job_posts = limit_posts(limits.posts_per_job)
        self._user_posts = limit_posts(limits.posts_per_user)

    def find_upload(self, request: HttpRequest) -> Upload | None:
        """Return how the body of a post is read; None for other methods."""
        if request.method != "POST":
            return None
        return Upload(
            limit_bytes=BODY_LIMIT_BYTES,
            refuse=self.refuse,
            has_credential=has_credential(request),
            is_quick=self._is_quick(request),
        )

    def receive(self, request: HttpRequest) -> Response:
        """Answer a post: 204, or why it is refused."""
        try:
            _check_media_type(request)
            if request.credentials is not None:
                _take(self._user_posts, request.credentials.uid, "user")
            caller = self._find_caller(request)
            if caller.job_id is not None:
                self._limit({caller.job_id}, () if caller.uid is None or request.credentials else (caller.uid,))
            processes = tuple(self._check(caller, sample) for sample in _parse(request.body))
            if caller.job_id is None:
                # Only a sender who may send for a job can use up the posts of that job.
                self._limit({p.owner.job_id for p in processes}, {p.owner.uid for p in processes})
            self._deliver(processes)
        except Refusal as problem:
            return self.refuse(problem)
        return _DONE

    def refuse(self, problem: BadRequest) -> Response:
        """Count a refusal and return its response."""
        self._count_refusal(problem.code)
        logger.debug("trace samples refused", extra=fields(problem.code, code=problem.code, error=problem.message))
        return refusal_response(problem)

    def _limit(self, job_ids: Collection[int], uids: Collection[int]) -> None:
        for job_id in job_ids:
            _take(self._job_posts, job_id, "job")
        for uid in uids:
            _take(self._user_posts, uid, "user")


class TraceEndpoint:
    """Answer the trace path of the cluster exporter."""

    def __init__(
        self,
        receiver: TraceReceiver,
        *,
        processes: Callable[[], tuple[TracedProcess, ...]],
        hidden_labels: Callable[[], frozenset[str]],
    ) -> None:
        """Take the receiver of posts, the processes to show, and the labels that PrivateData hides."""
        self.route = Route(
            answer=self.answer,
            find_upload=receiver.find_upload,
            methods=("GET", "HEAD", "POST"),
            link_text="Traced processes of running jobs; jobs send their samples here.",
        )
        self._receiver = receiver
        self._processes = processes
        self._hidden_labels = hidden_labels
        self._pages = PageSlots(PAGES)

    def answer(self, request: HttpRequest) -> Response:
        if request.method == "POST":
            return self._receiver.receive(request)
        hidden = self._hidden_labels()
        if hidden & HIDING_LABELS:
            return refusal_response(Refusal(403, "hidden", "PrivateData hides the jobs of users, or it is unknown."))
        return self._show(request, has_accounts="account" not in hidden)

    def _show(self, request: HttpRequest, *, has_accounts: bool) -> Response:
        """Return the page; if too many are being sent, that of a client that does not read is dropped."""
        page = self._pages.take(request.group)
        if page is None:
            return refusal_response(Refusal(503, "unavailable", "Too many pages at the same time.", retry_seconds=1))
        is_json = prefers_json(request.headers.get("accept", ""))
        with contextlib.ExitStack() as stack:
            stack.callback(page.close)
            made = page_response(self._processes(), request.query, is_json=is_json, has_accounts=has_accounts)
            first = page.start(_blocks(made))
            stack.pop_all()
        return replace(made, body=itertools.chain((first,), page), close=page.close)


def _blocks(made: Response) -> Iterator[bytes]:
    body = made.body if isinstance(made.body, bytes) else b"".join(made.body)
    for start in range(0, len(body), _BLOCK_BYTES):
        yield body[start : start + _BLOCK_BYTES]


def _check_media_type(request: HttpRequest) -> None:
    """Accept JSON only: other types can be posted by any web page that a user visits."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON_TYPE:
        raise Refusal(415, "media_type", f"The header content-type must be {JSON_TYPE}.")


def _parse(body: bytes) -> tuple[TraceSample, ...]:
    try:
        return parse_samples(body)
    except MalformedSample as problem:
        raise Refusal(400, "malformed", str(problem)) from problem


def _take(buckets: TokenBuckets, key: int, what: str) -> None:
    if wait_seconds := buckets.take(key):
        raise Refusal(429, "rate", f"This {what} sends too many posts.", retry_seconds=wait_seconds)
