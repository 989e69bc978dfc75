# SPDX-License-Identifier: Apache-2.0
"""Read what a client needs to be let in from files that may change: headers, tokens and TLS certificates.

Reading the system's certificate authorities takes 25 ms of CPU, four times as long as encoding a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.core.errors import ConfigError, ServerRefused
from slurmscope.core.log import escape
from slurmscope.core.settings import parse_list
from slurmscope.core.watched_file import Watch, WatchedFile
from slurmscope.http.client.request import tls_context

if TYPE_CHECKING:
    from ssl import SSLContext


_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]{1,128})=(.*)\Z")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?\Z")
_OWN = frozenset({"accept", "connection", "content-length", "content-type", "host", "transfer-encoding", "user-agent"})
_SECRET_LIMIT_BYTES = 16 * 1024
_LEAST_SECRET_LENGTH = 4
_FORM = "not of the form NAME=VALUE or NAME=@FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The name of a header, and its value or the file that contains it."""

    name: str
    value: str = field(default="", repr=False)
    file: Path | None = None

    def __str__(self) -> str:
        """Return the header without its value."""
        return f"{self.name}=@{self.file}" if self.file else f"{self.name}=<hidden>"


def parse_headers(given: object) -> tuple[Header, ...]:
    """Parse headers: repeated flags, a list in the file, or comma-separated values in the environment.

    Raise ValueError without repeating a value.
    """
    try:
        items = parse_list(given)
    except ValueError:
        raise ValueError(f"a header is {_FORM}") from None
    headers = tuple(_parse_header(item.strip()) for item in items)
    names = [header.name.lower() for header in headers]
    if len(set(names)) < len(names):
        raise ValueError("a header is given twice")
    return headers


def is_header_value(text: str) -> bool:
    return _VALUE.match(text) is not None


def read_headers(headers: Iterable[Header]) -> dict[str, str]:
    """Return the current values of headers; raise ValueError, without a value, if a file cannot be used."""
    return {header.name: header.value if header.file is None else read_header_value(header.file) for header in headers}


def read_header_value(path: Path) -> str:
    """Return the value of a header from its file; raise ValueError, without the value, if it cannot be used."""
    secret = read_secret(path)
    if not is_header_value(secret):
        raise ValueError(escape(f"the file {path} does not contain a valid token or header value"))
    return secret


def hide_values(text: str, values: Iterable[str]) -> str:
    """Remove the values of headers from a text, which may have been truncated: a server may repeat them."""
    # The credentials follow "Bearer" or "Basic"; a tenant of few characters is no secret, and occurs in words.
    secrets = {secret for value in values for secret in (value, value.rpartition(" ")[2])}
    # The longest first: a tenant may occur in a token, of which the rest would remain.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _LEAST_SECRET_LENGTH:
            text = text.replace(secret, "SECRET")
            for length in range(min(len(secret), len(text)), _LEAST_SECRET_LENGTH - 1, -1):
                text = text.replace(f"{secret[:length]}…", "SECRET…")
    return text


def read_secret(path: Path) -> str:
    """Return the content of a secret file; raise ValueError, without the secret, if it cannot be used."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_SECRET_LIMIT_BYTES + 1)
    except OSError as error:
        raise ValueError(escape(f"cannot read the file {path}: {error.strerror}")) from error
    try:
        secret = data.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        secret = ""
    if not secret or not secret.isprintable() or len(data) > _SECRET_LIMIT_BYTES:
        raise ValueError(escape(f"the file {path} must contain one line of text"))
    return secret


def _parse_header(text: str) -> Header:
    match = _HEADER.match(text)
    if not match:
        raise ValueError(f"a header is {_FORM}")
    name, value = match.groups()
    if name.lower() in _OWN:
        raise ValueError(f"slurmscope sets the header {name} itself")
    if value.startswith("@") and len(value) > 1:
        return Header(name=name, file=Path(value[1:]))
    if not is_header_value(value):
        raise ValueError(f"the value of the header {name} is not one line of printable ASCII")
    return Header(name=name, value=value)


_TOKEN_LIMIT_BYTES = 16 * 1024


class TokenFile:
    """The token in a file, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._watched = WatchedFile(self._load)

    def read(self) -> str:
        """Return the token; the file may contain the token alone or the output of ``scontrol token``."""
        return self._watched.get()

    def _load(self, watch: Watch) -> str:
        try:
            watch(self._path)
            with self._path.open("rb") as stream:
                return _parse_token(stream.read(_TOKEN_LIMIT_BYTES + 1))
        except OSError as error:
            raise ServerRefused(f"cannot read the token file {self._path}: {error.strerror}") from error
        except ValueError as error:
            raise ServerRefused(f"the token file {self._path} is invalid: {error}") from None


def _parse_token(data: bytes) -> str:
    """Return the token in a file; raise ValueError without repeating the token."""
    token = data.strip().removeprefix(b"SLURM_JWT=")
    if not token or len(data) > _TOKEN_LIMIT_BYTES:
        raise ValueError(f"it is empty or longer than {_TOKEN_LIMIT_BYTES} bytes")
    if not all(0x21 <= byte <= 0x7E for byte in token):
        raise ValueError("it must contain exactly one token")
    return token.decode("ascii")


class Certificates:
    """Make contexts from files; any thread may."""

    def __init__(self, ca_file: Path | None, cert_file: Path | None, key_file: Path | None) -> None:
        """Take the paths; nothing is read yet. Without a CA file, the system's certificate authorities are used."""
        self._files = (ca_file, cert_file, key_file)
        self._watched = WatchedFile(self._load)

    def context(self) -> SSLContext:
        """Return the context of the current files; raise ConfigError if one of them cannot be used."""
        return self._watched.get()

    def _load(self, watch: Watch) -> SSLContext:
        try:
            for path in (*self._files, *(() if self._files[0] else _system_paths())):
                if path:
                    watch(path)
        except OSError as error:
            raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error
        return tls_context(*self._files)


def _system_paths() -> tuple[str | None, ...]:
    from ssl import get_default_verify_paths  # 5 MB that an agent without TLS does not need

    paths = get_default_verify_paths()
    return paths.cafile, paths.capath
