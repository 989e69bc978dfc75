# SPDX-License-Identifier: Apache-2.0
"""Judge jobs: a summary in, findings out. One module per subject."""

from slurmscope.rules.judging import RULES, RuleRow, judge, resolve_thresholds, rules_table
from slurmscope.rules.rule import Match, Rule, Threshold

__all__ = ["RULES", "Match", "Rule", "RuleRow", "Threshold", "judge", "resolve_thresholds", "rules_table"]
