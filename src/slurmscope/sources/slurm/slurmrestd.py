# SPDX-License-Identifier: Apache-2.0
"""Request jobs and nodes from slurmrestd.

slurmrestd truncates the list of an array's tasks after 64 characters unless ``SLURM_BITSTR_LEN=0`` is in its own
environment; the tasks after that are then missing, and are counted as one unreadable row.
"""

from __future__ import annotations

import time

from slurmscope.errors import ConfigError, ServerError, ServerRefused, SlurmRefused
from slurmscope.http_client.request import HttpAnswer, HttpRequest, send, tls_context
from slurmscope.http_client.token_file import TokenFile
from slurmscope.log import escape
from slurmscope.model.jobs import Jobs
from slurmscope.model.nodes import Nodes
from slurmscope.sources.slurm.commands import SlurmSettings
from slurmscope.sources.slurm.json.answer import reported_error
from slurmscope.sources.slurm.json.jobs import parse_jobs
from slurmscope.sources.slurm.json.nodes import parse_nodes
from slurmscope.sources.slurm.squeue import StartWindow

VERSIONS = tuple(f"v0.0.{number}" for number in range(45, 37, -1))
"""The supported API versions, newest first."""

# The first that accepts flags: without DETAIL, slurmctld does not collect every core of every job.
_FIRST_WITH_FLAGS = "v0.0.40"
_REFUSALS = frozenset({401, 403, 407, 511})


class Slurmrestd:
    """Query one slurmrestd, in the newest API version that both sides support."""

    def __init__(self, settings: SlurmSettings) -> None:
        """Check the settings; no request is sent yet."""
        if settings.rest_url is None:
            raise ConfigError("--slurm.backend rest needs --slurm.rest-url, such as unix:/run/slurmrestd.sock")
        self._address = settings.rest_url
        self._timeout_seconds = settings.timeout
        self._user = settings.rest_user
        self._token_file = TokenFile(settings.rest_token_file) if settings.rest_token_file else None
        self._tls = tls_context() if settings.rest_url.is_tls else None
        self._fixed_version = settings.rest_version
        self._version = ""

    def read_jobs(self, window: StartWindow, now_seconds: float, *, with_owners: bool = False) -> Jobs:
        """Return all jobs."""
        answer = self._request("jobs")
        return parse_jobs(answer, taken_at_seconds=now_seconds, window=window, with_owners=with_owners)

    def read_nodes(self) -> Nodes:
        """Return all nodes."""
        return parse_nodes(self._request("nodes"))

    def _request(self, what: str) -> bytes:
        """Send a request in the version that worked the last time, or else in all of them, the newest first."""
        deadline = time.monotonic() + self._timeout_seconds
        token = self._token_file.read() if self._token_file else ""
        headers = {"Accept": "application/json", "X-SLURM-USER-NAME": self._user, "X-SLURM-USER-TOKEN": token}
        headers = {name: value for name, value in headers.items() if value}
        last = (self._version,) if self._version else ()
        for version in (self._fixed_version,) if self._fixed_version else (*last, *VERSIONS):
            request = HttpRequest(path=_path(version, what), headers=headers)
            answer = send(self._address, request, deadline=deadline, tls=self._tls)
            if answer.status == 200:
                self._version = version
                return answer.body
            if answer.status != 404:
                raise self._failure(answer, token)
        wanted = self._fixed_version or f"any of {VERSIONS[-1]} to {VERSIONS[0]}"
        raise ServerError(f"{self._address} does not support {wanted}; see --slurm.rest-version")

    def _failure(self, answer: HttpAnswer, token: str) -> ServerError | SlurmRefused:
        """Return the error for an answer that is neither successful nor for another version."""
        if message := reported_error(answer.body):
            return SlurmRefused(f"{self._address}: Slurm reports: {message}")
        text = answer.body[:1000].decode("utf-8", "replace").strip()
        # A server may repeat the request; our token must not get into a log.
        text = text.replace(token, "TOKEN") if token else text
        answered = f"{self._address} answered {answer.status}: {escape(text or 'an empty body', 300)}"
        if answer.status in _REFUSALS:
            return ServerRefused(f"{answered}; see --slurm.rest-token-file")
        return ServerError(answered)


def _path(version: str, what: str) -> str:
    flags = "?flags=ALL" if what == "jobs" and _number(version) >= _number(_FIRST_WITH_FLAGS) else ""
    return f"/slurm/{version}/{what}/{flags}"


def _number(version: str) -> int:
    return int(version.rpartition(".")[2])
