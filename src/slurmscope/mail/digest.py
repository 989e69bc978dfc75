# SPDX-License-Identifier: Apache-2.0
"""Write the digests of users and accounts: what their recent jobs were allocated and what they used."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

from slurmscope.archive.interface import Archive, JobFilter, UseTotal
from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.waste import GPU_CORES
from slurmscope.core.errors import UnreadableReport
from slurmscope.core.units import DAY_SECONDS, HOUR_SECONDS
from slurmscope.jobs.findings import RULES, LossCause, find_state_cause
from slurmscope.jobs.render.resubmission import describe_resubmission
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import Viewer
from slurmscope.reports.live_cache import WaitingTimesCache
from slurmscope.reports.resubmission import add_resubmission
from slurmscope.reports.rule_trial import read_ended

MAX_JOBS = 10
MAX_FIXES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestSums:
    """Totals of this period and the one before, in any grouping without overlap.

    ``rules`` are totals by rule, ``short`` those of jobs too short to judge, ``lost`` those of jobs that failed or
    reached their time limit, by cause. The ``jobs`` that lost the most are shown.
    """

    totals: Sequence[UseTotal]
    before: Sequence[UseTotal] = ()
    rules: Sequence[UseTotal] = ()
    short: Sequence[UseTotal] = ()
    lost: Sequence[UseTotal] = ()
    jobs: Sequence[JobRow] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Hours of one resource; ``used`` is out of the ``measured`` part of the ``allocated`` hours."""

    allocated_hours: float = 0.0
    measured_hours: float = 0.0
    used_hours: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Return used over measured; None when nothing was measured."""
        return self.used_hours / self.measured_hours if self.measured_hours else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestFinding:
    """One thing to change: how many jobs it would help, and how many hours these lost."""

    rule: str
    title: str
    jobs: int
    lost_core_hours: float
    lost_gpu_hours: float
    blocked_core_hours: float = 0.0
    """Of cores that other jobs could not use, because these jobs requested memory that they did not need."""

    @property
    def weight(self) -> float:
        return self.lost_core_hours + self.blocked_core_hours + GPU_CORES * self.lost_gpu_hours


@dataclass(frozen=True, slots=True, kw_only=True)
class LostHours:
    """How many jobs failed, or reached their time limit, and all of their hours."""

    cause: LossCause
    jobs: int
    core_hours: float
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedHeader:
    """The header for the next run of some jobs, as their reports have it."""

    jobs: tuple[JobRow, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The contents of one digest; ``subject`` is a user, or an account when ``is_account``."""

    subject: str
    is_account: bool
    since_seconds: int
    until_seconds: int
    jobs: int
    jobs_with_findings: int
    cores: Use
    gpus: Use
    cores_before: Use
    gpus_before: Use
    short_jobs: int = 0
    """Jobs without findings that were too short to judge."""
    short_cores: Use = Use()
    short_gpus: Use = Use()
    losses: tuple[LostHours, ...] = ()
    worst_jobs: tuple[JobRow, ...] = ()
    headers: tuple[SharedHeader, ...] = ()
    """Headers of these jobs; those without one are left out."""
    fixes: tuple[DigestFinding, ...] = ()
    energy_jobs: int = 0
    """Jobs whose energy was measured: energy, carbon and cost are theirs."""
    energy_joules: float = 0.0
    carbon_grams: float = 0.0
    energy_cost: float = 0.0
    currency: str = ""
    opt_out: str = ""
    """How to unsubscribe: the address of a page, or a sentence."""


def make_digest(
    subject: str,
    period: tuple[int, int],
    sums: DigestSums,
    *,
    rule_titles: Mapping[str, str] | None = None,
    is_account: bool = False,
) -> Digest:
    """Build a digest; a rule without a title is shown by its id."""
    titles = rule_titles or {}
    wasteful = sorted((row for row in sums.jobs if _lost_hours(row) > 0), key=_lost_hours, reverse=True)
    fixes = [
        DigestFinding(
            rule=rule.key,
            title=titles.get(rule.key, rule.key.replace("_", " ")),
            jobs=rule.jobs,
            lost_core_hours=rule.lost_core_seconds / HOUR_SECONDS,
            lost_gpu_hours=rule.lost_gpu_seconds / HOUR_SECONDS,
            blocked_core_hours=rule.blocked_core_seconds / HOUR_SECONDS,
        )
        for rule in sums.rules
    ]
    return Digest(
        subject=subject,
        is_account=is_account,
        since_seconds=period[0],
        until_seconds=period[1],
        jobs=sum(total.jobs for total in sums.totals),
        jobs_with_findings=sum(total.jobs_with_findings for total in sums.totals),
        cores=_sum_use(sums.totals, "core"),
        gpus=_sum_use(sums.totals, "gpu"),
        cores_before=_sum_use(sums.before, "core"),
        gpus_before=_sum_use(sums.before, "gpu"),
        short_jobs=sum(total.jobs for total in sums.short),
        short_cores=_sum_use(sums.short, "core"),
        short_gpus=_sum_use(sums.short, "gpu"),
        losses=tuple(_make_loss(total) for total in sums.lost if total.jobs),
        energy_jobs=sum(total.energy_jobs for total in sums.totals),
        energy_joules=sum(total.energy_joules for total in sums.totals),
        carbon_grams=sum(total.carbon_grams for total in sums.totals),
        energy_cost=sum(total.energy_cost for total in sums.totals),
        worst_jobs=tuple(wasteful[:MAX_JOBS]),
        fixes=tuple(sorted(fixes, key=lambda fix: fix.weight, reverse=True)[:MAX_FIXES]),
    )


