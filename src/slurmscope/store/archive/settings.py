# SPDX-License-Identifier: Apache-2.0
"""Declare where the archive of jobs is.

This needs no database package: settings are also read where there is no archive.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from slurmscope.config import parse_path
from slurmscope.settings import parse_text, setting
from slurmscope.units import parse_positive_seconds

DEFAULT_URL = "sqlite:////var/lib/slurmscope/archive.db"

_FORM = "sqlite:////PATH, mariadb://USER@HOST/DATABASE or postgresql://USER@HOST/DATABASE"
_SCHEMES = frozenset({"sqlite", "mariadb", "mysql", "postgresql"})
_OPTIONS = frozenset(
    {
        "host", "unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity",
        "sslmode", "sslrootcert", "sslcert", "sslkey",
    }
)  # fmt: skip
"""What may stand behind the question mark: where a socket is, and how TLS is spoken. Never a password."""


def parse_archive_url(given: object) -> str:
    """Read the address of a database; a path alone is a file of SQLite.

    Raises ValueError without repeating the address, for it may hold a password, which belongs into a file.
    """
    text = parse_text(given)
    if text.startswith("/"):
        return f"sqlite:///{text}"
    try:
        parts = urlsplit(text)
        password, _ = parts.password, parts.port
    except ValueError:
        raise ValueError(f"the address is not of the form {_FORM}") from None
    if password is not None:
        raise ValueError("a password does not belong into the address: name its file with --archive.password-file")
    if parts.scheme not in _SCHEMES or len(parts.path) < 2 or parts.fragment:
        raise ValueError(f"the address is not of the form {_FORM}")
    if parts.scheme == "sqlite" and (parts.netloc or parts.query or not parts.path.startswith("//")):
        raise ValueError("a file of SQLite needs its whole path: sqlite:////PATH")
    unknown = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)} - _OPTIONS
    if unknown:
        raise ValueError(f"the address may only have the options {', '.join(sorted(_OPTIONS))}")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """Where finished jobs are kept."""

    url: str = setting(
        DEFAULT_URL,
        help="Database of the archive: a path or sqlite:////PATH, mariadb://USER@HOST/DATABASE or "
        "postgresql://USER@HOST/DATABASE.",
        parse=parse_archive_url,
        metavar="URL",
    )
    password_file: Path | None = setting(
        None,
        help="File with the password of the database user; it is read again for every new connection.",
        parse=parse_path,
        metavar="FILE",
    )
    timeout: float = setting(
        10.0,
        help="Seconds after which a question to the database is given up.",
        parse=parse_positive_seconds,
        metavar="DURATION",
    )
