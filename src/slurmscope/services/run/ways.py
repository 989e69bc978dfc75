# SPDX-License-Identifier: Apache-2.0
"""Know the ways to the trace endpoint: the socket of the node agent, or its address with a token, munge or nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.errors import CommandFailed, CommandMissing, CommandTimedOut
from slurmscope.http_client.address import ServerAddress, parse_address
from slurmscope.services.run.context import is_socket

if TYPE_CHECKING:
    import subprocess

MUNGE_TIMEOUT_SECONDS = 2.0
TRACE_PATH = "/trace"

_TOKEN = re.compile(r"[!-~]{1,4096}\Z")
_CREDENTIAL = re.compile(rb"MUNGE:[A-Za-z0-9+/=]{1,65536}:\n?\Z")

StartHelper = Callable[[Callable[[], "subprocess.Popen[bytes]"]], "subprocess.Popen[bytes]"]
"""Calls what starts a program, and keeps that program apart from the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Hold one way; ``credential`` returns the headers that prove the sender of a body, or raises SourceError."""

    name: str
    address: ServerAddress
    credential: Callable[[bytes], Mapping[str, str]] = lambda _body: {}


def parse_endpoint(text: str) -> ServerAddress:
    """Parse the address of the endpoint as older scripts write it, also ``localhost:8092``; raise ValueError."""
    address = parse_address(text if "://" in text or text.startswith("unix:") else f"http://{text}")
    if address.prefix or address.socket_path:
        return address
    return ServerAddress(host=address.host, port=address.port, is_tls=address.is_tls, prefix=TRACE_PATH)


def find_ways(
    socket_path: Path, endpoint: ServerAddress | None, *, token: str, munge: StartHelper | None
) -> tuple[Way, ...]:
    """Return the ways that may work, in the order to try them; ``munge`` starts a program where it is wanted."""
    ways = []
    if is_socket(socket_path):
        ways.append(Way(name="socket", address=ServerAddress(socket_path=str(socket_path), prefix=TRACE_PATH)))
    if endpoint is None:
        return tuple(ways)
    if _TOKEN.match(token):
        ways.append(Way(name="token", address=endpoint, credential=lambda _body: _bearer(token)))
    if munge is not None:
        ways.append(Way(name="munge", address=endpoint, credential=lambda body: _sign(body, munge)))
    if endpoint.socket_path or not (token or munge):
        ways.append(Way(name="plain", address=endpoint))
    return tuple(ways)


def _bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _sign(body: bytes, start_helper: StartHelper) -> Mapping[str, str]:
    """Let munge sign the digest of a body."""
    import hashlib
    import subprocess

    argv = ("munge", "--string", hashlib.sha256(body).hexdigest())
    try:
        process = start_helper(partial(_start, argv))
    except OSError as error:
        raise CommandMissing(argv, f"cannot run munge: {error.strerror}") from error
    with process:
        try:
            credential, _ = process.communicate(timeout=MUNGE_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise CommandTimedOut(argv, "munge timed out") from error
    # Its exit code is unknown where the thread that reaps orphans was faster.
    if not _CREDENTIAL.match(credential):
        raise CommandFailed(argv, "munge made no credential; is munged running?")
    return {"Authorization": f"Munge {credential.decode('ascii').strip()}"}


def _start(argv: tuple[str, ...]) -> subprocess.Popen[bytes]:
    import subprocess

    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
