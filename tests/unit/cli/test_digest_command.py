# SPDX-License-Identifier: Apache-2.0
"""``slurmscope digest`` mails users and accounts once a week, unless they opted out."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.reporter.reporters import DIGESTS
from slurmscope.reports.sources import open_archive
from tests.fakes.command_line import run_here
from tests.fakes.mail_server import Mailbox, body_of, mail_server
from tests.fakes.slurm_scripts import make_commands


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with mail_server(Mailbox()) as mailbox:
        yield mailbox


def _digest(mailbox: Mailbox, archive: Path, slurm: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    places = ("--archive.url", str(archive), "--slurm.bin-path", str(slurm), "--mail.server", mailbox.address)
    return run_here("digest", *places, "--mail.domain", "example.org", *arguments)


def test_users_and_coordinators_get_their_digests_once_a_week(mailbox: Mailbox, archive: Path, slurm: Path) -> None:
    done = _digest(mailbox, archive, slurm, "--all-users", "--all-accounts")
    again = _digest(mailbox, archive, slurm, "--all-users")

    assert (0, "") == (done.returncode, done.stderr)
    addresses = [f"{name}@example.org" for name in ("ada", "bob", "grace", "ada")]
    assert addresses == mailbox.recipients
    assert "sent: 4" == done.stdout.splitlines()[-1]
    assert (0, "sent recently: 2") == (again.returncode, again.stdout.splitlines()[-1])
    to_ada, _, to_grace, _ = map(body_of, mailbox.mails)
    # Three jobs of eight core hours, half of them used, as in the week before.
    assert re.search(r"3 jobs ended.*Cores +24 +24 +12 +50 % +50 %", to_ada, re.DOTALL)
    assert re.search(r"account physics.*4 jobs ended.*Cores +32 +32 +16 +50 % +50 %", to_grace, re.DOTALL)


def test_records_of_old_digests_are_deleted(mailbox: Mailbox, archive: Path, slurm: Path) -> None:
    now, day = int(time.time()), 86400
    with closing(open_archive(ArchiveSettings(url=f"sqlite:///{archive}"))) as opened:
        kept = Checkpoints(opened.database)
        for days in (29, 31):
            kept.record_mail("digest of user grace", f"{days}@example.org", now - days * day)

        def known() -> list[bool]:
            return [kept.last_mail("digest of user grace", f"{days}@example.org") is not None for days in (29, 31)]

        _digest(mailbox, archive, slurm, "--user", "nobody", "--dry-run")
        assert [True, True] == known()
        _digest(mailbox, archive, slurm, "--user", "nobody")
        assert [True, False] == known()


def test_second_sender_at_the_same_time_sends_nothing(mailbox: Mailbox, archive: Path, slurm: Path) -> None:
    with closing(open_archive(ArchiveSettings(url=f"sqlite:///{archive}"))) as opened:
        other = opened.database.make_lock(DIGESTS)
        assert other.hold()
        refused = _digest(mailbox, archive, slurm, "--all-users")
        shown = _digest(mailbox, archive, slurm, "--all-users", "--dry-run")
        other.release()

    assert (2, 0, []) == (refused.returncode, shown.returncode, mailbox.mails)
    assert "another process is sending digests from this archive" in refused.stderr
    assert 0 == _digest(mailbox, archive, slurm, "--all-users").returncode


def test_dry_run_shows_digests_and_sends_none(mailbox: Mailbox, archive: Path, slurm: Path) -> None:
    done = _digest(mailbox, archive, slurm, "--user", "ada", "--user", "nobody", "--dry-run")

    assert (0, []) == (done.returncode, mailbox.mails)
    assert "user ada to ada@example.org: shown\n\nUse of the cluster by ada" in done.stdout
    assert "user nobody: no jobs ended in this period\n" in done.stdout
    assert "\x1b" not in done.stdout


def test_digests_are_shown_in_any_locale(mailbox: Mailbox, archive: Path) -> None:
    done = run_here(
        "digest", "--user", "bob", "--dry-run", "--archive.url", str(archive), "--mail.server", mailbox.address,
        encoding="ascii",
    )  # fmt: skip

    assert (0, "") == (done.returncode, done.stderr)
    assert "14 gr?n ? ??" in done.stdout


def test_user_can_be_left_out_and_taken_in_again(mailbox: Mailbox, archive: Path, slurm: Path) -> None:
    out = _digest(mailbox, archive, slurm, "--opt-out", "ada")
    without = _digest(mailbox, archive, slurm, "--all-users")
    with_ada = _digest(mailbox, archive, slurm, "--opt-in", "ada", "--user", "ada")

    assert (0, "ada no longer gets digests\n", "") == (out.returncode, out.stdout, out.stderr)
    assert "user ada to ada@example.org: opted out of digests\n" in without.stdout
    assert ["ada gets digests again", "user ada to ada@example.org: sent"] == with_ada.stdout.splitlines()[:2]
    assert ["bob@example.org", "ada@example.org"] == mailbox.recipients


def test_failing_digest_is_reported_and_stops_no_other(mailbox: Mailbox, archive: Path, slurm: Path) -> None:
    mailbox.refused["ada@example.org"] = "550 no such mailbox"

    done = _digest(mailbox, archive, slurm, "--all-users")

    assert (1, ["bob@example.org"]) == (done.returncode, mailbox.recipients)
    assert done.stderr.startswith("user ada to ada@example.org: not sent: ")
    assert "550 no such mailbox" in done.stderr
    assert "failed: 1, sent: 1" == done.stdout.splitlines()[-1]


def test_account_digest_goes_to_the_given_address(mailbox: Mailbox, archive: Path, tmp_path: Path) -> None:
    slurm = make_commands(tmp_path / "bin", {"sacctmgr": "exit 1"})

    done = _digest(mailbox, archive, slurm, "--account", "physics", "--to", "head@elsewhere.org")

    assert (0, ["head@elsewhere.org"]) == (done.returncode, mailbox.recipients)


@pytest.mark.parametrize(("cluster", "recipients"), [("lab", ["grace@example.org"]), ("elsewhere", [])])
def test_coordinators_get_digests_about_clusters_of_their_slurmdbd(
    mailbox: Mailbox, archive: Path, tmp_path: Path, cluster: str, recipients: list[str]
) -> None:
    """The archive has jobs of lab only, which another slurmdbd than that of this host may have."""
    answer = f"case \"$*\" in *'show cluster'*) echo {cluster};; *) echo 'physics|grace';; esac"
    slurm = make_commands(tmp_path / "bin", {"sacctmgr": answer})

    done = _digest(mailbox, archive, slurm, "--account", "physics")

    assert (0, recipients) == (done.returncode, mailbox.recipients)


def test_users_get_digests_while_clusters_and_coordinators_are_unknown(
    mailbox: Mailbox, archive: Path, tmp_path: Path
) -> None:
    slurm = make_commands(tmp_path / "bin", {"sacctmgr": "exit 1"})

    done = _digest(mailbox, archive, slurm, "--all-users", "--all-accounts")

    assert (2, ["ada@example.org", "bob@example.org"]) == (done.returncode, mailbox.recipients)


def test_unknown_coordinators_are_reported(mailbox: Mailbox, archive: Path, tmp_path: Path) -> None:
    silent = make_commands(tmp_path / "silent", {"sacctmgr": ""})
    broken = make_commands(tmp_path / "broken", {"sacctmgr": "echo 'slurmdbd is away' >&2; exit 1"})

    nobody = _digest(mailbox, archive, silent, "--account", "physics")
    failed = _digest(mailbox, archive, broken, "--account", "physics")

    assert (0, "account physics: the account has no coordinator") == (nobody.returncode, nobody.stdout.splitlines()[0])
    assert 2 == failed.returncode
    assert "slurmdbd is away" in failed.stderr
    assert [] == mailbox.mails


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "no recipients given"),
        (("--user", "ada", "--to", "x@example.org"), "--to applies only to account digests"),
        (("--all-users", "--days", "0"), "days"),
    ],
)
def test_wrong_request_is_refused(
    mailbox: Mailbox, archive: Path, slurm: Path, flags: tuple[str, ...], message: str
) -> None:
    done = _digest(mailbox, archive, slurm, *flags)

    assert (2, []) == (done.returncode, mailbox.mails)
    assert message in done.stderr


def test_missing_archive_is_reported(mailbox: Mailbox, tmp_path: Path, slurm: Path) -> None:
    done = _digest(mailbox, tmp_path / "none.db", slurm, "--opt-out", "ada")

    assert (2, False) == (done.returncode, (tmp_path / "none.db").exists())
    assert "there is no readable archive" in done.stderr