def _make_loss(total: UseTotal) -> LostHours:
    return LostHours(
        cause=LossCause(total.key),
        jobs=total.jobs,
        core_hours=total.core_seconds / HOUR_SECONDS,
        gpu_hours=total.gpu_seconds / HOUR_SECONDS,
    )


def _lost_hours(row: JobRow) -> float:
    """Weigh lost cores and GPUs: an idle GPU counts as much as many idle cores."""
    return ((row.lost_core_seconds or 0.0) + GPU_CORES * (row.lost_gpu_seconds or 0.0)) / HOUR_SECONDS


def _sum_use(totals: Sequence[UseTotal], kind: str) -> Use:
    allocated, measured, used = (
        sum(getattr(total, f"{part}{kind}_seconds") for total in totals) / HOUR_SECONDS
        for part in ("", "measured_", "used_")
    )
    return Use(allocated_hours=allocated, measured_hours=measured, used_hours=used)


class DigestSubject(NamedTuple):
    """Name the user or account that a digest is about."""

    name: str
    is_account: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRequest:
    """Select the subjects of digests, and the number of days that they cover."""

    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    all_users: bool = False
    all_accounts: bool = False
    days: int = 7

    @property
    def named(self) -> tuple[DigestSubject, ...]:
        """Return the subjects that were named, each once, users first."""
        users = (DigestSubject(name, is_account=False) for name in dict.fromkeys(self.users) if not self.all_users)
        accounts = (
            DigestSubject(name, is_account=True) for name in dict.fromkeys(self.accounts) if not self.all_accounts
        )
        return (*users, *accounts)

    @property
    def has_accounts(self) -> bool:
        return self.all_accounts or bool(self.accounts)

    def includes_all_like(self, about: DigestSubject) -> bool:
        return self.all_accounts if about.is_account else self.all_users


def write_digests(
    archive: Archive, request: DigestRequest, now_seconds: int, clusters: Container[str] | None = None
) -> Iterator[tuple[DigestSubject, Digest | None]]:
    """Yield a digest for each user, then each account, that had a job end; None for a named one without.

    The period ends now. The period before it, to compare with, has the same length. Digests of accounts are about jobs
    of ``clusters``, of all if this is None: elsewhere the same name may be the account of other users.
    """
    since_seconds = now_seconds - request.days * DAY_SECONDS
    titles = {rule.id: rule.title for rule in RULES}
    for about, sums in _sum_periods(archive, request, since_seconds, now_seconds, clusters):
        digest = None
        if sums.now:
            period = (since_seconds, now_seconds)
            digest = make_digest(about.name, period, sums.as_sums(), rule_titles=titles, is_account=about.is_account)
        yield about, digest


def add_headers(archive: Archive, about: DigestSubject, digest: Digest) -> Digest:
    """Return a digest with the headers of its worst jobs, whose reports are read for it: only digests that are due."""
    return replace(digest, headers=_find_headers(archive, about, digest.worst_jobs))


def _find_headers(archive: Archive, about: DigestSubject, rows: Iterable[JobRow]) -> tuple[SharedHeader, ...]:
    """Return the headers of jobs, each once, from what the subject may see: a user, or who coordinates an account."""
    viewer = Viewer(name="", coordinates=frozenset({about.name})) if about.is_account else Viewer(name=about.name)
    waiting = WaitingTimesCache(None)
    jobs: dict[tuple[str, ...], list[JobRow]] = defaultdict(list)
    for row in rows:
        for report in _find_run(archive, viewer, row):
            header = describe_resubmission(add_resubmission(archive, waiting, viewer, report))
            if header is not None:
                jobs[header.lines].append(row)
    return tuple(SharedHeader(jobs=tuple(found), lines=lines) for lines, found in jobs.items())


def _find_run(archive: Archive, viewer: Viewer, row: JobRow) -> list[JobReport]:
    """Return the report of a row, unless it cannot be decoded: its user would get no digest at all."""
    try:
        found = archive.find(viewer, row.job_id, cluster=row.cluster)
    except UnreadableReport:
        return []
    return [report for report in found if report.record.submit_seconds == row.submit_seconds]


