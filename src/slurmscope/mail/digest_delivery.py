# SPDX-License-Identifier: Apache-2.0
"""Send digests: at most one a week about the same subject to the same user, and none to users who opted out."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from email.message import EmailMessage
from functools import cache, partial
from typing import TYPE_CHECKING

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.config import Config
from slurmscope.core.errors import ArchiveError, OutputError, SourceError
from slurmscope.core.units import DAY_SECONDS
from slurmscope.mail.digest import Digest, DigestRequest, DigestSubject, add_headers, write_digests
from slurmscope.mail.digest_mail import make_digest_mail, render_digest_text
from slurmscope.mail.mail import address_of, open_mail_server, page_of
from slurmscope.reporter.reporters import DIGESTS
from slurmscope.reports.carbon import EnergySettings
from slurmscope.reports.settings import MailSettings
from slurmscope.reports.sources import no_archive, open_reporting
from slurmscope.slurm.cluster_names import read_all_names
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from slurmscope.slurm.coordinators import read_coordinators

if TYPE_CHECKING:
    from slurmscope.archive.checkpoints import Checkpoints
    from slurmscope.archive.session_lock import SessionLock
    from slurmscope.archive.sql_archive import SqlArchive


MIN_INTERVAL_SECONDS = 7 * DAY_SECONDS - DAY_SECONDS // 2
"""A week between two digests, less what a timer may be late the first time and early the next."""
SENT_KEPT_SECONDS = 30 * DAY_SECONDS
"""How long sent digests are remembered; longer than the week between two."""
MAX_FAILURES_IN_A_ROW = 10
"""After this many, the mail server is considered down: each attempt may last until the timeout."""

CoordinatorsByAccount = Mapping[str, Sequence[str]]


class SendOutcome(enum.StrEnum):
    """Say what became of a digest."""

    SENT = "sent"
    SHOWN = "shown"
    NO_JOBS = "no jobs ended in this period"
    NO_RECIPIENT = "the account has no coordinator"
    OPTED_OUT = "opted out of digests"
    SENT_RECENTLY = "received one less than a week ago"
    FAILED = "not sent"
    SERVER_DOWN = "not sent: the mail server failed too often"

    @property
    def is_failure(self) -> bool:
        """Return whether a digest that was due was not sent."""
        return self in {SendOutcome.FAILED, SendOutcome.SERVER_DOWN}


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestOutcome:
    """The outcome of one digest; ``text`` is set when it is only shown, ``problem`` when it failed."""

    about: DigestSubject
    outcome: SendOutcome
    recipient: str = ""
    text: str = ""
    problem: str = ""


def run_digests(
    config: Config,
    environment: Mapping[str, str],
    request: DigestRequest,
    *,
    to: str,
    now_seconds: int,
    is_dry_run: bool,
) -> Iterator[DigestOutcome]:
    """Send each digest, or only show it, and yield the outcome.

    A digest about a user goes to that user, one about an account to its coordinators, or to the address ``to``.
    """
    settings = config.of(MailSettings)
    send = None if is_dry_run else open_mail_server(settings).send
    commands = SlurmCommands(config.of(SlurmSettings), environment)
    # Read once, when the first digest needs it.
    coordinators = cache(lambda: read_coordinators(commands.run))
    with _open_archive(config, environment) as (archive, checkpoints), open_lock(archive, DIGESTS) as lock:
        if not is_dry_run:
            require_lock(lock)
            checkpoints.delete_mails(now_seconds - SENT_KEPT_SECONDS)
        currency = config.of(EnergySettings).currency
        sender = DigestSender(
            checkpoints,
            settings,
            send,
            now_seconds=now_seconds,
            currency=currency,
            complete=partial(add_headers, archive),
        )
        clusters = None if to or not request.has_accounts else _coordinated_clusters(archive, commands)
        for about, digest in write_digests(archive, request, now_seconds, clusters):
            if not is_dry_run:
                require_lock(lock)
            yield from sender.deliver(about, digest, _readers(about, to, coordinators) if digest else ())


def set_opt_outs(
    config: Config, environment: Mapping[str, str], opt_outs: Sequence[str], opt_ins: Sequence[str]
) -> None:
    """Store who opted out of digests, and who opted in again."""
    with _open_archive(config, environment) as (_, checkpoints):
        for user in opt_outs:
            checkpoints.set_opt_out(user, is_opted_out=True)
        for user in opt_ins:
            checkpoints.set_opt_out(user, is_opted_out=False)


class DigestSender:
    """Deliver digests one by one."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        settings: MailSettings,
        send: Callable[[EmailMessage], None] | None,
        *,
        now_seconds: int,
        currency: str = "",
        complete: Callable[[DigestSubject, Digest], Digest] = lambda _about, digest: digest,
    ) -> None:
        """Take where sent digests are stored, how mails are sent, and the time; without ``send`` digests are shown.

        ``complete`` adds to a digest what is only computed for those that are due.
        """
        self._checkpoints = checkpoints
        self._settings = settings
        self._send = send
        self._now_seconds = now_seconds
        self._currency = currency
        self._complete = complete
        self._failures_in_a_row = 0

    def deliver(self, about: DigestSubject, digest: Digest | None, readers: Sequence[str]) -> list[DigestOutcome]:
        """Deliver one digest to each of its readers, which are user names or addresses."""
        if digest is None:
            return [DigestOutcome(about=about, outcome=SendOutcome.NO_JOBS)]
        if not readers:
            return [DigestOutcome(about=about, outcome=SendOutcome.NO_RECIPIENT)]
        completed = cache(lambda: self._complete(about, digest))
        return [self._deliver(about, completed, reader) for reader in readers]

    def _deliver(self, about: DigestSubject, completed: Callable[[], Digest], reader: str) -> DigestOutcome:
        address = address_of(reader, self._settings)
        delivery = DigestOutcome(about=about, outcome=SendOutcome.SENT, recipient=address)
        if skipped := self._reason_to_skip(about, reader, address):
            return replace(delivery, outcome=skipped)
        digest = replace(completed(), opt_out=self._unsubscribe(reader), currency=self._currency)
        if self._send is None:
            return replace(delivery, outcome=SendOutcome.SHOWN, text=render_digest_text(digest, url=self._page(about)))
        if problem := self._try_send(self._send, about, digest, address):
            return replace(delivery, outcome=SendOutcome.FAILED, problem=problem)
        return delivery

    def _reason_to_skip(self, about: DigestSubject, reader: str, address: str) -> SendOutcome | None:
        """Return why no digest is sent; None when it is due."""
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            return SendOutcome.SERVER_DOWN
        if self._checkpoints.is_opted_out(reader):
            return SendOutcome.OPTED_OUT
        last_seconds = self._checkpoints.last_mail(_subject(about), address)
        # Times in the future are ignored: a clock that was wrong once must not stop digests for years.
        if last_seconds is not None and 0 <= self._now_seconds - last_seconds < MIN_INTERVAL_SECONDS:
            return SendOutcome.SENT_RECENTLY
        return None

    def _try_send(
        self, send: Callable[[EmailMessage], None], about: DigestSubject, digest: Digest, address: str
    ) -> str:
        """Send a digest and record it; return what went wrong, or an empty text."""
        try:
            sender = self._settings.sender
            send(make_digest_mail(digest, sender=sender, recipient=address, url=self._page(about)))
        except OutputError as error:
            self._failures_in_a_row += 1
            return str(error)
        self._failures_in_a_row = 0
        self._checkpoints.record_mail(_subject(about), address, self._now_seconds)
        return ""

    def _page(self, about: DigestSubject) -> str:
        return page_of("accounts" if about.is_account else "users", about.name, self._settings)

    def _unsubscribe(self, reader: str) -> str:
        """Return the section of the reader's page that stops digests, or a sentence for an address without a page."""
        if "@" not in reader and (page := page_of("users", reader, self._settings)):
            return f"{page}#digest"
        return f"ask your cluster's support to run: slurmscope digest --opt-out {reader}"


