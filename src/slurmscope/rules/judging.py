# SPDX-License-Identifier: Apache-2.0
"""Hold all rules, set their thresholds, and let them judge a job."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    """Return what all rules find in a job, worst first; ``thresholds`` are set by ``rule.threshold``."""
    values = resolve_thresholds(thresholds or {})
    matches = [(rule, match) for rule in RULES if (match := rule.check(summary, values[rule.id])) is not None]
    replaced = {other for rule, _ in matches for other in rule.replaces}
    findings = [_finding(rule, match, values[rule.id]) for rule, match in matches if rule.id not in replaced]
    return tuple(sorted(_agreeing(findings), key=lambda finding: finding.severity.rank))


def resolve_thresholds(given: Mapping[str, object]) -> Mapping[str, Mapping[str, float]]:
    """Return the thresholds of every rule; a wrong name or number is a ConfigError that tells all of them at once."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """Describe one rule for a table in the documentation."""

    id: str
    title: str
    subject: str
    severity: str
    needs: str
    thresholds: tuple[str, ...]
    advice: str


def rules_table() -> list[RuleRow]:
    """Describe every rule."""
    return [
        RuleRow(
            id=rule.id,
            title=rule.title,
            subject=rule.subject.value,
            severity=rule.severity.value,
            needs=rule.needs,
            thresholds=tuple(
                f"`{rule.id}.{threshold.name}` = {threshold.default:.12g} ({threshold.unit}): {threshold.help}"
                for threshold in rule.thresholds
            ),
            advice=rule.advice,
        )
        for rule in RULES
    ]


def _agreeing(findings: list[Finding]) -> list[Finding]:
    """Take away lines for memory per core where another finding tells fewer cores, and the memory to go with them.

    They are reckoned with the cores that the job had: following both would leave it with too little.
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
        advice=rule.advice,
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
