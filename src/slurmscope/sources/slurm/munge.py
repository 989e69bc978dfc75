# SPDX-License-Identifier: Apache-2.0
"""Find the socket of munged, and try it: without munged, Slurm's commands hang and print nothing."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path

from slurmscope.errors import CommandRefused

DEFAULT_SOCKET = Path("/run/munge/munge.socket.2")
CONFIG_FILES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")
TIMEOUT_SECONDS = 3.0

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
