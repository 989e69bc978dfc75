# SPDX-License-Identifier: Apache-2.0
"""Fold findings under the finding that explains them: one cause, one finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurmscope.model.finding import Finding, Severity, worst_severity


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
