# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of the job archive.

This module needs no database package, because settings are also read where there is no archive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from slurmscope.core.config import file_path
from slurmscope.core.settings import parse_text, setting

DEFAULT_URL = "sqlite:////var/lib/slurmscope/archive.db"

_FORM = "sqlite:////PATH, mariadb://USER@HOST/DATABASE or postgresql://USER@HOST/DATABASE"
_SCHEMES = frozenset({"sqlite", "mariadb", "mysql", "postgresql"})
_OPTIONS = frozenset(
    {
        "host", "unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity",
        "sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs",
    }
)  # fmt: skip
"""Allowed query parameters of the URL: hosts, socket and TLS options, never a password."""

_SEVERAL_HOSTS = re.compile(
    r"(?P<before>postgresql://(?:[^/@?#]*@)?)(?P<hosts>[A-Za-z0-9._:-]+(?:,[A-Za-z0-9._:-]+)+)"
    r"/(?P<database>[^?#]*)(?:\?(?P<options>[^#]*))?"
)


def parse_archive_url(given: object) -> str:
    """Parse the URL of a database; a plain path is an SQLite file.

    Raises ValueError without repeating the URL, because it may contain a password.
    """
    text = parse_text(given)
    if text.startswith("/"):
        return f"sqlite:///{text}"
    text = _name_hosts(text)
    try:
        parts = urlsplit(text)
        password, _ = parts.password, parts.port
    except ValueError:
        raise ValueError(f"the URL is not of the form {_FORM}") from None
    if password is not None:
        raise ValueError(
            "the URL must not contain a password; put it in a file and name that with --archive.password-file"
        )
    if parts.scheme not in _SCHEMES or len(parts.path) < 2 or parts.fragment:
        raise ValueError(f"the URL is not of the form {_FORM}")
    if parts.scheme == "sqlite" and (parts.netloc or parts.query or not parts.path.startswith("//")):
        raise ValueError("an SQLite file needs an absolute path: sqlite:////PATH")
    unknown = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)} - _OPTIONS
    if unknown:
        raise ValueError(f"the URL has an unknown option; known options are {', '.join(sorted(_OPTIONS))}")
    return text


def _name_hosts(url: str) -> str:
    """Write several hosts, as libpq accepts them, in the form of SQLAlchemy; the one that accepts writes is used."""
    found = _SEVERAL_HOSTS.fullmatch(url)
    if found:
        hosts = "&".join(f"host={host}" for host in found["hosts"].split(","))
        url = f"{found['before']}/{found['database']}?{hosts}" + (f"&{found['options']}" if found["options"] else "")
    if url.startswith("postgresql:") and url.count("host=") > 1 and "target_session_attrs=" not in url:
        url += "&target_session_attrs=read-write"
    return url


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """Where ended jobs are kept."""

    url: str = setting(
        DEFAULT_URL,
        "Job archive: SQLite file, mariadb://USER@HOST/NAME or postgresql://USER@HOST/NAME.",
        parse=parse_archive_url,
        metavar="URL",
    )
    password_file: Path | None = file_path(
        None, "File with the password of the database user; it is read for every new connection."
    )
    timeout: float = 10.0
    """Timeout for queries to the archive database."""
