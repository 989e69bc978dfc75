# SPDX-License-Identifier: Apache-2.0
"""Define the colours of charts: distinguishable for colour-blind readers, with a contrast of at least 3:1."""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.model.finding import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """Hold the colours for one background; five for lines, which dash patterns extend to fifteen."""

    paper: str
    ink: str
    grid: str
    reference: str
    lines: tuple[str, str, str, str, str]
    critical: str
    warning: str
    info: str
    fine: str

    def of(self, severity: Severity | None) -> str:
        """Return the colour of a severity, or of no finding."""
        colors = {Severity.CRITICAL: self.critical, Severity.WARNING: self.warning, Severity.INFO: self.info}
        return colors[severity] if severity else self.fine


LIGHT = Palette(
    paper="#ffffff",
    ink="#24292f",
    grid="#d8dee4",
    reference="#8a3b00",
    lines=("#0067a3", "#c04f00", "#00775a", "#a03a83", "#665c00"),
    critical="#b3261e",
    warning="#8f5200",
    info="#0067a3",
    fine="#00775a",
)

DARK = Palette(
    paper="#14181d",
    ink="#e6e9ed",
    grid="#39424d",
    reference="#f3b27a",
    lines=("#62b8ee", "#f0a040", "#3cc79c", "#e79aca", "#e6d860"),
    critical="#ff9b93",
    warning="#f2b866",
    info="#62b8ee",
    fine="#3cc79c",
)
