# SPDX-License-Identifier: Apache-2.0
"""Find the socket of munged, try it, and let it sign: without munged, Slurm's commands hang and print nothing."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path

from slurmscope.errors import CommandFailed, CommandRefused
from slurmscope.sources.slurm.command import command_environment, find_command, run
from slurmscope.sources.slurm.unmunge import CREDENTIAL

DEFAULT_SOCKET = Path("/run/munge/munge.socket.2")
CONFIG_FILES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")
TIMEOUT_SECONDS = 3.0
_OUTPUT_LIMIT_BYTES = 64 * 1024

_TYPE = re.compile(r"^\s*AuthType\s*=\s*(\S+)", re.IGNORECASE | re.MULTILINE)
_SOCKET = re.compile(r"^\s*AuthInfo\s*=\s*(?:\S*,)?socket=([^,\s]+)", re.IGNORECASE | re.MULTILINE)


def find_munge_socket(environment: Mapping[str, str]) -> Path | None:
    """Return the socket that slurm.conf names; None if there is no slurm.conf here, or it uses no munge."""
    files = (environment["SLURM_CONF"],) if environment.get("SLURM_CONF") else CONFIG_FILES
    for file in files:
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
