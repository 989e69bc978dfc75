# SPDX-License-Identifier: Apache-2.0
"""Open the accounting that the settings name."""

from __future__ import annotations

from slurmscope.model.job_record import JobAccounting
from slurmscope.sources.accounting_settings import AccountingSettings
from slurmscope.sources.sacct_jobs import Run, SacctAccounting


def open_accounting(settings: AccountingSettings, run: Run) -> JobAccounting:
    """Return what answers questions about jobs; ``run`` runs a command of Slurm, as ``SlurmCommands.run`` does.

    Nothing is asked yet, and there is nothing to close.
    """
    if not settings.uses_database:
        return SacctAccounting(run)
    from slurmscope.sources.accounting_database import DatabaseAccounting

    return DatabaseAccounting(settings)
