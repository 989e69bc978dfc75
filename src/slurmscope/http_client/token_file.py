# SPDX-License-Identifier: Apache-2.0
"""Read the bearer token or JSON Web Token for a server from a file."""

from __future__ import annotations

from pathlib import Path

from slurmscope.errors import ServerRefused

_TOKEN_LIMIT_BYTES = 16 * 1024


class TokenFile:
    """Cache the token of a file and read it again when the file changes."""

    def __init__(self, path: Path) -> None:
        """Set the path; the file is opened when the token is needed."""
        self._path = path
        self._last_seen: tuple[int, int, int] | None = None
        self._token = ""

    def read(self) -> str:
        """Return the token; the file may contain the token alone or the output of ``scontrol token``."""
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen != self._last_seen:
                with self._path.open("rb") as stream:
                    self._token = _parse_token(stream.read(_TOKEN_LIMIT_BYTES + 1))
                self._last_seen = seen
        except OSError as error:
            raise ServerRefused(f"cannot read the token file {self._path}: {error.strerror}") from error
        except ValueError as error:
            raise ServerRefused(f"the token file {self._path} is invalid: {error}") from None
        return self._token


def _parse_token(data: bytes) -> str:
    """Return the token in a file; raise ValueError without repeating the token."""
    token = data.strip().removeprefix(b"SLURM_JWT=")
    if not token or len(data) > _TOKEN_LIMIT_BYTES:
        raise ValueError(f"it is empty or longer than {_TOKEN_LIMIT_BYTES} bytes")
    if not all(0x21 <= byte <= 0x7E for byte in token):
        raise ValueError("it must contain exactly one token")
    return token.decode("ascii")
