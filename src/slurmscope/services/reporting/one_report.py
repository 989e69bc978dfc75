# SPDX-License-Identifier: Apache-2.0
"""Find the report of one job for whoever may read accounting and the archive."""

from __future__ import annotations

from collections.abc import Mapping

from slurmscope.config import Config
from slurmscope.errors import SourceError
from slurmscope.model.report import JobReport
from slurmscope.model.viewer import EVERYTHING
from slurmscope.services.reporting.opening import open_reporting


def read_report(config: Config, environment: Mapping[str, str], job_id: str) -> JobReport | None:
    """Return the newest run of a job; None when there is no such job.

    Raises SourceError or ArchiveError when somebody who may know could not be asked.
    """
    with open_reporting(config, environment) as reporting:
        report = reporting.desk.report(EVERYTHING, job_id)
        troubles = reporting.troubles.sentences()
    if report is None and troubles:
        raise SourceError(f"nothing is known about job {job_id}: {'; '.join(troubles)}")
    return report
