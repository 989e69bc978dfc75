# SPDX-License-Identifier: Apache-2.0
"""Hold the corrected header of a job: what to change in the next submission, why, and what that is worth."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRun:
    """Hold what is known of another run of the same user, name and size; memory is per node, None is unknown."""

    state: str
    start_seconds: int
    run_seconds: float
    limit_seconds: float | None = None
    requested_bytes: float | None = None
    peak_bytes: float | None = None
    mean_cores: float | None = None
    mean_gpus: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChange:
    """Hold one option of sbatch; ``submitted`` is empty where the job did not request it."""

    option: str
    """The long name, without dashes."""
    submitted: str
    suggested: str
    reason: str

    @property
    def line(self) -> str:
        """Return the line for the job script."""
        return f"#SBATCH --{self.option}={self.suggested}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedResources:
    """Hold what a run like this one would have left to others; None where the request does not get smaller."""

    core_seconds: float | None = None
    gpu_seconds: float | None = None
    memory_byte_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedWait:
    """Compare how long jobs of the submitted and of the suggested size waited, by their medians."""

    submitted_seconds: float
    suggested_seconds: float
    jobs: int
    """Jobs behind the figure with fewer of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedSize:
    """Hold what a job requests in all; None is unknown, and as a time limit unlimited."""

    nodes: int
    cpus: int
    gpus: int
    memory_bytes: float | None
    limit_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resubmission:
    """Hold one header merged from all findings and from other runs of the same name."""

    changes: tuple[OptionChange, ...]
    other_runs: int
    """Runs of the same user, name and size that were considered."""
    submitted: RequestedSize
    suggested: RequestedSize
    freed: FreedResources = field(default_factory=FreedResources)
    wait: ExpectedWait | None = None
    """None where too few jobs of either size are known."""
    note: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the lines for the job script."""
        return tuple(change.line for change in self.changes)

    @property
    def diff(self) -> tuple[str, ...]:
        """Return the lines as a diff against what was submitted."""
        removed = (f"-#SBATCH --{change.option}={change.submitted}" for change in self.changes if change.submitted)
        return (*removed, *(f"+{line}" for line in self.lines))
