# SPDX-License-Identifier: Apache-2.0
"""Hand the letters out: at most one a week about the same to the same person, and none to who wants none."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from email.message import EmailMessage
from typing import TYPE_CHECKING

from slurmscope.errors import OutputError
from slurmscope.reports.digest import Digest
from slurmscope.reports.digest_mail import make_digest_mail, render_digest_text
from slurmscope.services.mail.digest_sums import DigestSubject
from slurmscope.services.mail.mailing import address_of, page_of
from slurmscope.services.reporting.settings import MailSettings
from slurmscope.units import DAY_SECONDS

if TYPE_CHECKING:
    from slurmscope.store.archive.checkpoints import Checkpoints

SHORTEST_GAP_SECONDS = 7 * DAY_SECONDS - DAY_SECONDS // 2
"""A week between two letters, less what a timer may be late the first time and early the next."""
FAILURES_IN_A_ROW = 10
"""After so many the mail server is taken for dead: each attempt may last as long as its time limit."""


class SendOutcome(enum.StrEnum):
    """Say what became of a letter."""

    SENT = "sent"
    SHOWN = "shown"
    NO_JOBS = "no job ended in this time"
    NOBODY = "nobody coordinates it"
    OPTED_OUT = "wants no letters"
    HAD_ONE = "had one less than a week ago"
    FAILED = "not sent"
    GIVEN_UP = "not tried, for the mail server takes nothing"

    @property
    def is_failure(self) -> bool:
        """Tell whether a letter that was due did not go out."""
        return self in {SendOutcome.FAILED, SendOutcome.GIVEN_UP}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Tell about one letter; ``text`` is there when it is only shown, ``problem`` when it failed."""

    about: DigestSubject
    outcome: SendOutcome
    recipient: str = ""
    text: str = ""
    problem: str = ""


class Post:
    """Deliver letters one by one."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        settings: MailSettings,
        send: Callable[[EmailMessage], None] | None,
        *,
        now_seconds: int,
    ) -> None:
        """Take who remembers, how mails are sent, and the time; without ``send`` letters are only shown."""
        self._checkpoints = checkpoints
        self._settings = settings
        self._send = send
        self._now_seconds = now_seconds
        self._failures_in_a_row = 0

    def deliver(self, about: DigestSubject, digest: Digest | None, readers: Sequence[str]) -> list[Delivery]:
        """Give one letter to each of its readers, who are user names or addresses."""
        if digest is None:
            return [Delivery(about=about, outcome=SendOutcome.NO_JOBS)]
        if not readers:
            return [Delivery(about=about, outcome=SendOutcome.NOBODY)]
        return [self._deliver(about, digest, reader) for reader in readers]

    def _deliver(self, about: DigestSubject, digest: Digest, reader: str) -> Delivery:
        address = address_of(reader, self._settings)
        letter = replace(digest, opt_out=self._way_out(reader))
        delivery = Delivery(about=about, outcome=SendOutcome.SENT, recipient=address)
        if hindrance := self._hindrance(about, reader, address):
            return replace(delivery, outcome=hindrance)
        if self._send is None:
            return replace(delivery, outcome=SendOutcome.SHOWN, text=render_digest_text(letter, url=self._page(about)))
        if problem := self._try_send(self._send, about, letter, address):
            return replace(delivery, outcome=SendOutcome.FAILED, problem=problem)
        return delivery

    def _hindrance(self, about: DigestSubject, reader: str, address: str) -> SendOutcome | None:
        """Return why there is no letter; None when nothing speaks against it."""
        if self._failures_in_a_row >= FAILURES_IN_A_ROW:
            return SendOutcome.GIVEN_UP
        if self._checkpoints.is_opted_out(reader):
            return SendOutcome.OPTED_OUT
        last_seconds = self._checkpoints.last_mail(_subject(about), address)
        # A clock that was wrong once must not stop letters for years: what lies in the future does not count.
        if last_seconds is not None and 0 <= self._now_seconds - last_seconds < SHORTEST_GAP_SECONDS:
            return SendOutcome.HAD_ONE
        return None

    def _try_send(
        self, send: Callable[[EmailMessage], None], about: DigestSubject, letter: Digest, address: str
    ) -> str:
        """Return what went wrong, or an empty text; what was sent is remembered at once."""
        try:
            sender = self._settings.sender
            send(make_digest_mail(letter, sender=sender, recipient=address, url=self._page(about)))
        except OutputError as error:
            self._failures_in_a_row += 1
            return str(error)
        self._failures_in_a_row = 0
        self._checkpoints.record_mail(_subject(about), address, self._now_seconds)
        return ""

    def _page(self, about: DigestSubject) -> str:
        return page_of("accounts" if about.is_account else "users", about.name, self._settings)

    def _way_out(self, reader: str) -> str:
        """Return the reader's own page, whose section on letters has a button; words for an address without a page."""
        if "@" not in reader and (page := page_of("users", reader, self._settings)):
            return f"{page}#letter"
        return f"ask the support of your cluster for: slurmscope digest --opt-out {reader}"


def _subject(about: DigestSubject) -> str:
    return f"digest of {'account' if about.is_account else 'user'} {about.name}"
