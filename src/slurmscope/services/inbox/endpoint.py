# SPDX-License-Identifier: Apache-2.0
"""Answer pushes as Prometheus' Pushgateway does: PUT, POST and DELETE under ``/metrics/job/``."""

from __future__ import annotations

import logging

from slurmscope.log import fields
from slurmscope.outputs.http.app import Route
from slurmscope.outputs.http.request import BadRequest, HttpRequest
from slurmscope.outputs.http.response import Response, Upload, text_response
from slurmscope.outputs.networks import is_listed
from slurmscope.services.inbox.body import parse_body
from slurmscope.services.inbox.group_path import PREFIXES, parse_group_path
from slurmscope.services.inbox.store import GroupStore
from slurmscope.units import parse_positive_seconds

logger = logging.getLogger(__name__)

_ACCEPTED = 202


class PushEndpoint:
    """Check who pushes, parse the push, and store it."""

    def __init__(self, store: GroupStore) -> None:
        """Take the store of groups."""
        self._store = store
        route = Route(answer=self.answer, find_upload=self.find_upload, methods=("PUT", "POST", "DELETE"))
        self.routes = dict.fromkeys(PREFIXES, route)

    def find_upload(self, request: HttpRequest) -> Upload | None:
        """Return how the body of a push is read; None for a push without one, or from where none is accepted."""
        has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
        if request.method not in {"PUT", "POST"} or not has_body or self._find_refusal(request):
            return None
        return Upload(limit_bytes=self._store.settings.body_limit, refuse=self.refuse, accepts_gzip=True)

    def answer(self, request: HttpRequest) -> Response:
        """Answer a request: 200 for a push, 202 for a deletion, as the original does."""
        try:
            if refusal := self._find_refusal(request):
                raise refusal
            labels = parse_group_path(request.path, self._store.label_length_limit)
            if request.method == "DELETE":
                self._store.delete(labels)
                return Response(status=_ACCEPTED)
            self._push(request, labels)
        except BadRequest as problem:
            return self.refuse(problem)
        return Response()

    def refuse(self, problem: BadRequest) -> Response:
        """Count a refusal and return its response."""
        self._store.count_refusal(problem.code)
        logger.debug("push refused", extra=fields(problem.code, code=problem.code, error=problem.message))
        return text_response(problem.status, problem.message)

    def _push(self, request: HttpRequest, labels: dict[str, str]) -> None:
        limits = self._store.settings
        families = parse_body(request, size_limit_bytes=limits.body_limit, sample_limit=limits.series_per_group)
        self._store.push(labels, families, is_whole=request.method == "PUT", ttl_seconds=_asked_ttl(request))

    def _find_refusal(self, request: HttpRequest) -> BadRequest | None:
        if "origin" in request.headers:
            # Browsers send it: any web page that someone visits on this host could push otherwise.
            return BadRequest(403, "Pushes from web pages are not accepted.", "browser")
        if request.is_authenticated or is_listed(request.peer, self._store.settings.networks):
            return None
        return BadRequest(403, "Pushes are not accepted from this address; see push-inbox.networks.", "network")


def _asked_ttl(request: HttpRequest) -> float | None:
    given = dict(request.query).get("ttl")
    try:
        return None if given is None else parse_positive_seconds(given)
    except ValueError as error:
        raise BadRequest(400, "ttl is not a duration such as 30m or 12h.", "path") from error
