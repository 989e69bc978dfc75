# SPDX-License-Identifier: Apache-2.0
"""Check a job with all rules, fold findings that have one cause, and compute what the job wasted.

All time of a job that failed or reached its time limit is lost to that, however busy it was. Of other jobs, the idle
time is lost, as far as it was measured, and cores that no other job could use because the job requested memory that it
did not need.
"""

from __future__ import annotations

import difflib
import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurmscope.core.errors import ConfigError
from slurmscope.jobs.header_options import sets_size
from slurmscope.jobs.rule import (
    MIN_RUN,
    SETTLED_STATES,
    Finding,
    Match,
    Rule,
    Severity,
    memory_peak_bytes,
    worst_severity,
)
from slurmscope.jobs.rules import cpu, files, gpu, gpu_work, memory, nodes, stuck, threads, time
from slurmscope.jobs.summary import JobSummary

FAILED_STATES = frozenset({"FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REQUEUED"})
"""Ended before their end; whether the job, its node or the scheduler is at fault. A requeued run begins anew."""
TIMEOUT_STATES = frozenset({"TIMEOUT", "DEADLINE"})
LOST_STATES = FAILED_STATES | TIMEOUT_STATES


class LossCause(enum.StrEnum):
    """Why time was lost."""

    FAILED = "failed"
    TIMEOUT = "timeout"
    IDLE = "idle"
    MEMORY = "memory"

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    LossCause.FAILED: "Failed jobs",
    LossCause.TIMEOUT: "Time limit reached",
    LossCause.IDLE: "Idle cores and GPUs",
    LossCause.MEMORY: "Cores blocked by unused memory",
}


def find_state_cause(state: str) -> LossCause | None:
    """Return why all time of a job in this state is lost; None if it is not."""
    if state in FAILED_STATES:
        return LossCause.FAILED
    return LossCause.TIMEOUT if state in TIMEOUT_STATES else None


def blocked_core_seconds(summary: JobSummary) -> float | None:
    """Return the time of cores that the job blocked for others by memory that it requested and did not need.

    That is its share of a node's memory, as cores, beyond the cores that it had and beyond those that its needed memory
    stands for. None where the size of the nodes or the needed memory is unknown, or the job did not end by itself.
    """
    requested, peak = summary.memory.requested_bytes, memory_peak_bytes(summary.memory)
    if not summary.node_cpus or not summary.node_memory_bytes or requested is None or peak is None:
        return None
    if summary.record.state != "COMPLETED" or summary.record.cpus is None:
        return None
    cores_per_byte = summary.node_cpus / summary.node_memory_bytes
    held = max(float(summary.record.cpus), peak * cores_per_byte)
    return max(0.0, requested * cores_per_byte - held) * summary.run_seconds


def fold(findings: Sequence[Finding], causes: Mapping[str, str]) -> list[Finding]:
    """Return the findings without a cause, each with all that follows from it; ``causes`` is by rule.

    The advice is that of the cause: what follows from it has none. The cause of a warning is at least a warning;
    whether it is critical, its own rule decides.
    """
    folded = []
    for finding in findings:
        if finding.rule in causes:
            continue
        consequences = tuple(
            replace(other, advice="", suggestion="")
            for other in findings
            if other.rule in causes and find_root(other.rule, causes) == finding.rule
        )
        is_lifted = finding.severity is Severity.INFO and worst_severity(consequences) not in {None, Severity.INFO}
        severity = Severity.WARNING if is_lifted else finding.severity
        folded.append(replace(finding, severity=severity, consequences=consequences))
    return folded


def find_root(rule: str, causes: Mapping[str, str]) -> str:
    """Return the cause of the cause, as far as it goes."""
    while rule in causes:
        rule = causes[rule]
    return rule


RULES: tuple[Rule, ...] = (
    *memory.RULES, *gpu.RULES, *gpu_work.RULES, *time.RULES, *nodes.RULES, *stuck.RULES, *cpu.RULES,
    *threads.RULES, *files.RULES,
)  # fmt: skip
"""Every rule; among findings of the same severity this is their order."""

_PER_CORE, _PER_NODE, _NODES = "#SBATCH --mem-per-cpu", "#SBATCH --mem=", "#SBATCH --nodes"
_SPREAD = "too_many_nodes"


