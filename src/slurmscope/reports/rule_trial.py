# SPDX-License-Identifier: Apache-2.0
"""Test the rules on past jobs: what would each have found with the current thresholds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from slurmscope.archive.interface import Archive, JobFilter
from slurmscope.archive.job_columns import JobRow
from slurmscope.jobs.findings import RULES, judge
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import EVERYTHING

PAGE_JOBS = 1000
MAX_AGE_SECONDS = 60 * 86400
"""How long before a period a job that ended in it may have been submitted."""


def read_ended(
    archive: Archive, since_seconds: int, until_seconds: int, job_filter: JobFilter | None = None
) -> Iterator[JobRow]:
    """Yield every run that started, and ended in this period, last submitted first; ``job_filter`` narrows further."""
    narrowed = replace(
        job_filter or JobFilter(),
        since_seconds=max(0, since_seconds - MAX_AGE_SECONDS),
        until_seconds=until_seconds,
        is_running=False,
    )
    after = None
    while True:
        page = archive.list_jobs(EVERYTHING, narrowed, after=after, limit=PAGE_JOBS)
        for row in page.rows:
            if row.start_seconds is not None and since_seconds <= (row.end_seconds or 0) < until_seconds:
                yield row
        after = page.next_key
        if after is None:
            return


PROGRESS_JOBS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTrial:
    """What one rule would have found; ``was_found`` is what it found when the jobs were archived."""

    rule: str
    jobs: int
    users: int
    wasted_core_seconds: float
    """Unused core time of these jobs, as far as measured."""
    was_found: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The counts of every rule, most jobs first."""

    jobs: int
    rules: tuple[RuleTrial, ...]


def try_rules(
    archive: Archive,
    period: tuple[int, int],
    thresholds: Mapping[str, float],
    progress: Callable[[int], None] = lambda _: None,
) -> Trial:
    """Check every run again that ended in a period; call ``progress`` with the number of jobs done."""
    tallies = {rule.id: _Tally() for rule in RULES}
    before = Counter[str]()
    done = 0
    for row in read_ended(archive, *period):
        before.update(row.rules)
        for report in _same_run(archive.find(EVERYTHING, row.job_id, cluster=row.cluster), row):
            for finding in judge(report.summary, thresholds):
                tallies[finding.rule].add(row)
        done += 1
        if done % PROGRESS_JOBS == 0:
            progress(done)
    rules = (tally.as_trial(rule, before[rule]) for rule, tally in tallies.items())
    return Trial(jobs=done, rules=tuple(sorted(rules, key=lambda rule: -rule.jobs)))


@dataclass(slots=True)
class _Tally:
    """Count matches of one rule; an archive may hold millions of jobs, so no rows are kept."""

    jobs: int = 0
    users: set[str] = field(default_factory=set)
    wasted_core_seconds: float = 0.0

    def add(self, row: JobRow) -> None:
        self.jobs += 1
        self.users.add(row.user)
        self.wasted_core_seconds += row.wasted_core_seconds or 0.0

    def as_trial(self, rule: str, was_found: int) -> RuleTrial:
        return RuleTrial(
            rule=rule,
            jobs=self.jobs,
            users=len(self.users),
            wasted_core_seconds=self.wasted_core_seconds,
            was_found=was_found,
        )


def _same_run(reports: Iterable[JobReport], row: JobRow) -> list[JobReport]:
    return [report for report in reports if report.record.submit_seconds == row.submit_seconds][:1]
