# SPDX-License-Identifier: Apache-2.0
"""Declare where records of jobs are read: from sacct, or from Slurm's accounting database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from slurmscope.config import parse_path
from slurmscope.settings import one_of, parse_count, parse_text, setting
from slurmscope.units import parse_positive_seconds

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_HOST = re.compile(r"[A-Za-z0-9_.%:/-]{1,255}\Z")


def parse_name(given: object) -> str:
    """Read the name of a database, a cluster or a user of the database: nothing in it needs quotes."""
    text = parse_text(given)
    if not _NAME.match(text):
        raise ValueError(f"{given!r} is not a name of up to 64 letters, digits, _ and -")
    return text


def parse_host(given: object) -> str:
    """Read the name or address of a host, or a pattern of them as the database knows it (10.1.%)."""
    text = parse_text(given)
    if not _HOST.match(text):
        raise ValueError(f"{given!r} is not the name or address of a host")
    return text


def parse_port(given: object) -> int:
    """Read the number of a port."""
    port = parse_count(given)
    if not 0 < port < 65536:
        raise ValueError(f"{given!r} is not a port")
    return port


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingSettings:
    """Where records of jobs are read."""

    source: str = setting(
        "auto",
        help="Where records of jobs are read: from sacct, from Slurm's accounting database, or (auto) from the "
        "database when accounting.password-file is set.",
        parse=one_of("auto", "sacct", "database"),
        metavar="auto|sacct|database",
    )
    host: str = setting("localhost", help="Host of Slurm's accounting database.", parse=parse_host, metavar="HOST")
    port: int = setting(3306, help="Port of Slurm's accounting database.", parse=parse_port, metavar="PORT")
    socket: Path | None = setting(
        None, help="Unix socket of Slurm's accounting database; goes before host and port.", parse=parse_path,
        metavar="FILE",
    )  # fmt: skip
    database: str = setting(
        "slurm_acct_db", help="Name of Slurm's accounting database.", parse=parse_name, metavar="NAME"
    )
    user: str = setting(
        "slurmscope", help="User of the database, made by slurmscope database grant.", parse=parse_name, metavar="NAME"
    )
    password_file: Path | None = setting(
        None, help="File with the password of that user.", parse=parse_path, metavar="FILE"
    )
    tls_ca_file: Path | None = setting(
        None,
        help="File with the certificates that the database's one must be signed by; with it, nothing is sent in clear.",
        parse=parse_path,
        metavar="FILE",
    )
    timeout: float = setting(
        8.0,
        help="Seconds after which a question to the database is given up.",
        parse=parse_positive_seconds,
        metavar="DURATION",
    )

    @property
    def uses_database(self) -> bool:
        """Tell whether the database is asked, and not sacct."""
        return self.source == "database" or (self.source == "auto" and self.password_file is not None)
