# SPDX-License-Identifier: Apache-2.0
"""Read jobs and nodes as JSON: by Slurm's commands, or from slurmrestd.

slurmrestd truncates the list of an array's tasks after 64 characters unless ``SLURM_BITSTR_LEN=0`` is in its own
environment. The number of tasks is then not known, so that no job is counted.
"""

from __future__ import annotations

import re
import time

from slurmscope.cluster.json import records as json_jobs
from slurmscope.cluster.json import records as json_nodes
from slurmscope.cluster.json.records import parse_jobs, parse_nodes
from slurmscope.cluster.sinfo import Nodes
from slurmscope.cluster.squeue import Jobs, StartWindow
from slurmscope.core.errors import ConfigError, MalformedAnswer, ServerError, ServerRefused, SlurmRefused
from slurmscope.core.log import escape
from slurmscope.http.client.credentials import TokenFile
from slurmscope.http.client.request import ClientRequest, HttpAnswer, send, tls_context
from slurmscope.slurm.command import RunCommand, SlurmSettings
from slurmscope.slurm.json_response import reported_error

# "slurm 24.11.5", and in Debian "slurm-wlm 22.05.8".
_VERSION = re.compile(rb"slurm\S* ([0-9]{1,3})\.([0-9]{1,2})[.\n]")
_FIRST_SCONTROL_JSON = (23, 2)


class JsonCommands:
    """Run squeue and scontrol, or sinfo where scontrol has no JSON."""

    def __init__(self, run: RunCommand) -> None:
        self._run = run
        self._release: tuple[int, int] | None = None

    def read_jobs(self, window: StartWindow, now_seconds: float, *, with_owners: bool = False) -> Jobs:
        answer = self._run("squeue", json_jobs.SQUEUE_ARGUMENTS)
        return json_jobs.parse_jobs(answer, taken_at_seconds=now_seconds, window=window, with_owners=with_owners)

    def read_nodes(self) -> Nodes:
        """Return all nodes from scontrol, or from sinfo for 22.05; the version is checked once."""
        if self._release is None:
            self._release = parse_release(self._run("sinfo", ("--version",)))
        if self._release >= _FIRST_SCONTROL_JSON:
            return json_nodes.parse_nodes(self._run("scontrol", json_nodes.SCONTROL_ARGUMENTS))
        return json_nodes.parse_nodes(self._run("sinfo", json_nodes.SINFO_ARGUMENTS))


def parse_release(answer: bytes) -> tuple[int, int]:
    """Read the release from what a command of Slurm prints as its version."""
    found = _VERSION.match(answer)
    if not found:
        said = escape(answer[:100].decode("utf-8", "replace"))
        raise MalformedAnswer(f"sinfo --version: {said!r} is not a version such as slurm 24.11.5")
    return int(found[1]), int(found[2])


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
        answer = self._request("jobs")
        return parse_jobs(answer, taken_at_seconds=now_seconds, window=window, with_owners=with_owners)

    def read_nodes(self) -> Nodes:
        return parse_nodes(self._request("nodes"))

    def _request(self, what: str) -> bytes:
        """Send a request in the version that worked the last time, or else in all of them, the newest first."""
        deadline = time.monotonic() + self._timeout_seconds
        token = self._token_file.read() if self._token_file else ""
        headers = {"Accept": "application/json", "X-SLURM-USER-NAME": self._user, "X-SLURM-USER-TOKEN": token}
        headers = {name: value for name, value in headers.items() if value}
        last = (self._version,) if self._version else ()
        for version in (self._fixed_version,) if self._fixed_version else (*last, *VERSIONS):
            request = ClientRequest(path=_path(version, what), headers=headers)
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
