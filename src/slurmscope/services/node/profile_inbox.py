# SPDX-License-Identifier: Apache-2.0
"""Accept the writes of Slurm's own plugin ``acct_gather_profile/influxdb``, as InfluxDB would.

On a loopback address, the kernel names the user who has connected, and only root's writes are accepted; any local
user can connect. On other addresses, the web configuration must require TLS, and passwords or certificates.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import logging
import os
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from slurmscope.errors import ConfigError, SourceError
from slurmscope.log import fields
from slurmscope.model.check import Check
from slurmscope.model.profile import Profile, ProfileSeries, Sample
from slurmscope.outputs.http.address import parse_address
from slurmscope.outputs.http.request import BadRequest, HttpRequest
from slurmscope.outputs.http.response import NO_CONTENT, Response, Upload, text_response
from slurmscope.outputs.http.server import Server
from slurmscope.services.node.profile_receiver import MALFORMED, ROOT_UID, SENDER
from slurmscope.services.node.profile_steps import ProfileSteps
from slurmscope.sources.machine.connection_owner import find_owner
from slurmscope.sources.profile.line_protocol import parse_write

logger = logging.getLogger(__name__)

PATH = "/write"
BODY_LIMIT_BYTES = 128 * 1024
"""Slurm sends what it has before this is 16 KiB, and never less than one sample."""

MAX_CONNECTIONS = 64
RETRY_SECONDS = 0.5
CLOSE_SECONDS = 1.0
END_SECONDS = 5.0
_INTERCONNECT = "acct_gather_interconnect/"
_NETWORK_MEGABYTES = frozenset({"InMB", "OutMB"})


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxOptions:
    """Hold where to listen, and what the lines do not say: whether Slurm accounts GPUs, and its interconnect plugin."""

    address: str
    config_file: Path | None = None
    has_gpus: bool = False
    interconnect: str = ""

    def is_loopback(self) -> bool:
        """Return whether only this machine can connect."""
        host = parse_address(self.address).host
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def check(self) -> None:
        """Raise ConfigError if users of other machines could write without a password or certificate."""
        if self.is_loopback():
            return
        if self.config_file is not None:
            from slurmscope.outputs.http.webconfig import ClientAuth, read_web_config

            web = read_web_config(self.config_file)
            is_required = web.tls is not None and web.tls.client_auth is ClientAuth.REQUIRE_AND_VERIFY
            if web.tls is not None and (web.users or is_required):
                return
        raise ConfigError(
            f"profile.influxdb-listen-address {self.address} is not a loopback address such as 127.0.0.1:8086, and "
            "web.config.file does not require TLS with basic authentication or client certificates"
        )

    def complete(self, sample: Sample) -> Sample:
        """Add what the lines do not say; bytes of a network are left out if their unit is unknown."""
        if sample.series is not ProfileSeries.NETWORK:
            return replace(sample, has_gpus=self.has_gpus)
        if self.interconnect:
            return replace(sample, sampler=_INTERCONNECT + self.interconnect)
        known = {name: field for name, field in sample.fields.items() if name not in _NETWORK_MEGABYTES}
        return replace(sample, fields=known)


class ProfileInbox:
    """Run the HTTP server; an address that is in use is tried again and again, as it is free soon after a reload."""

    def __init__(self, options: InboxOptions, steps: ProfileSteps, *, writers: Collection[int] | None = None) -> None:
        """Start listening; ``close`` ends it.

        On a loopback address, only these users may write, by default root and the user of this process.
        """
        options.check()
        allowed = (ROOT_UID, os.geteuid()) if writers is None else writers
        self._options = options
        self._steps = steps
        self._writers = frozenset(allowed) if options.is_loopback() else None
        self._error: str | None = None
        self._is_elsewhere = False
        self._has_tried = threading.Event()
        self._is_stopping = threading.Event()
        self._server: Server | None = None
        self._upload = Upload(limit_bytes=BODY_LIMIT_BYTES, refuse=self._refuse)
        self._thread = threading.Thread(target=self._run, name="profile-inbox", daemon=True)
        self._thread.start()
        self._has_tried.wait(END_SECONDS)

    @property
    def port(self) -> int:
        """Return the port that the server listens on, 0 if it does not."""
        return self._server.addresses[0].port if self._server else 0

    def read(self) -> Profile:
        """Return the current steps, none while another process receives them; raise SourceError on failure."""
        if self._error is not None:
            raise SourceError(self._error)
        return Profile() if self._is_elsewhere else self._steps.snapshot()

    def read_own(self) -> Profile | None:
        """Return the current steps, None while this process does not receive any."""
        return None if self._is_elsewhere or self._error is not None else self._steps.snapshot()

    def checks(self) -> Iterator[Check]:
        """Check whether writes can be received."""
        address = self._options.address
        elsewhere = f"another process, such as the running agent, listens on {address}"
        yield Check(
            name="profile influxdb",
            is_good=self._error is None,
            message=self._error or (elsewhere if self._is_elsewhere else f"can receive on {address}"),
            advice="" if self._error is None else "no metrics of profile: check profile.influxdb-listen-address",
        )

    def close(self) -> None:
        """Stop listening."""
        self._is_stopping.set()
        if self._server is not None:
            self._server.close(CLOSE_SECONDS)
        self._thread.join(END_SECONDS)

    def __call__(self, request: HttpRequest) -> Response:
        """Answer a request: 204 if all lines were used."""
        if request.path != PATH:
            return text_response(404, f"Only {PATH} is answered here.")
        if request.method != "POST":
            return text_response(405, "This address accepts writes of Slurm only.", ("Allow", "POST"))
        if not self._may_write(request):
            uid = request.credentials.uid if request.credentials else None
            return self._reject(SENDER, 403, f"uid {uid} is not root, who alone may write")
        if dict(request.query).get("precision") != "s":
            return self._reject(MALFORMED, 400, "precision is not s")
        written, malformed = parse_write(request.body)
        for one in written:
            self._steps.handle_difference(one.key, self._options.complete(one.sample))
        if malformed:
            return self._reject(MALFORMED, 400, f"partial write: {malformed} lines are not as Slurm writes them")
        return Response(status=NO_CONTENT)

    def find_upload(self, request: HttpRequest) -> Upload | None:
        """Read the bodies of those who may write."""
        return self._upload if request.method == "POST" and self._may_write(request) else None

    def _may_write(self, request: HttpRequest) -> bool:
        if self._writers is None:
            return True
        return request.credentials is not None and request.credentials.uid in self._writers

    def _refuse(self, problem: BadRequest) -> Response:
        return self._reject(MALFORMED, problem.status, problem.message)

    def _reject(self, reason: str, status: int, why: str) -> Response:
        logger.warning("profiling write rejected", extra=fields(reason, reason=reason, error=why))
        self._steps.reject(reason)
        body = json.dumps({"error": why}).encode()
        return Response(status=status, headers=(("Content-Type", "application/json"),), body=body)

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                server = self._open()
            except ConfigError as problem:
                self._note(problem)
                self._has_tried.set()
                self._is_stopping.wait(RETRY_SECONDS)
                continue
            self._server, self._error, self._is_elsewhere = server, None, False
            self._has_tried.set()
            logger.info("receiving profiling writes", extra=fields(address=str(server.addresses[0])))
            if self._is_stopping.is_set():
                server.close(CLOSE_SECONDS)
            server.serve()

    def _open(self) -> Server:
        is_local = self._writers is not None
        return Server(
            self,
            addresses=(self._options.address,),
            find_upload=self.find_upload,
            find_owner=find_owner if is_local else None,
            config_file=None if is_local else self._options.config_file,
            max_connections=MAX_CONNECTIONS,
        )

    def _note(self, problem: ConfigError) -> None:
        """Remember why the address cannot be used, and log it once."""
        cause = problem.__cause__
        self._is_elsewhere = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
        error = None if self._is_elsewhere else str(problem)
        if not self._has_tried.is_set() or error != self._error:
            logger.warning("profiling writes cannot be received", extra=fields(error=str(problem)))
        self._error = error