def add_up(
    rows: Iterable[JobRow], since_seconds: int, clusters: Container[str] | None = None
) -> Mapping[DigestSubject, PeriodSums]:
    """Sum up by user and, in these clusters, by account.

    Jobs that ended before ``since_seconds`` belong to the period before.
    """
    sums: dict[DigestSubject, PeriodSums] = defaultdict(PeriodSums)
    for row in rows:
        is_before = (row.end_seconds or 0) < since_seconds
        if row.user:
            sums[DigestSubject(row.user, is_account=False)].add(row, is_before=is_before)
        if row.account and (clusters is None or row.cluster in clusters):
            sums[DigestSubject(row.account, is_account=True)].add(row, is_before=is_before)
    return dict(sums)


def _count(row: JobRow) -> dict[str, float]:
    """Return what one job adds to a total, by the fields of ``UseTotal``."""
    core_seconds, gpu_seconds, cause = row.core_seconds, row.gpus * row.run_seconds, find_state_cause(row.state)
    cores, gpus = row.wasted_core_seconds, row.wasted_gpu_seconds
    amounts = {
        "jobs": 1,
        "jobs_with_findings": row.worst is not None,
        "core_seconds": core_seconds,
        "gpu_seconds": gpu_seconds,
        "blocked_core_seconds": row.blocked_core_seconds or 0.0,
    }
    # Unmeasured jobs count neither as used nor as unused.
    if cores is not None:
        amounts |= {"measured_core_seconds": core_seconds, "used_core_seconds": core_seconds - cores}
    if row.energy_joules is not None:
        amounts |= {
            "energy_jobs": 1,
            "energy_joules": row.energy_joules,
            "carbon_grams": row.carbon_grams or 0.0,
            "energy_cost": row.energy_cost or 0.0,
        }
    if gpus is not None:
        amounts |= {"measured_gpu_seconds": gpu_seconds, "used_gpu_seconds": gpu_seconds - gpus}
    if cause is None:
        return amounts | {"unused_core_seconds": cores or 0.0, "unused_gpu_seconds": gpus or 0.0}
    return amounts | {f"{cause}_core_seconds": core_seconds, f"{cause}_gpu_seconds": gpu_seconds}


class _Sum(Counter[str]):
    def as_total(self, key: str) -> UseTotal:
        amounts = {each.name: self[each.name] for each in fields(UseTotal) if each.name != "key"}
        return UseTotal(key=key, **amounts)


@dataclass(slots=True)
class PeriodSums:
    """Sum up the jobs of one user or account; only the most wasteful rows are kept."""

    now: _Sum = field(default_factory=_Sum)
    before: _Sum = field(default_factory=_Sum)
    short: _Sum = field(default_factory=_Sum)
    lost: dict[LossCause, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    rules: dict[str, _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    worst: list[JobRow] = field(default_factory=list)

    def add(self, row: JobRow, *, is_before: bool) -> None:
        amounts = _count(row)
        if is_before:
            self.before.update(amounts)
            return
        self.now.update(amounts)
        if row.is_too_short:
            self.short.update(amounts)
        if (cause := find_state_cause(row.state)) is not None:
            self.lost[cause].update(amounts)
        for rule in row.rules:
            self.rules[rule].update(amounts)
        self.worst.append(row)
        if len(self.worst) > 10 * MAX_JOBS:
            self.worst = self._worst()

    def as_sums(self) -> DigestSums:
        """Return what a digest is made of."""
        return DigestSums(
            totals=(self.now.as_total("now"),),
            before=(self.before.as_total("before"),),
            rules=tuple(total.as_total(rule) for rule, total in self.rules.items()),
            short=(self.short.as_total("short"),),
            lost=tuple(total.as_total(cause) for cause, total in self.lost.items()),
            jobs=tuple(self._worst()),
        )

    def _worst(self) -> list[JobRow]:
        return sorted(self.worst, key=_lost_hours, reverse=True)[:MAX_JOBS]


def _sum_periods(
    archive: Archive, request: DigestRequest, since_seconds: int, now_seconds: int, clusters: Container[str] | None
) -> Iterator[tuple[DigestSubject, PeriodSums]]:
    """Read the jobs once for all users and accounts, and once for each named one."""
    before_seconds = 2 * since_seconds - now_seconds
    if request.all_users or request.all_accounts:
        sums = add_up(read_ended(archive, before_seconds, now_seconds), since_seconds, clusters)
        for about in sorted(sums, key=lambda about: (about.is_account, about.name)):
            if request.includes_all_like(about) and sums[about].now:
                yield about, sums[about]
    for about in request.named:
        job_filter = JobFilter(account=about.name) if about.is_account else JobFilter(user=about.name)
        rows = read_ended(archive, before_seconds, now_seconds, job_filter)
        yield about, add_up(rows, since_seconds, clusters).get(about, PeriodSums())
