# SPDX-License-Identifier: Apache-2.0
"""Define where the command ``slurmscope report`` reads jobs from: this host, or a portal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from slurmscope.model.archive import JobFilter, JobRow
from slurmscope.model.job_script import JobScript
from slurmscope.model.report import JobReport


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """Hold rows of jobs.

    ``is_cut`` says that there are more than were requested, and ``problem`` why some may be missing.
    """

    rows: tuple[JobRow, ...]
    is_cut: bool = False
    problem: str = ""


class JobSource(Protocol):
    """Read jobs that the user may see; raises ``SlurmscopeError``."""

    def user(self) -> str:
        """Return the name of the user whose jobs are their own."""
        ...

    def clusters(self) -> tuple[str, ...]:
        """Return the clusters of the archive, of which links to the portal name one; none if they are unknown."""
        ...

    def report(self, shown_id: str, cluster: str = "") -> JobReport | None:
        """Return the newest run of a job; None when there is no such job.

        Raises AmbiguousName without a cluster if several have a job of this ID.
        """
        ...

    def list_jobs(self, wanted: JobFilter, limit: int) -> JobList:
        """Return the newest run of each matching job, newest submission first."""
        ...

    def read_array(self, array_id: int, cluster: str = "") -> JobList:
        """Return the newest run of each task of an array, in their order; none if this is no array."""
        ...

    def array_reports(self, array_id: int, cluster: str = "") -> tuple[JobReport, ...]:
        """Return the reports of the tasks of an array."""
        ...

    def read_script(self, report: JobReport, cluster: str = "") -> JobScript | None:
        """Return the script of a job that Slurm stored; None if there is none, or the user may not see it."""
        ...
