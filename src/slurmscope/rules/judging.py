# SPDX-License-Identifier: Apache-2.0
"""Collect all rules, resolve their thresholds, and check a job with them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace

from slurmscope.errors import ConfigError
from slurmscope.model.finding import Finding
from slurmscope.model.summary import JobSummary
from slurmscope.rules import cpu, files, gpu, memory, nodes, threads, time
from slurmscope.rules.rule import Match, Rule

RULES: tuple[Rule, ...] = (
    *memory.RULES, *gpu.RULES, *time.RULES, *nodes.RULES, *cpu.RULES, *threads.RULES, *files.RULES,
)  # fmt: skip
"""Every rule; among findings of the same severity this is their order."""


def judge(summary: JobSummary, thresholds: Mapping[str, float] | None = None) -> tuple[Finding, ...]:
    """Return what all rules find in a job, worst first; keys of ``thresholds`` are ``rule.threshold``."""
    values = resolve_thresholds(thresholds or {})
    matches = [(rule, match) for rule in RULES if (match := rule.check(summary, values[rule.id])) is not None]
    replaced = {other for rule, _ in matches for other in rule.replaces}
    findings = [_finding(rule, match, values[rule.id]) for rule, match in matches if rule.id not in replaced]
    return tuple(sorted(_agreeing(findings), key=lambda finding: finding.severity.rank))


def resolve_thresholds(given: Mapping[str, object]) -> Mapping[str, Mapping[str, float]]:
    """Return the thresholds of every rule; raise a ConfigError that lists every wrong name or number."""
    if not given:
        return _DEFAULTS
    problems: list[str] = []
    values = {rule: dict(defaults) for rule, defaults in _DEFAULTS.items()}
    for key, value in given.items():
        rule, _, name = key.partition(".")
        if name not in values.get(rule, ()):
            problems.append(f"unknown threshold {key!r}{_hint(key)}")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            problems.append(f"threshold {key}: {value!r} is not a number of 0 or more")
        else:
            values[rule][name] = float(value)
    if problems:
        raise ConfigError("\n".join(problems))
    return values


def _agreeing(findings: list[Finding]) -> list[Finding]:
    """Drop lines for memory per core where another finding suggests fewer cores, with the memory to go with them.

    They are computed from the cores that the job had: following both would leave it with too little.
    """
    if not any("enough_cores" in finding.numbers for finding in findings):
        return findings
    per_core = "#SBATCH --mem-per-cpu"
    return [replace(each, suggestion="") if each.suggestion.startswith(per_core) else each for each in findings]


def _finding(rule: Rule, match: Match, values: Mapping[str, float]) -> Finding:
    return Finding(
        rule=rule.id,
        severity=match.severity or rule.severity,
        subject=rule.subject,
        title=rule.title,
        explanation=match.explanation,
        advice=match.advice or rule.advice,
        suggestion=match.suggestion,
        numbers={**values, **match.numbers},
    )


def _hint(key: str) -> str:
    known = [f"{rule}.{name}" for rule, values in _DEFAULTS.items() for name in values]
    nearest = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


_DEFAULTS: Mapping[str, Mapping[str, float]] = {
    rule.id: {threshold.name: threshold.default for threshold in rule.thresholds} for rule in RULES
}
