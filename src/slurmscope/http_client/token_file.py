# SPDX-License-Identifier: Apache-2.0
"""Read the token that a server asks for from its file."""

from __future__ import annotations

from pathlib import Path

from slurmscope.errors import ServerRefused

_TOKEN_LIMIT_BYTES = 16 * 1024


class TokenFile:
    """Read a token, and read it again when its file has changed."""

    def __init__(self, path: Path) -> None:
        """Take the file; it is opened when the token is needed."""
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def read(self) -> str:
        """Return the token; its file may hold it alone, or as ``scontrol token`` prints it."""
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen != self._seen:
                with self._path.open("rb") as stream:
                    self._token = _parse_token(stream.read(_TOKEN_LIMIT_BYTES + 1))
                self._seen = seen
        except OSError as error:
            raise ServerRefused(f"the token file {self._path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ServerRefused(f"the token file {self._path} cannot be used: {error}") from None
        return self._token


def _parse_token(data: bytes) -> str:
    """Raise ValueError without the token in it."""
    token = data.strip().removeprefix(b"SLURM_JWT=")
    if not token or len(data) > _TOKEN_LIMIT_BYTES:
        raise ValueError(f"it is empty or longer than {_TOKEN_LIMIT_BYTES} bytes")
    if not all(0x21 <= byte <= 0x7E for byte in token):
        raise ValueError("it holds something else than one token")
    return token.decode("ascii")
