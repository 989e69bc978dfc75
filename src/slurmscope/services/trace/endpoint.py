# SPDX-License-Identifier: Apache-2.0
"""Answer posts of trace samples, and show the traced processes."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from slurmscope.collectors.trace_samples import MalformedSample, parse_samples
from slurmscope.log import fields
from slurmscope.model.trace import TracedProcess, TraceSample
from slurmscope.outputs.http.app import Route
from slurmscope.outputs.http.negotiate import prefers_json
from slurmscope.outputs.http.page_slots import PageSlots
from slurmscope.outputs.http.request import BadRequest, HttpRequest
from slurmscope.outputs.http.response import NO_CONTENT, Response, Upload
from slurmscope.services.trace.callers import Caller, has_credential
from slurmscope.services.trace.checks import CheckSample
from slurmscope.services.trace.page import page_response
from slurmscope.services.trace.rates import RateBuckets
from slurmscope.services.trace.refusal import JSON_TYPE, Refusal, refusal_response
from slurmscope.services.trace.settings import TraceLimits

logger = logging.getLogger(__name__)

BODY_LIMIT_BYTES = 64 * 1024
PAGES = 4
"""Pages that are made or sent at the same time: one of all processes takes 17 MB."""
_BLOCK_BYTES = 64 * 1024
HIDING_LABELS = frozenset({"user", "username", "jobid"})
"""Labels of the processes' series: if PrivateData hides one of them, no process is shown."""

_DONE = Response(status=NO_CONTENT)


class TraceReceiver:
    """Accept posts: authenticate the sender, parse the body, check each sample, and deliver all or none."""

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
        self._uploads = {
            (has, is_quick): Upload(
                limit_bytes=BODY_LIMIT_BYTES, refuse=self.refuse, has_credential=has, is_quick=is_quick
            )
            for has in (False, True)
            for is_quick in (False, True)
        }
        self._job_posts = RateBuckets(limits.posts_per_job)
        self._user_posts = RateBuckets(limits.posts_per_user)

    def find_upload(self, request: HttpRequest) -> Upload | None:
        """Return how the body of a post is read; None for other methods."""
        if request.method != "POST":
            return None
        return self._uploads[has_credential(request), self._is_quick(request)]

    def receive(self, request: HttpRequest) -> Response:
        """Answer a post: 204, or why it is refused."""
        try:
            _check_media_type(request)
            caller = self._find_caller(request)
            processes = self._checked(caller, _parse(request.body))
            self._deliver(processes)
        except Refusal as problem:
            return self.refuse(problem)
        return _DONE

    def refuse(self, problem: BadRequest) -> Response:
        """Count a refusal and return its response."""
        self._count_refusal(problem.code)
        logger.debug("trace samples refused", extra=fields(problem.code, code=problem.code, error=problem.message))
        return refusal_response(problem)

    def _checked(self, caller: Caller, samples: tuple[TraceSample, ...]) -> tuple[TracedProcess, ...]:
        """Check every sample; only a sender who may send for a job can use up the posts of that job."""
        processes = tuple(self._check(caller, sample) for sample in samples)
        for job_id in {process.owner.job_id for process in processes}:
            _take(self._job_posts, job_id, "job")
        for uid in {process.owner.uid for process in processes}:
            _take(self._user_posts, uid, "user")
        return processes


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
        """Answer a request."""
        if request.method == "POST":
            return self._receiver.receive(request)
        hidden = self._hidden_labels()
        if hidden & HIDING_LABELS:
            return refusal_response(Refusal(403, "hidden", "PrivateData hides the jobs of users, or it is unknown."))
        return self._show(request, has_accounts="account" not in hidden)

    def _show(self, request: HttpRequest, *, has_accounts: bool) -> Response:
        """Return the page; if too many are being sent, that of a client that does not read is dropped."""
        page = self._pages.take()
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


def _take(buckets: RateBuckets, key: int, what: str) -> None:
    if wait_seconds := buckets.take(key):
        raise Refusal(429, "rate", f"This {what} sends too many posts.", retry_seconds=wait_seconds)
