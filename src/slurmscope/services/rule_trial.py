# SPDX-License-Identifier: Apache-2.0
"""Try the rules on jobs of the past: what would each have found, with the thresholds that are set now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurmscope.model.archive import Archive, JobFilter
from slurmscope.model.viewer import EVERYTHING
from slurmscope.rules import RULES, judge

PAGE_JOBS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTrial:
    """Count what one rule would have found; ``was_found`` is what it did find when the jobs were archived."""

    rule: str
    jobs: int
    users: int
    wasted_core_seconds: float
    was_found: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Hold the counts of every rule, most jobs first."""

    jobs: int
    rules: tuple[RuleTrial, ...]


def try_rules(
    archive: Archive,
    wanted: JobFilter,
    thresholds: Mapping[str, float],
    tell: Callable[[int], None] = lambda _: None,
) -> Trial:
    """Judge every ended job of a time again, and call ``tell`` with how many are done."""
    jobs, before = Counter[str](), Counter[str]()
    waste: Counter[str] = Counter()
    users: dict[str, set[str]] = {rule.id: set() for rule in RULES}
    done, after = 0, None
    while True:
        page = archive.list_jobs(EVERYTHING, wanted, after=after, limit=PAGE_JOBS)
        for row in page.rows:
            before.update(row.rules)
            for report in archive.find(EVERYTHING, row.job_id, cluster=row.cluster)[:1]:
                for finding in judge(report.summary, thresholds):
                    jobs[finding.rule] += 1
                    users[finding.rule].add(row.user)
                    waste[finding.rule] += int(row.wasted_core_seconds or 0)
        done += len(page.rows)
        tell(done)
        after = page.next_key
        if after is None:
            break
    return Trial(
        jobs=done,
        rules=tuple(
            RuleTrial(
                rule=rule.id,
                jobs=jobs[rule.id],
                users=len(users[rule.id]),
                wasted_core_seconds=waste[rule.id],
                was_found=before[rule.id],
            )
            for rule in sorted(RULES, key=lambda rule: -jobs[rule.id])
        ),
    )
