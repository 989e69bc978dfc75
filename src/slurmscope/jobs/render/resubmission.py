# SPDX-License-Identifier: Apache-2.0
"""Describe the header for the next run of a job: lines, a diff, and sentences on why and what it is worth."""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.core.units import HOUR_SECONDS, format_bytes, format_count, format_seconds, format_some
from slurmscope.jobs.render.formatting import show
from slurmscope.jobs.report import ExpectedWait, FreedResources, JobReport, OptionChange, Resubmission

TITLE = "Header for the next run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResubmissionText:
    """The header as every rendering shows it."""

    title: str
    lines: tuple[str, ...]
    diff: tuple[str, ...]
    worth: str
    """What the change is worth; empty where that is unknown."""
    reasons: tuple[str, ...]
    basis: str
    note: str

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return everything below the lines."""
        return tuple(filter(None, (self.worth, *self.reasons, self.basis, self.note)))


def describe_resubmission(report: JobReport) -> ResubmissionText | None:
    """Return the header of a report, safe to show; None where there is nothing to change."""
    made = report.resubmission
    if made is None or not made.changes:
        return None
    return ResubmissionText(
        title=TITLE,
        lines=tuple(show(line) for line in made.lines),
        diff=tuple(show(line) for line in made.diff),
        worth=_worth(made),
        reasons=tuple(_reason(change) for change in made.changes),
        basis=_basis(made),
        note=show(made.note),
    )


def _worth(made: Resubmission) -> str:
    parts = [*_wait(made.wait), *_freed(made.freed)]
    text = ", ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if parts else ""


def _wait(wait: ExpectedWait | None) -> list[str]:
    if wait is None:
        return []
    before, after = format_seconds(wait.submitted_seconds), format_seconds(wait.suggested_seconds)
    return [f"waits about {after} instead of {before}" if before != after else f"waits about {after}, as before"]


def _freed(freed: FreedResources) -> list[str]:
    amounts = (
        (freed.core_seconds, "core-hour"),
        (freed.gpu_seconds, "GPU-hour"),
    )
    parts = [format_some(_rounded(seconds / HOUR_SECONDS), unit) for seconds, unit in amounts if seconds]
    if freed.memory_byte_seconds:
        parts.append(f"{format_bytes(freed.memory_byte_seconds / HOUR_SECONDS)}-hours of memory")
    listing = " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
    return [f"frees {listing} per run"] if parts else []


def _rounded(amount: float) -> float:
    """Round to what :func:`format_count` shows, so that 1.0 is one hour."""
    return float(format_count(amount).replace(",", ""))


def _reason(change: OptionChange) -> str:
    return f"--{show(change.option)}: {show(change.reason.rstrip('.'))}."


def _basis(made: Resubmission) -> str:
    if not made.other_runs:
        return "Based on this run alone: the next one may need more if its input is larger."
    runs = format_some(made.other_runs, "other run")
    return f"Based on this run and {runs} with the same name and size."
