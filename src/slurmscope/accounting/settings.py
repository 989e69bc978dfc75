# SPDX-License-Identifier: Apache-2.0
"""Declare where job records are read: from sacct, or from Slurm's accounting database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.config import file_path
from slurmscope.core.settings import choice, parse_list, parse_text, setting
from slurmscope.slurm.cluster_names import NAME

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
ALL_CLUSTERS = "all"
_HOST = re.compile(r"[A-Za-z0-9_.%:/-]{1,255}\Z")
_ADDRESS = re.compile(
    r"(?:(?P<host>[A-Za-z0-9_.-]{1,255})|\[(?P<ipv6>[0-9A-Fa-f:.%]{2,64})\])(?::(?P<port>[0-9]{1,5}))?\Z"
)


def parse_name(given: object) -> str:
    """Parse the name of a database, a cluster or a database user; none of them needs quoting."""
    text = parse_text(given)
    if not _NAME.match(text):
        raise ValueError(f"{given!r} is not a valid name; use up to 64 letters, digits, _ and -")
    return text


def parse_clusters(given: object) -> tuple[str, ...]:
    """Parse names of clusters, in the lower case in which Slurm keeps them; ``all`` must stand alone."""
    names = tuple(dict.fromkeys(item.strip().lower() for item in parse_list(given)))
    if odd := [name for name in names if not NAME.match(name)]:
        raise ValueError(f"{odd[0]!r} is not a valid name of a cluster")
    if ALL_CLUSTERS in names and len(names) > 1:
        raise ValueError(f"{ALL_CLUSTERS} cannot be combined with names of clusters")
    return names


def parse_host(given: object) -> str:
    """Parse a host name or address, or a pattern as the database understands it (10.1.%)."""
    text = parse_text(given)
    if not _HOST.match(text):
        raise ValueError(f"{given!r} is not a host name or address")
    return text


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Where a database server listens; where ``socket`` is set, host and port are not used."""

    host: str = "localhost"
    port: int = 3306
    socket: str = ""

    def __str__(self) -> str:
        """Write the address as :func:`parse_database_address` reads it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.socket or (host if self.port == DatabaseAddress().port else f"{host}:{self.port}")


def parse_database_address(given: object) -> DatabaseAddress:
    """Parse a host name or address, perhaps with a port, or the path of a unix socket."""
    text = parse_text(given)
    if text.startswith("/"):
        return DatabaseAddress(socket=text)
    found = _ADDRESS.match(text)
    port = int(found["port"] or DatabaseAddress().port) if found else 0
    if not found or not 0 < port < 65536:
        raise ValueError(f"{given!r} is not of the form HOST[:PORT] or /PATH")
    return DatabaseAddress(found["host"] or found["ipv6"], port)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingSettings:
    """Where job records are read."""

    source: str = choice(
        "auto",
        ("auto", "sacct", "database"),
        "Source of job records: sacct, database (Slurm's accounting database), or auto (database if "
        "accounting.password-file is set, otherwise sacct).",
    )
    clusters: tuple[str, ...] = setting(
        (),
        "Cluster whose jobs are read, or all for every cluster of slurmdbd; repeatable. If it is not set, sacct "
        "reads the cluster of this host, and the database every cluster with views.",
        parse=parse_clusters,
        metavar="NAME|all",
    )
    host: DatabaseAddress = setting(
        DatabaseAddress(),
        "Host of Slurm's accounting database, with its port unless that is 3306; or the path of its Unix socket.",
        parse=parse_database_address,
        metavar="HOST[:PORT]|PATH",
    )
    database: str = setting("slurm_acct_db", "Name of Slurm's accounting database.", parse=parse_name, metavar="NAME")
    user: str = setting(
        "slurmscope", "Database user, created by slurmscope database grant.", parse=parse_name, metavar="NAME"
    )
    password_file: Path | None = file_path(None, "File with the password of accounting.user.")
    tls_ca_file: Path | None = file_path(
        None, "File with the CA certificates to verify the database server; enables TLS."
    )
    timeout: float = 8.0
    """Timeout for queries to the accounting database."""

    @property
    def uses_database(self) -> bool:
        """Return whether job records are read from the database instead of sacct."""
        return self.source == "database" or (self.source == "auto" and self.password_file is not None)
