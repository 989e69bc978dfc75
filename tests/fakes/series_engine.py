# SPDX-License-Identifier: Apache-2.0
"""Fake an engine of time series that has the CPU time of all jobs, and fails as real ones do."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.prometheus_server import ReceivedQuery, failure, matrix, read_form, success, vector
from tests.fakes.scripted_server import http_answer

MESSAGES = json.loads((Path(__file__).parents[1] / "fixtures" / "prometheus" / "messages.json").read_text())
CPU_SECONDS = 14_400
"""CPU time of every job: two cores for two hours."""
LIMIT_JOBS = 30

Answer = Callable[[ReceivedQuery, list[str]], bytes]

_JOBS = re.compile(r'slurm_job=~?"([0-9|]+)"')


def whole(query: ReceivedQuery, jobs: list[str]) -> bytes:
    """Answer with all series."""
    if "jobs_cpu_seconds_total" not in query.form["query"]:
        jobs = []
    labels = [{"slurm_job": job, "slurm_node": "n1"} for job in jobs]
    if "step" not in query.form:
        return vector(*((each, (float(query.form["time"]), str(CPU_SECONDS))) for each in labels))
    points = [(float(query.form[name]), "60") for name in ("start", "end")]
    return matrix(*((each, points) for each in labels))


def partial(more: dict[str, object]) -> Answer:
    """Answer with the series of every other job, and say so."""

    def answer(query: ReceivedQuery, jobs: list[str]) -> bytes:
        body = json.loads(whole(query, jobs[::2]).partition(b"\r\n\r\n")[2])
        return success(body["data"], **more)

    return answer


def limited(message: str) -> Answer:
    """Refuse queries about many jobs."""

    def answer(query: ReceivedQuery, jobs: list[str]) -> bytes:
        return failure(422, "execution", message) if len(jobs) > LIMIT_JOBS else whole(query, jobs)

    return answer


def always(answer: bytes) -> Answer:
    """Answer alike, whatever the query."""
    return lambda _query, _jobs: answer


def empty(query: ReceivedQuery, _jobs: list[str]) -> bytes:
    """Answer without any series, as Thanos does after all its stores are gone."""
    return whole(query, [])


FAILURES: dict[str, Answer] = {
    **{name: partial(more) for name, more in MESSAGES["partial"].items()},
    "vmstorage down": always(failure(503, "503", MESSAGES["vmstorage down"])),
    "vmstorage down, older": always(failure(422, "422", MESSAGES["vmstorage down"])),
    "no stores": empty,
    "401": always(http_answer(401, b"no org id\n")),
    "404": always(http_answer(404, b"404 page not found\n")),
    "unknown 422": always(failure(422, "execution", "expanding series: something new")),
    "sign-in page": always(http_answer(200, b"<html>Sign in</html>")),
}
"""What an engine may answer instead of its series; a later release may mark or word it otherwise."""
LIMITS: dict[str, Answer] = {name: limited(message) for name, message in MESSAGES["limits"].items()}
LIMITS["too slow"] = limited("query timed out in expression evaluation")


@dataclass
class FakeEngine:
    """Answer queries, as long as it is set how."""

    answer: Answer = whole
    sizes: list[int] = field(default_factory=list)
    """Number of jobs of each query."""
    queried: set[str] = field(default_factory=set)
    """IDs of jobs in all queries."""

    def handle(self, connection: socket.socket) -> None:
        """Read one query and answer it."""
        query = read_form(connection)
        found = _JOBS.findall(query.form["query"])
        jobs = sorted({job for group in found for job in group.split("|")})
        self.sizes.append(len(jobs))
        self.queried.update(jobs)
        connection.sendall(self.answer(query, jobs))