def _subject(about: DigestSubject) -> str:
    return f"digest of {'account' if about.is_account else 'user'} {about.name}"


def _coordinated_clusters(archive: SqlArchive, commands: SlurmCommands) -> frozenset[str] | None:
    """Return the clusters whose accounts the coordinators coordinate: those of this slurmdbd.

    If these cannot be read and the archive has one cluster, None is every cluster: users still get their digests.
    """
    try:
        return frozenset(read_all_names(commands.run))
    except SourceError:
        if len(archive.clusters()) > 1:
            raise
        return None


def _readers(about: DigestSubject, to: str, coordinators: Callable[[], CoordinatorsByAccount]) -> Sequence[str]:
    if not about.is_account:
        return (about.name,)
    return (to,) if to else coordinators().get(about.name, ())


@contextmanager
def open_lock(archive: SqlArchive, name: str) -> Iterator[SessionLock]:
    lock = archive.database.make_lock(name)
    try:
        yield lock
    finally:
        lock.release()


def require_lock(lock: SessionLock, what: str = "digests") -> None:
    """Raise ArchiveError while another process sends them: both would send each of them."""
    # The server closes a connection that was silent while a mail was made. To take the lock again is safe: each mail is
    # sent only if no other process has recorded it.
    with suppress(ArchiveError):
        if lock.hold():
            return
    if not lock.hold():
        raise ArchiveError(f"another process is sending {what} from this archive; run it on one host only")


@contextmanager
def _open_archive(config: Config, environment: Mapping[str, str]) -> Iterator[tuple[SqlArchive, Checkpoints]]:
    with open_reporting(config, environment) as reporting:
        if reporting.archive is None:
            raise no_archive(config.of(ArchiveSettings))
        from slurmscope.archive.checkpoints import Checkpoints

        yield reporting.archive, Checkpoints(reporting.archive.database)
