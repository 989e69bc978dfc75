# SPDX-License-Identifier: Apache-2.0
"""Fake a Prometheus server that returns scripted answers, one for each query."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from tests.fakes.scripted_server import http_answer, read_whole_request

Point = tuple[float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedQuery:
    """Hold one request."""

    line: str
    headers: dict[str, str]
    form: dict[str, str]


@dataclass(slots=True)
class FakePrometheus:
    """Return the answers in order, the last one for all further queries, and keep the queries."""

    answers: list[bytes] = field(default_factory=list)
    queries: list[ReceivedQuery] = field(default_factory=list)

    def handle(self, connection: socket.socket) -> None:
        """Read one request and answer it."""
        self.queries.append(read_form(connection))
        connection.sendall(self.answers[min(len(self.queries), len(self.answers)) - 1])


def read_form(connection: socket.socket) -> ReceivedQuery:
    """Read one POST request and decode its form."""
    request = read_whole_request(connection)
    form = dict(parse_qsl(request.body.decode("ascii"), strict_parsing=bool(request.body)))
    return ReceivedQuery(line=request.line, headers=request.headers, form=form)


def matrix(*series: tuple[dict[str, str], Sequence[Point]], **more: object) -> bytes:
    """Return the answer to a range query."""
    result = [{"metric": labels, "values": list(points)} for labels, points in series]
    return success({"resultType": "matrix", "result": result}, **more)


def vector(*series: tuple[dict[str, str], Point], **more: object) -> bytes:
    """Return the answer to an instant query."""
    result = [{"metric": labels, "value": point} for labels, point in series]
    return success({"resultType": "vector", "result": result}, **more)


def success(data: object, **more: object) -> bytes:
    """Return a successful answer."""
    return http_answer(200, json.dumps({"status": "success", "data": data, **more}).encode())


def failure(status: int, kind: str, message: str) -> bytes:
    """Return an error answer."""
    body = {"status": "error", "errorType": kind, "error": message}
    return http_answer(status, json.dumps(body).encode())
