# SPDX-License-Identifier: Apache-2.0
"""Check jobs: a summary in, findings out. One module per subject."""

from slurmscope.rules.judging import RULES, judge
from slurmscope.rules.rule import Match, Rule, Threshold

__all__ = ["RULES", "Match", "Rule", "Threshold", "judge"]
