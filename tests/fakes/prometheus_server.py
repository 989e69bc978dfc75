# SPDX-License-Identifier: Apache-2.0
"""Be a Prometheus that answers as a test has written down, one answer for each question."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from tests.fakes.talking_server import http_answer

Point = tuple[float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Hold one request."""

    line: str
    headers: dict[str, str]
    form: dict[str, str]


@dataclass(slots=True)
class FakePrometheus:
    """Give the answers in their order, the last one for ever, and remember what was asked."""

    answers: list[bytes] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def talk(self, connection: socket.socket) -> None:
        """Read one request and answer it."""
        self.asked.append(read_form(connection))
        connection.sendall(self.answers[min(len(self.asked), len(self.answers)) - 1])


def read_form(connection: socket.socket) -> Asked:
    """Read one request with the body that it announces."""
    received = b""
    while b"\r\n\r\n" not in received and (data := connection.recv(65536)):
        received += data
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    while len(body) < int(headers.get("Content-Length", "0")) and (data := connection.recv(65536)):
        body += data
    return Asked(line=first, headers=headers, form=dict(parse_qsl(body.decode("ascii"), strict_parsing=bool(body))))


def matrix(*series: tuple[dict[str, str], Sequence[Point]], **more: object) -> bytes:
    """Write the answer to a range query."""
    result = [{"metric": labels, "values": list(points)} for labels, points in series]
    return success({"resultType": "matrix", "result": result}, **more)


def vector(*series: tuple[dict[str, str], Point], **more: object) -> bytes:
    """Write the answer to an instant query."""
    result = [{"metric": labels, "value": point} for labels, point in series]
    return success({"resultType": "vector", "result": result}, **more)


def success(data: object, **more: object) -> bytes:
    """Write a good answer."""
    return http_answer(200, json.dumps({"status": "success", "data": data, **more}).encode())


def failure(status: int, kind: str, words: str) -> bytes:
    """Write the answer of a server that could not do it."""
    body = {"status": "error", "errorType": kind, "error": words}
    return http_answer(status, json.dumps(body).encode())
