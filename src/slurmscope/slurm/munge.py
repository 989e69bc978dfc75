# SPDX-License-Identifier: Apache-2.0
"""Use munge: find and try the socket of munged, sign credentials, and decode them.

munged refuses a credential that is expired, altered, or decoded before on this host.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.errors import CommandFailed, CommandRefused, MalformedAnswer
from slurmscope.http.client.address import ServerAddress
from slurmscope.slurm.command import command_environment, find_command, run
from slurmscope.slurm.config import config_files

TIMEOUT_SECONDS = 3.0
CREDENTIAL = re.compile(r"MUNGE:[A-Za-z0-9+/=]{1,4096}:")
# From munge.h: EMUNGE_BAD_CRED to EMUNGE_CRED_UNAUTHORIZED; 17 is a replay. Lower ones are about munged itself.
_FIRST_BAD_CREDENTIAL = 8
_LAST_BAD_CREDENTIAL = 18
_EXIT_CODE = re.compile(r"exit code ([0-9]+)")
_OUTPUT_LIMIT_BYTES = 64 * 1024
_UID = re.compile(rb"^UID:\s+([0-9]{1,10})\s*$", re.MULTILINE)


def make_payload(portal: ServerAddress) -> str:
    """Return what a credential for requests to this portal vouches for."""
    return f"slurmscope portal GET {portal}"


@dataclass(frozen=True, slots=True)
class MungeCredential:
    """The user that made a credential, and its payload."""

    uid: int
    payload: bytes


def decode_credential(text: str, socket_path: Path | None, environment: Mapping[str, str]) -> MungeCredential | None:
    """Return what a credential holds, None if munged refuses it; raise a CommandError if munged cannot be queried."""
    if not CREDENTIAL.fullmatch(text):
        return None
    program = find_command("unmunge", None)
    argv = [str(program), "--numeric", "--keys=UID"]
    if socket_path is not None:
        argv.append(f"--socket={socket_path}")
    try:
        output = run(
            argv,
            timeout_seconds=TIMEOUT_SECONDS,
            environment=command_environment(environment),
            stdin=text.encode("ascii"),
            output_limit_bytes=_OUTPUT_LIMIT_BYTES,
        )
    except CommandFailed as error:
        code = _EXIT_CODE.search(str(error))
        if code is None or not _FIRST_BAD_CREDENTIAL <= int(code[1]) <= _LAST_BAD_CREDENTIAL:
            raise CommandRefused(error.argv, f"munged did not decode a credential: {error}") from error
        return None
    return parse_credential(output.stdout)


def parse_credential(answer: bytes) -> MungeCredential:
    """Parse the output of unmunge: metadata, an empty line, and the payload."""
    metadata, separator, payload = answer.partition(b"\n\n")
    uid = _UID.search(metadata)
    if uid is None or not separator:
        raise MalformedAnswer("unmunge: the answer names no user")
    return MungeCredential(int(uid[1]), payload)


DEFAULT_SOCKET = Path("/run/munge/munge.socket.2")

_TYPE = re.compile(r"^\s*AuthType\s*=\s*(\S+)", re.IGNORECASE | re.MULTILINE)
_SOCKET = re.compile(r"^\s*AuthInfo\s*=\s*(?:\S*,)?socket=([^,\s]+)", re.IGNORECASE | re.MULTILINE)


def find_munge_socket(environment: Mapping[str, str]) -> Path | None:
    """Return the socket that slurm.conf names; None if there is no slurm.conf here, or it uses no munge."""
    for file in config_files(environment):
        try:
            text = Path(file).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        kind = _TYPE.search(text)
        if kind and kind[1].lower() != "auth/munge":
            return None
        given = _SOCKET.search(text)
        return Path(given[1]) if given else DEFAULT_SOCKET
    return None


def try_munge(path: Path) -> None:
    """Connect to munged; raise CommandRefused if it does not listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(TIMEOUT_SECONDS)
        try:
            client.connect(str(path))
        except OSError as error:
            raise CommandRefused(("munge",), f"munged does not listen on {path}: {error.strerror or error}") from error


def make_credential(payload: str, environment: Mapping[str, str]) -> str:
    """Return a credential of the user who runs this process, for a payload; raise a CommandError if munge fails."""
    argv = [str(find_command("munge", None))]
    if (path := find_munge_socket(environment)) is not None and path != DEFAULT_SOCKET:
        argv.append(f"--socket={path}")
    output = run(
        argv,
        timeout_seconds=TIMEOUT_SECONDS,
        environment=command_environment(environment),
        stdin=payload.encode(),
        output_limit_bytes=_OUTPUT_LIMIT_BYTES,
    )
    credential = output.stdout.decode("ascii", "replace").strip()
    if not CREDENTIAL.fullmatch(credential):
        raise CommandFailed(argv, "munge made no credential; is munged running?")
    return credential
