# SPDX-License-Identifier: Apache-2.0
"""Hold what became of the advice that a run got: whether the next run followed it, and what that saved."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from slurmscope.model.viewer import Viewer


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """Hold what a run requested and how it ended; None is unknown, and as a time limit unlimited."""

    shown_id: str
    state: str
    submit_seconds: int
    run_seconds: float
    nodes: int
    cpus: int | None
    gpus: int
    memory_bytes: float | None
    time_limit_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """Hold what a run reserved less than the advised one; None where the advice is not about it, or it is unknown.

    Negative where the run reserved more, because it took longer.
    """

    core_seconds: float | None = None
    gpu_seconds: float | None = None
    memory_byte_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceOutcome:
    """Hold one finding of an earlier run, and what the later run of the same name made of it."""

    rule: str
    suggestion: str
    earlier: ComparedRun
    later: ComparedRun
    is_followed: bool | None
    """None where the suggestion cannot be compared with a request."""
    is_gone: bool | None
    """Whether the later run no longer has the finding; None where it was too short to judge."""
    is_first: bool
    """False for further runs after the one that followed the advice."""
    savings: Savings


class AdviceGroup(enum.StrEnum):
    """What totals of advice are grouped by."""

    RULE = "rule"
    USER = "user"
    MONTH = "month"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceTotal:
    """Hold totals of outcomes; ``key`` is a rule, a user, or a month as YYYY-MM. A whole array counts once."""

    key: str
    advised: int
    """Runs with a finding that were followed by another run of the same name."""
    followed: int
    ignored: int
    gone: int
    completed: int
    """Advised runs that had failed, and whose next run followed the advice and completed."""
    saving_runs: int
    """Runs with a smaller request because of the advice, further runs and all tasks of arrays included."""
    saved_core_seconds: float
    saved_gpu_seconds: float
    saved_memory_byte_seconds: float

    @property
    def followed_ratio(self) -> float | None:
        """Return the followed share of the suggestions that could be compared."""
        compared = self.followed + self.ignored
        return self.followed / compared if compared else None


class AdviceReader:
    """Read outcomes of advice; raises ``ArchiveError``. Without an archive there are none."""

    def find_outcomes(
        self, viewer: Viewer, cluster: str, job_id: int, submit_seconds: int
    ) -> tuple[AdviceOutcome, ...]:
        """Return the outcomes in which this run is the earlier or the later one."""
        return ()

    def total_outcomes(
        self,
        viewer: Viewer,
        by: AdviceGroup,
        *,
        since_seconds: int,
        user: str = "",
        cluster: str = "",
        limit: int = 100,
    ) -> tuple[AdviceTotal, ...]:
        """Return totals, largest saving of core time first; months in order."""
        return ()
