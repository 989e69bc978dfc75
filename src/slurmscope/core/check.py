# SPDX-License-Identifier: Apache-2.0
"""Hold the result of one check of ``slurmscope doctor``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Report whether one thing works, and what to do if it does not."""

    name: str
    is_good: bool
    message: str
    advice: str = ""
    is_note: bool = False
    """It was not checked, or is no fault by itself."""

    @property
    def status(self) -> str:
        """Return ``failed``, ``note`` for what is good and yet leaves something to do or to know, or ``ok``."""
        if not self.is_good:
            return "failed"
        return "note" if self.is_note or self.advice else "ok"


ROOT_CAUSES = (
    "python", "disk", "munge", "Slurm commands", "controllers", "PID namespace", "cgroup mount", "layout",
    "capabilities", "PrivateData", "clock", "accounting storage", "node name", "settings", "archive", "accounting",
    "time series", "agents",
)  # fmt: skip
"""Checks by name, those first whose failure makes others fail."""


def find_root_cause(checks: Sequence[Check]) -> Check | None:
    """Return the failed check to begin with, since others may follow from it; None if at most one failed."""
    failed = [check for check in checks if not check.is_good]
    if len(failed) < 2:
        return None
    ranks = {name: rank for rank, name in enumerate(ROOT_CAUSES)}
    return min(failed, key=lambda check: ranks.get(check.name, len(ranks)))
