# SPDX-License-Identifier: Apache-2.0
"""Write the letters that tell users and accounts what their jobs of the last days asked for and used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slurmscope.model.archive import Archive, JobFilter
from slurmscope.reports.digest import Digest, make_digest
from slurmscope.rules import RULES
from slurmscope.services.mail.digest_sums import DigestSubject, PeriodSums, add_up
from slurmscope.services.reporting.ended_jobs import read_ended
from slurmscope.units import DAY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRequest:
    """Say whom letters are about, and how many days they cover."""

    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    all_users: bool = False
    all_accounts: bool = False
    days: int = 7

    @property
    def named(self) -> tuple[DigestSubject, ...]:
        """Return those that were named, each once, users first."""
        users = (DigestSubject(name, is_account=False) for name in dict.fromkeys(self.users) if not self.all_users)
        accounts = (
            DigestSubject(name, is_account=True) for name in dict.fromkeys(self.accounts) if not self.all_accounts
        )
        return (*users, *accounts)

    def is_general_about(self, about: DigestSubject) -> bool:
        """Tell whether this is one of all the users or all the accounts that are wanted."""
        return self.all_accounts if about.is_account else self.all_users


def write_digests(
    archive: Archive, wish: DigestRequest, now_seconds: int
) -> Iterator[tuple[DigestSubject, Digest | None]]:
    """Yield a letter for each user, then each account, that had a job end; None for a named one without.

    The period ends now. The one before it, to compare with, has the same length.
    """
    since_seconds = now_seconds - wish.days * DAY_SECONDS
    titles = {rule.id: rule.title for rule in RULES}
    for about, sums in _gather(archive, wish, since_seconds, now_seconds):
        digest = None
        if sums.now.jobs:
            period = (since_seconds, now_seconds)
            digest = make_digest(about.name, period, sums.sums(), rule_titles=titles, is_account=about.is_account)
        yield about, digest


def _gather(
    archive: Archive, wish: DigestRequest, since_seconds: int, now_seconds: int
) -> Iterator[tuple[DigestSubject, PeriodSums]]:
    """Read the jobs once for everybody, and once for each one that was named."""
    before_seconds = 2 * since_seconds - now_seconds
    if wish.all_users or wish.all_accounts:
        everybody = add_up(read_ended(archive, before_seconds, now_seconds), since_seconds)
        for about in sorted(everybody, key=lambda about: (about.is_account, about.name)):
            if wish.is_general_about(about) and everybody[about].now.jobs:
                yield about, everybody[about]
    for about in wish.named:
        narrowed = JobFilter(account=about.name) if about.is_account else JobFilter(user=about.name)
        rows = read_ended(archive, before_seconds, now_seconds, narrowed)
        yield about, add_up(rows, since_seconds).get(about, PeriodSums())
