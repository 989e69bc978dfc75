# SPDX-License-Identifier: Apache-2.0
"""Digests go to those who did not opt out, once a week, and one that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from pathlib import Path

import pytest

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.interface import UseTotal
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.errors import ArchiveError, OutputError
from slurmscope.mail.digest import Digest, DigestSubject, DigestSums, make_digest
from slurmscope.mail.digest_delivery import MAX_FAILURES_IN_A_ROW, DigestSender, SendOutcome, require_lock
from slurmscope.reports.settings import MailSettings
from slurmscope.reports.sources import open_archive
from tests.fakes.mail_server import body_of
from tests.fakes.reports import START

DAY = 86400
SITE = MailSettings(domain="example.org", portal_url="https://jobs.example.org", sender="robot@example.org")
ADA = DigestSubject("ada", is_account=False)
PHYSICS = DigestSubject("physics", is_account=True)
TOTAL = UseTotal(
    key="now", jobs=3, core_seconds=36000.0, measured_core_seconds=36000.0, used_core_seconds=9000.0, gpu_seconds=0.0,
    measured_gpu_seconds=0.0, used_gpu_seconds=0.0, jobs_with_findings=1,
)  # fmt: skip
DIGEST = make_digest("ada", (START - 7 * DAY, START), DigestSums(totals=(TOTAL,)))


@pytest.fixture
def checkpoints(tmp_path: Path) -> Iterator[Checkpoints]:
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db", timeout=60.0))
    yield Checkpoints(archive.database)
    archive.close()


@dataclass
class Sender:
    """Keep mails, and fail for some addresses."""

    failing: tuple[str, ...] = ()
    mails: list[EmailMessage] = field(default_factory=list)
    tried: int = 0

    def send(self, mail: EmailMessage) -> None:
        self.tried += 1
        if mail["To"] in self.failing:
            raise OutputError(f"the mail to {mail['To']} was not sent")
        self.mails.append(mail)


def _deliver(
    checkpoints: Checkpoints, sender: Sender | None, *readers: str, about: DigestSubject = ADA, now: int = START
) -> list[SendOutcome]:
    digest_sender = DigestSender(checkpoints, SITE, sender.send if sender else None, now_seconds=now)
    return [delivery.outcome for delivery in digest_sender.deliver(about, DIGEST, readers)]


def test_digest_is_sent_to_the_address_of_its_reader(checkpoints: Checkpoints) -> None:
    sender = Sender()

    assert [SendOutcome.SENT] == _deliver(checkpoints, sender, "ada")

    (mail,) = sender.mails
    assert ("ada@example.org", "robot@example.org") == (mail["To"], mail["From"])
    assert "https://jobs.example.org/users/ada" in body_of(mail)
    # 10 hours held, a quarter used.
    assert "25 %" in body_of(mail)


@pytest.mark.parametrize("about", [ADA, PHYSICS])
def test_digest_names_the_page_on_which_its_reader_stops_it(checkpoints: Checkpoints, about: DigestSubject) -> None:
    sender = Sender()

    _deliver(checkpoints, sender, "ada", about=about)

    (mail,) = sender.mails
    assert "To stop these digests: https://jobs.example.org/users/ada#digest" in body_of(mail).splitlines()
    assert "<https://jobs.example.org/users/ada#digest>" == mail["List-Unsubscribe"]


@pytest.mark.parametrize(("reader", "site"), [("ada", replace(SITE, portal_url="")), ("head@elsewhere.org", SITE)])
def test_digest_names_the_command_where_its_reader_has_no_page(
    checkpoints: Checkpoints, reader: str, site: MailSettings
) -> None:
    sender = Sender()

    DigestSender(checkpoints, site, sender.send, now_seconds=START).deliver(PHYSICS, DIGEST, (reader,))

    (mail,) = sender.mails
    assert f"slurmscope digest --opt-out {reader}" in " ".join(body_of(mail).split())
    assert None is mail["List-Unsubscribe"]


@pytest.mark.parametrize(
    ("days", "outcome"),
    [
        (0, SendOutcome.SENT_RECENTLY),
        (1, SendOutcome.SENT_RECENTLY),
        (6, SendOutcome.SENT_RECENTLY),
        (6.9, SendOutcome.SENT),
        (7, SendOutcome.SENT),
    ],
)
def test_second_digest_waits_a_week(checkpoints: Checkpoints, days: float, outcome: SendOutcome) -> None:
    _deliver(checkpoints, Sender(), "ada")

    assert [outcome] == _deliver(checkpoints, Sender(), "ada", now=START + int(days * DAY))


def test_digests_about_different_things_do_not_wait_for_each_other(checkpoints: Checkpoints) -> None:
    _deliver(checkpoints, Sender(), "ada")

    assert [SendOutcome.SENT] == _deliver(checkpoints, Sender(), "ada", about=PHYSICS)
    assert [SendOutcome.SENT_RECENTLY] == _deliver(checkpoints, Sender(), "ada", about=PHYSICS)


def test_digest_from_the_future_stops_none(checkpoints: Checkpoints) -> None:
    _deliver(checkpoints, Sender(), "ada", now=START + 900 * DAY)

    assert [SendOutcome.SENT] == _deliver(checkpoints, Sender(), "ada")


def test_user_who_opted_out_gets_no_digest_until_opting_in(checkpoints: Checkpoints) -> None:
    checkpoints.set_opt_out("ada", is_opted_out=True)
    sender = Sender()

    assert [SendOutcome.OPTED_OUT, SendOutcome.SENT] == _deliver(checkpoints, sender, "ada", "bob", about=PHYSICS)
    checkpoints.set_opt_out("ada", is_opted_out=False)
    assert [SendOutcome.SENT] == _deliver(checkpoints, sender, "ada", about=PHYSICS)
    assert ["bob@example.org", "ada@example.org"] == [mail["To"] for mail in sender.mails]


def test_failing_digest_is_reported_and_sent_again_next_time(checkpoints: Checkpoints) -> None:
    sender = Sender(failing=("bob@example.org",))
    digest_sender = DigestSender(checkpoints, SITE, sender.send, now_seconds=START)

    deliveries = digest_sender.deliver(PHYSICS, DIGEST, ("ada", "bob", "carol"))

    assert [SendOutcome.SENT, SendOutcome.FAILED, SendOutcome.SENT] == [one.outcome for one in deliveries]
    assert "the mail to bob@example.org was not sent" == deliveries[1].problem
    assert [SendOutcome.SENT_RECENTLY, SendOutcome.SENT] == _deliver(checkpoints, Sender(), "ada", "bob", about=PHYSICS)


def test_impossible_address_is_a_failure_of_one_digest(checkpoints: Checkpoints) -> None:
    assert [SendOutcome.FAILED, SendOutcome.SENT] == _deliver(checkpoints, Sender(), "a b\nBcc: x", "ada")


def test_dead_mail_server_is_given_up(checkpoints: Checkpoints) -> None:
    readers = [f"user{number}" for number in range(MAX_FAILURES_IN_A_ROW + 5)]
    sender = Sender(failing=tuple(f"{reader}@example.org" for reader in readers))

    outcomes = _deliver(checkpoints, sender, *readers)

    assert MAX_FAILURES_IN_A_ROW == sender.tried
    assert [SendOutcome.FAILED] * MAX_FAILURES_IN_A_ROW + [SendOutcome.SERVER_DOWN] * 5 == outcomes
    assert all(outcome.is_failure for outcome in outcomes)


def test_failures_between_good_digests_do_not_add_up(checkpoints: Checkpoints) -> None:
    readers = [f"user{number}" for number in range(3 * MAX_FAILURES_IN_A_ROW)]
    sender = Sender(failing=tuple(f"{reader}@example.org" for reader in readers[::2]))

    assert SendOutcome.SERVER_DOWN not in _deliver(checkpoints, sender, *readers)


def test_digest_that_is_only_shown_is_not_recorded(checkpoints: Checkpoints) -> None:
    digest_sender = DigestSender(checkpoints, SITE, None, now_seconds=START)

    (delivery,) = digest_sender.deliver(ADA, DIGEST, ("ada",))

    assert (SendOutcome.SHOWN, "ada@example.org") == (delivery.outcome, delivery.recipient)
    assert "3 jobs ended" in delivery.text
    assert [SendOutcome.SENT] == _deliver(checkpoints, Sender(), "ada")


def test_headers_are_computed_once_and_only_for_digests_that_are_due(checkpoints: Checkpoints) -> None:
    completed: list[DigestSubject] = []

    def complete(about: DigestSubject, digest: Digest) -> Digest:
        completed.append(about)
        return replace(digest, energy_jobs=1, energy_joules=7.2e6)

    sender = Sender()
    digest_sender = DigestSender(checkpoints, SITE, sender.send, now_seconds=START, complete=complete)
    checkpoints.set_opt_out("ada", is_opted_out=True)

    assert [SendOutcome.OPTED_OUT] == [one.outcome for one in digest_sender.deliver(ADA, DIGEST, ("ada",))]
    assert [] == completed
    digest_sender.deliver(PHYSICS, DIGEST, ("ada", "bob", "eve"))
    assert [PHYSICS] == completed
    assert [True, True] == ["2 kWh" in body_of(mail) for mail in sender.mails]


def test_without_jobs_or_readers_there_is_nothing_to_send(checkpoints: Checkpoints) -> None:
    digest_sender = DigestSender(checkpoints, SITE, Sender().send, now_seconds=START)

    assert [SendOutcome.NO_JOBS] == [one.outcome for one in digest_sender.deliver(ADA, None, ("ada",))]
    assert [SendOutcome.NO_RECIPIENT] == [one.outcome for one in digest_sender.deliver(PHYSICS, DIGEST, ())]


class FailingLock:
    """Return or raise what is given, one after the other."""

    def __init__(self, *outcomes: bool | ArchiveError) -> None:
        self.outcomes = list(outcomes)

    def hold(self) -> bool:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, ArchiveError):
            raise outcome
        return outcome

    def is_taken(self) -> bool:
        return True

    def release(self) -> None:
        pass


@pytest.mark.parametrize("first", [True, False, ArchiveError("the server closed the silent connection")])
def test_lock_that_was_lost_while_a_digest_was_made_is_taken_again(first: bool | ArchiveError) -> None:
    require_lock(FailingLock(first, True))


@pytest.mark.parametrize("first", [False, ArchiveError("the server closed the silent connection")])
def test_lock_of_another_process_stops_the_digests(first: bool | ArchiveError) -> None:
    with pytest.raises(ArchiveError, match="another process is sending digests"):
        require_lock(FailingLock(first, False))
