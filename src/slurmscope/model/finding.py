# SPDX-License-Identifier: Apache-2.0
"""Hold what a rule found in a job."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MIN_JUDGED_SECONDS = 300.0
"""Run time from which on most rules check a job: shorter ones mostly start up and wind down."""


class Severity(enum.StrEnum):
    """How severe a finding is, worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Return 0 for the worst."""
        return tuple(Severity).index(self)


class Subject(enum.StrEnum):
    """What a finding is about; it is shown at the charts of that subject."""

    CPU = "cpu"
    MEMORY = "memory"
    GPU = "gpu"
    TIME = "time"
    FILES = "files"
    THREADS = "threads"
    NODES = "nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Hold one problem of a job, with advice."""

    rule: str
    severity: Severity
    subject: Subject
    title: str
    """A few words: "Most cores were idle"."""
    explanation: str
    """One or two sentences with the job's own numbers."""
    advice: str
    suggestion: str = ""
    """A line for the job script that fixes it, such as ``#SBATCH --mem=4G``."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The compared values and thresholds by name, units in the names."""
    consequences: tuple[Finding, ...] = ()
    """Findings that this one explains: without advice, and not counted."""

    @property
    def with_consequences(self) -> tuple[Finding, ...]:
        """Return this finding and what it explains."""
        return (self, *self.consequences)


def worst_severity(findings: Iterable[Finding]) -> Severity | None:
    """Return the severity of the worst finding; None without findings."""
    return min((finding.severity for finding in findings), key=lambda severity: severity.rank, default=None)
