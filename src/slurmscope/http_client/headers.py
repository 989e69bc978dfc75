# SPDX-License-Identifier: Apache-2.0
"""Parse and read further HTTP headers of requests, such as the tenant of Mimir; their values may be secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from slurmscope.log import escape
from slurmscope.settings import parse_list

_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]{1,128})=(.*)\Z")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?\Z")
_OWN = frozenset({"accept", "connection", "content-length", "content-type", "host", "transfer-encoding", "user-agent"})
_SECRET_LIMIT_BYTES = 16 * 1024
_LEAST_SECRET_LENGTH = 4
_FORM = "not of the form NAME=VALUE or NAME=@FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Hold the name of a header, and its value or the file that contains it."""

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
    """Return whether a text can be the value of a header."""
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
