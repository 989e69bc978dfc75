# SPDX-License-Identifier: Apache-2.0
"""Refuse a post of trace samples: every refusal has a status, a code and one sentence, in one JSON shape."""

from __future__ import annotations

import json
import math

from slurmscope.outputs.http.request import BadRequest
from slurmscope.outputs.http.response import Header, Response

JSON_TYPE = "application/json"

REASONS = frozenset({
    "credential", "encoding", "forward", "host", "job", "length", "malformed", "media_type", "network", "owner",
    "rate", "slurm", "timeout", "too_large", "too_many", "unavailable", "user", "way",
})  # fmt: skip
"""Codes of refusals; also the values of a label, so there are no others."""


class Refusal(BadRequest):
    """Carry status, code and sentence; ``retry_seconds`` is when another attempt may succeed."""

    def __init__(self, status: int, code: str, message: str, *, retry_seconds: float | None = None) -> None:
        super().__init__(status, message, code)
        self.retry_seconds = retry_seconds


def refusal_response(problem: BadRequest) -> Response:
    """Return the response to a refused post."""
    headers: list[Header] = [("Content-Type", JSON_TYPE), ("Cache-Control", "no-store")]
    retry_seconds = problem.retry_seconds if isinstance(problem, Refusal) else None
    if retry_seconds is not None:
        headers.append(("Retry-After", str(max(1, math.ceil(retry_seconds)))))
    if problem.status == 401:
        headers.append(("WWW-Authenticate", 'Bearer realm="trace", Munge'))
    body = json.dumps({"error": problem.message, "code": problem.code}).encode()
    return Response(status=problem.status, headers=tuple(headers), body=body)
