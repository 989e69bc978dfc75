# SPDX-License-Identifier: Apache-2.0
"""Declare where job records are read: from sacct, or from Slurm's accounting database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.config import file_path
from slurmscope.core.settings import choice, duration, parse_count, parse_list, parse_text, setting
from slurmscope.slurm.cluster_names import NAME

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
ALL_CLUSTERS = "all"
_HOST = re.compile(r"[A-Za-z0-9_.%:/-]{1,255}\Z")


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


def parse_port(given: object) -> int:
    """Parse a port number."""
    port = parse_count(given)
    if not 0 < port < 65536:
        raise ValueError(f"{given!r} is not a port number from 1 to 65535")
    return port


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
    host: str = setting("localhost", "Host of Slurm's accounting database.", parse=parse_host, metavar="HOST")
    port: int = setting(3306, "Port of Slurm's accounting database.", parse=parse_port, metavar="PORT")
    socket: Path | None = file_path(None, "Unix socket of Slurm's accounting database; overrides host and port.")
    database: str = setting("slurm_acct_db", "Name of Slurm's accounting database.", parse=parse_name, metavar="NAME")
    user: str = setting(
        "slurmscope", "Database user, created by slurmscope database grant.", parse=parse_name, metavar="NAME"
    )
    password_file: Path | None = file_path(None, "File with the password of accounting.user.")
    tls_ca_file: Path | None = file_path(
        None, "File with the CA certificates to verify the database server; enables TLS."
    )
    timeout: float = duration(8.0, "Timeout for queries to the accounting database.")

    @property
    def uses_database(self) -> bool:
        """Return whether job records are read from the database instead of sacct."""
        return self.source == "database" or (self.source == "auto" and self.password_file is not None)
