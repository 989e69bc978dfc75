# SPDX-License-Identifier: Apache-2.0
"""Reach the lab's accounting database, as its administrator and as the user that slurmscope makes."""

from __future__ import annotations

from pathlib import Path

from lab import SlurmLab
from slurmscope.accounting.grant import GrantSettings
from slurmscope.accounting.server import ResultRow, open_session
from slurmscope.accounting.settings import AccountingSettings, DatabaseAddress

ADMIN = GrantSettings()


def socket_address(lab: SlurmLab) -> DatabaseAddress:
    return DatabaseAddress(socket=str(lab.layout.database_socket))


def reader_settings(
    lab: SlurmLab, password_file: Path, *, database: str = "slurm_acct_db", timeout: float = 20.0
) -> AccountingSettings:
    """Return the settings of who reads; every test has a user of its own."""
    return AccountingSettings(
        host=socket_address(lab),
        database=database,
        user=f"reader_{abs(hash(password_file)) % 10**9}",
        password_file=password_file,
        timeout=timeout,
    )


def administer(lab: SlurmLab, *statements: str) -> tuple[ResultRow, ...]:
    """Run statements as root, whom the server knows by its socket; return the rows of the last one."""
    rows: tuple[ResultRow, ...] = ()
    with open_session(AccountingSettings(host=socket_address(lab), user="root", timeout=20.0)) as session:
        for statement in statements:
            rows = session.query(statement)
    return rows
