# SPDX-License-Identifier: Apache-2.0
"""Open the accounting that the settings name."""

from __future__ import annotations

from slurmscope.model.job_record import JobAccounting
from slurmscope.sources.accounting.sacct_jobs import RunCommand, SacctAccounting
from slurmscope.sources.accounting.settings import AccountingSettings


def open_accounting(settings: AccountingSettings, run: RunCommand) -> JobAccounting:
    """Return the configured source of job records; ``run`` runs a Slurm command, as ``SlurmCommands.run`` does.

    No query is sent yet, and there is nothing to close.
    """
    if not settings.uses_database:
        return SacctAccounting(run)
    from slurmscope.sources.accounting.database import DatabaseAccounting

    return DatabaseAccounting(settings)
