# SPDX-License-Identifier: Apache-2.0
"""Say what a rule is: data with named thresholds, and one pure function that compares a job with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurmscope.model.finding import Severity, Subject
from slurmscope.model.summary import JobSummary

Thresholds = Mapping[str, float]
"""Thresholds of one rule, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Name one number that a site may set; ``unit`` is one of ratio, seconds, bytes, count, per second."""

    name: str
    unit: str
    default: float
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Say what was found in a job: sentences with its own numbers, and the line of its script that would mend it."""

    explanation: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    suggestion: str = ""
    severity: Severity | None = None
    """Where the numbers make it better or worse than the rule is as a rule."""


RuleCheck = Callable[[JobSummary, Thresholds], Match | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Judge jobs by one thing; ``check`` returns None when all is well, or when what it needs was not measured.

    ``needs`` says in words what must be known. ``replaces`` names rules that would say the same thing less well.
    """

    id: str
    title: str
    subject: Subject
    severity: Severity
    needs: str
    advice: str
    check: RuleCheck
    thresholds: tuple[Threshold, ...] = ()
    replaces: tuple[str, ...] = ()


def min_run(default: float = 300.0) -> Threshold:
    """Declare from which run time on jobs are judged: shorter ones mostly start up and wind down."""
    return Threshold(
        name="min_run_seconds", unit="seconds", default=default, help="Jobs that ran for less are not judged."
    )
