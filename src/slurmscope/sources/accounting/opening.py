# SPDX-License-Identifier: Apache-2.0
"""Open the accounting that the settings name."""

from __future__ import annotations

from slurmscope.model.job_record import JobAccounting
from slurmscope.sources.accounting.sacct_jobs import SacctAccounting
from slurmscope.sources.accounting.settings import AccountingSettings
from slurmscope.sources.slurm.commands import RunCommand
from slurmscope.sources.slurm.job_visibility import SLURMDBD, JobVisibility


def open_accounting(settings: AccountingSettings, run: RunCommand, *, must_see_all: bool = False) -> JobAccounting:
    """Return the configured source of job records; ``run`` runs a Slurm command, as ``SlurmCommands.run`` does.

    With ``must_see_all``, reads raise CommandRefused if sacct hides jobs of others from this user.
    No query is sent yet, and there is nothing to close.
    """
    if not settings.uses_database:
        visibility = JobVisibility(run, SLURMDBD) if must_see_all else None
        return SacctAccounting(run, visibility.require if visibility else None, clusters=settings.clusters)
    from slurmscope.sources.accounting.database import DatabaseAccounting

    return DatabaseAccounting(settings)