def judge(
    summary: JobSummary, thresholds: Mapping[str, float] | None = None, further: Sequence[Rule] = ()
) -> tuple[Finding, ...]:
    """Return what all rules find in a job, worst first; keys of ``thresholds`` are as in ``resolve_thresholds``.

    ``further`` rules are those of the site, which have the thresholds that they declare.
    """
    values = {**resolve_thresholds(thresholds or {}), **{rule.id: _default_thresholds(rule) for rule in further}}
    matches = [
        (rule, match) for rule in (*RULES, *further) if (match := rule.find(summary, values[rule.id])) is not None
    ]
    replaced = {other for rule, _ in matches for other in rule.replaces}
    kept = [(rule, match) for rule, match in matches if rule.id not in replaced]
    findings = fold([make_finding(rule, match, values[rule.id]) for rule, match in kept], _find_causes(kept, values))
    return tuple(sorted(_agreeing(summary, findings), key=lambda finding: finding.severity.rank))


def _find_causes(matches: Sequence[tuple[Rule, Match]], values: Mapping[str, Mapping[str, float]]) -> Mapping[str, str]:
    """Return the rule that explains the finding of another, by the ID of the other; the worst comes first."""
    found = {rule.id: rule for rule, _ in matches}
    causes: dict[str, str] = {}
    for rule, match in sorted(matches, key=lambda pair: (pair[1].severity or pair[0].severity).rank):
        for other in rule.explains:
            if other not in found or other in causes or find_root(rule.id, causes) == other:
                continue
            if match.without is None or found[other].find(match.without, values[other]) is None:
                causes[other] = rule.id
    return causes


def resolve_thresholds(given: Mapping[str, object]) -> Mapping[str, Mapping[str, float]]:
    """Return the thresholds of every rule; raise a ConfigError that lists every wrong name or number.

    Keys are ``rule.threshold``, or the name of the threshold that most rules share.
    """
    if not given:
        return _DEFAULTS
    problems: list[str] = []
    values = {rule: dict(defaults) for rule, defaults in _DEFAULTS.items()}
    for key, value in given.items():
        if key not in _RULES_OF:
            problems.append(f"unknown threshold {key!r}{_hint(key)}")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            problems.append(f"threshold {key}: {value!r} is not a number of 0 or more")
        else:
            for rule in _RULES_OF[key]:
                values[rule][key.rpartition(".")[2]] = float(value)
    if problems:
        raise ConfigError("\n".join(problems))
    return values


def _agreeing(summary: JobSummary, findings: list[Finding]) -> list[Finding]:
    """Drop lines that contradict those of another finding, or that the header for the next run would not have.

    A job that failed may not have reached the part that needs all of its cores, GPUs and nodes.

    Memory per core is computed from the cores that the job had, and memory per node from its nodes: with fewer of them
    it would be too little. A line for fewer cores or nodes sets the memory that goes with them.
    """
    if summary.record.has_ended and summary.record.state not in SETTLED_STATES:
        return [_drop_line(each) if sets_size(each.suggestion) else each for each in findings]
    if any("enough_cores" in finding.numbers for finding in findings):
        findings = [_drop_line(each) if each.suggestion.startswith(_PER_CORE) else each for each in findings]
    if any(each.suggestion.startswith((_PER_NODE, _NODES)) for each in findings if each.rule != _SPREAD):
        findings = [_drop_line(each) if each.rule == _SPREAD else each for each in findings]
    return findings


def _drop_line(finding: Finding) -> Finding:
    return replace(finding, suggestion="")


def make_finding(rule: Rule, match: Match, values: Mapping[str, float]) -> Finding:
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
    nearest = difflib.get_close_matches(key, _RULES_OF, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def _default_thresholds(rule: Rule) -> Mapping[str, float]:
    shortest = MIN_RUN.default if rule.min_run_seconds is None else rule.min_run_seconds
    return ({MIN_RUN.name: shortest} if shortest else {}) | {each.name: each.default for each in rule.thresholds}


_DEFAULTS: Mapping[str, Mapping[str, float]] = {rule.id: _default_thresholds(rule) for rule in RULES}
_RULES_OF: Mapping[str, tuple[str, ...]] = {
    MIN_RUN.name: tuple(rule.id for rule in RULES if rule.min_run_seconds is None),
    **{f"{rule.id}.{threshold.name}": (rule.id,) for rule in RULES for threshold in rule.thresholds},
}
"""The rules that a threshold is of, by its key."""
