# SPDX-License-Identifier: Apache-2.0
"""Define a rule: data with named thresholds, and one pure function that compares a job with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurmscope.model.finding import MIN_JUDGED_SECONDS, Severity, Subject
from slurmscope.model.summary import JobSummary

Thresholds = Mapping[str, float]
"""Thresholds of one rule, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Declare one number that a site may set; ``unit`` is one of ratio, seconds, bytes, count, per second."""

    name: str
    unit: str
    default: float
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Hold what a rule found in a job: sentences with the job's numbers, and a line for its script that fixes it."""

    explanation: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    suggestion: str = ""
    severity: Severity | None = None
    """Severity of this match, where it differs from that of the rule."""
    advice: str = ""
    """Advice for this match, where that of the rule does not apply."""
    without: JobSummary | None = None
    """The job without this problem, to find out what the rule explains in this job; None: all that it lists."""


RuleCheck = Callable[[JobSummary, Thresholds], Match | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Check jobs for one problem; ``check`` returns None without a finding, or when what it needs was not measured.

    ``needs`` describes what must be measured. ``explains`` lists rules whose finding may follow from this one: it does
    unless that rule also finds something in ``Match.without``. ``replaces`` lists rules whose finding is dropped beside
    this one, because this one includes it.
    """

    id: str
    title: str
    subject: Subject
    severity: Severity
    needs: str
    advice: str
    check: RuleCheck
    thresholds: tuple[Threshold, ...] = ()
    explains: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


def min_run(default: float = MIN_JUDGED_SECONDS) -> Threshold:
    """Declare the shortest run time to check: shorter jobs mostly start up and wind down."""
    return Threshold(name="min_run_seconds", unit="seconds", default=default, help="Ignore jobs that ran for less.")
