# SPDX-License-Identifier: Apache-2.0
"""``slurmscope mail`` sends reports, also when Slurm calls it as its MailProg."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from email.message import EmailMessage
from io import BytesIO
from pathlib import Path

import pytest
from pypdf import PdfReader

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.reporter.reporters import STUCK_MAILS
from slurmscope.reports.sources import open_archive
from tests.fakes.command_line import run_here
from tests.fakes.mail_server import Mailbox, body_of, mail_server
from tests.fakes.prometheus_server import FakePrometheus, vector
from tests.fakes.reports import make_record, make_report
from tests.fakes.scripted_server import scripted_server
from tests.fakes.slurm_scripts import make_commands

ENDED = "Ended, Run time 02:00:00, COMPLETED, ExitCode 0"


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with mail_server(Mailbox()) as mailbox:
        yield mailbox


def _mail(mailbox: Mailbox, archive: Path, slurm: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    places = ("--archive.url", str(archive), "--slurm.bin-path", str(slurm), "--mail.server", mailbox.address)
    site = ("--mail.domain", "example.org", "--mail.portal-url", "https://jobs.example.org")
    return run_here("mail", *places, *site, *arguments)


def _only(mailbox: Mailbox) -> EmailMessage:
    (mail,) = mailbox.mails
    return mail


def _subject(mailbox: Mailbox) -> str:
    """Return the subject; a long one is folded, which leaves a blank."""
    return " ".join(_only(mailbox)["Subject"].split())


def _pdf_text(mail: EmailMessage) -> str:
    (part,) = [part for part in mail.iter_attachments() if part.get_content_type() == "application/pdf"]
    content = part.get_content()
    assert isinstance(content, bytes)
    return "\n".join(page.extract_text() for page in PdfReader(BytesIO(content)).pages)


def test_report_goes_to_the_owner_with_its_pdf(mailbox: Mailbox, shared_archive: Path, slurm: Path) -> None:
    done = _mail(mailbox, shared_archive, slurm, "12")

    mail = _only(mailbox)
    assert (0, "sent to ada@example.org\n", "") == (done.returncode, done.stdout, done.stderr)
    assert (["ada@example.org"], "ada@example.org") == (mailbox.recipients, mail["To"])
    assert "2 of 4 cores busy" in body_of(mail)
    assert "https://jobs.example.org/jobs/12" in body_of(mail)
    assert "WARNING=true" == body_of(mail).rstrip().splitlines()[-1]
    assert "Job 12" in _pdf_text(mail)
    assert mail["Date"]
    assert mail["Message-ID"]


def test_report_goes_to_the_given_address(mailbox: Mailbox, shared_archive: Path, slurm: Path) -> None:
    _mail(mailbox, shared_archive, slurm, "15_3", "--to", "staff@elsewhere.org")

    assert ["staff@elsewhere.org"] == mailbox.recipients
    assert "lab job 15_3 relax: COMPLETED" == _subject(mailbox)


def test_slurm_gets_the_report_sent_when_a_job_ended(mailbox: Mailbox, shared_archive: Path, slurm: Path) -> None:
    subject = "Slurm Job_id=12 Name=x Ended, Run time 00:10:00, COMPLETED, ExitCode 0"

    done = _mail(mailbox, shared_archive, slurm, "-s", subject, "alice")

    # Slurm would log whatever its mail program writes.
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert ["alice@example.org"] == mailbox.recipients
    assert "2 of 4 cores busy" in body_of(_only(mailbox))
    assert "Job 12" in _pdf_text(_only(mailbox))


def test_task_of_an_array_gets_its_own_report(mailbox: Mailbox, shared_archive: Path, slurm: Path) -> None:
    _mail(mailbox, shared_archive, slurm, "-s", f"Slurm Array Task Job_id=15_3 (16) Name=x {ENDED}", "alice")

    assert "lab job 15_3 relax: COMPLETED" == _subject(mailbox)


def test_whole_array_is_refused_with_a_hint_to_its_tasks(mailbox: Mailbox, shared_archive: Path, slurm: Path) -> None:
    subject = "Slurm Array Summary Job_id=15_* (15) Name=x Ended, COMPLETED, ExitCode [0-0]"

    _mail(mailbox, shared_archive, slurm, "-s", subject, "alice")

    assert subject == _subject(mailbox)
    assert f"{subject}\n\nEach task has its own report: https://jobs.example.org/arrays/15\n" == body_of(_only(mailbox))


def test_begin_goes_out_as_it_came(mailbox: Mailbox, shared_archive: Path, slurm: Path) -> None:
    subject = "Slurm Job_id=12 Name=x Began, Queued time 00:00:01"

    done = _mail(mailbox, shared_archive, slurm, "-s", subject, "alice")

    assert 0 == done.returncode
    assert (subject, f"{subject}\n") == (_subject(mailbox), body_of(_only(mailbox)))


# Of a job whose end came to slurmdbd before its start; separator and columns are arguments of sacct.
PARTIAL = """
for argument; do case $argument in
    --delimiter=*) mark=${argument#*=} ;; --format=*) columns=${argument#*=} ;; --helpformat) exit ;;
esac; done
IFS=,
for column in $columns; do
    case $column in
        JobIDRaw|JobID) cell=99 ;; JobName) cell=allocation ;; Cluster) cell=lab ;; User) cell=ada ;; UID) cell=0 ;;
        Submit|Start) cell=1790000000 ;; End) cell=1790000060 ;; AllocTRES) cell=cpu=4 ;; NodeList) cell=n1 ;;
        ExitCode) cell=0:0 ;; TotalCPU) cell=00:00.000 ;; State) cell=COMPLETED ;; *) cell= ;;
    esac
    row=$row$mark$cell
done
echo "${row#"$mark"}"
"""


@pytest.mark.parametrize(
    ("sacct", "reason"),
    [
        ("", "job 99 is not in accounting"),
        ("echo 'slurmdbd is away' >&2; exit 1", "slurmdbd is away"),
        (PARTIAL, "accounting has only part of the record of job 99 so far"),
    ],
)
def test_notice_goes_out_with_the_reason_when_there_is_no_report(
    mailbox: Mailbox, shared_archive: Path, tmp_path: Path, sacct: str, reason: str
) -> None:
    slurm = make_commands(tmp_path / "bin", {"sacct": sacct})
    subject = f"Slurm Job_id=99 Name=x {ENDED}"

    done = _mail(mailbox, shared_archive, slurm, "--wait", "0", "-s", subject, "alice")

    assert 0 == done.returncode
    assert subject == _subject(mailbox)
    assert body_of(_only(mailbox)).startswith(f"{subject}\n\nNo report could be made: ")
    assert reason in body_of(_only(mailbox))


def test_every_recipient_gets_the_mail_though_one_is_refused(
    mailbox: Mailbox, shared_archive: Path, slurm: Path
) -> None:
    mailbox.refused["bob@example.org"] = "550 no such mailbox"

    done = _mail(mailbox, shared_archive, slurm, "-s", f"Slurm Job_id=12 Name=x {ENDED}", "alice,bob,@@,eve@far.org")

    assert ["alice@example.org", "eve@far.org"] == mailbox.recipients
    assert 2 == done.returncode
    assert "bob@example.org" in done.stderr
    assert "'@@' is not one mail address" in done.stderr
    assert "550 no such mailbox" in done.stderr


def test_unreachable_mail_server_is_reported(shared_archive: Path, slurm: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        away = Mailbox(address=f"127.0.0.1:{free.getsockname()[1]}")

    done = _mail(away, shared_archive, slurm, "12")

    message = f"slurmscope: cannot send the mail to ada@example.org through {away.address}: Connection refused\n"
    assert (2, message) == (done.returncode, done.stderr)


def test_two_job_numbers_are_not_understood(mailbox: Mailbox, shared_archive: Path, slurm: Path) -> None:
    done = _mail(mailbox, shared_archive, slurm, "12", "13")

    assert (2, []) == (done.returncode, mailbox.mails)
    assert "expected one job ID" in done.stderr


def test_report_is_that_of_the_cluster_that_sends_the_mail(
    mailbox: Mailbox, archive: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_archive(ArchiveSettings(url=f"sqlite:///{archive}"))) as opened:
        opened.save([make_report(make_record(12, cluster="beta", name="twin"))])

    monkeypatch.setenv("SLURM_CLUSTER_NAME", "Beta")
    _mail(mailbox, archive, slurm, "-s", f"Slurm Job_id=12 Name=x {ENDED}", "alice")

    assert "beta job 12 twin: COMPLETED" == _subject(mailbox)


def test_mail_without_a_cluster_does_not_report_one_of_two_jobs(mailbox: Mailbox, archive: Path, slurm: Path) -> None:
    with closing(open_archive(ArchiveSettings(url=f"sqlite:///{archive}"))) as opened:
        opened.save([make_report(make_record(12, cluster="beta", name="twin"))])

    _mail(mailbox, archive, slurm, "-s", f"Slurm Job_id=12 Name=x {ENDED}", "alice")

    assert "job 12 exists in several clusters: beta, lab" in body_of(_only(mailbox))


def test_command_for_a_task_names_the_cluster_if_there_are_several(
    mailbox: Mailbox, archive: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "Beta")
    summary = ("-s", "Slurm Array Summary Job_id=15_* (15) Name=x Ended, COMPLETED, ExitCode [0-0]", "alice")
    _mail(mailbox, archive, slurm, "--mail.portal-url", "", *summary)
    with closing(open_archive(ArchiveSettings(url=f"sqlite:///{archive}"))) as opened:
        opened.save([make_report(make_record(12, cluster="beta", name="twin"))])
    _mail(mailbox, archive, slurm, "--mail.portal-url", "", *summary)

    commands = ["slurmscope report 15_1", "slurmscope report 15_1 -M beta"]
    assert commands == [body_of(mail).rstrip().partition("its own report: ")[2] for mail in mailbox.mails]


@pytest.mark.parametrize("words", [("12",), ("-s", f"Slurm Job_id=12 Name=relax {ENDED}", "ada", "--wait", "0")])
def test_dry_run_prints_the_mail_and_sends_nothing(
    mailbox: Mailbox, shared_archive: Path, slurm: Path, words: tuple[str, ...]
) -> None:
    done = _mail(mailbox, shared_archive, slurm, *words, "--dry-run")

    assert (0, "") == (done.returncode, done.stderr)
    assert [] == mailbox.mails
    lines = done.stdout.splitlines()
    assert "To: ada@example.org" == lines[1]
    assert lines[2].startswith("Subject: ")
    assert "Also attached: the report as HTML, 12_summary.pdf" == lines[3]
    assert "Nothing was sent." == lines[-1]
    assert any("https://jobs.example.org" in line for line in lines)
    sent = _mail(mailbox, shared_archive, slurm, *words)
    assert 0 == sent.returncode
    body = [line.rstrip() for line in body_of(_only(mailbox)).splitlines() if not line.startswith("  Made by")]
    shown = [line.rstrip() for line in lines[5:-1] if not line.startswith("  Made by")]
    assert [line for line in body if line] == [line for line in shown if line]


def test_stuck_jobs_need_prometheus(mailbox: Mailbox, shared_archive: Path, slurm: Path) -> None:
    done = _mail(mailbox, shared_archive, slurm, "--stuck")

    assert (2, []) == (done.returncode, mailbox.mails)
    assert "alerts are read from Prometheus: set prometheus.url" in done.stderr


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_stuck_job_that_cannot_be_read_is_reported(
    mailbox: Mailbox, shared_archive: Path, tmp_path: Path, dry_run: tuple[str, ...]
) -> None:
    slurm = make_commands(tmp_path / "bin", {"sacct": "echo 'slurmdbd is away' >&2; exit 1"})
    prometheus = FakePrometheus([vector(({"slurm_job": "99", "cluster": "lab"}, (1790000000, "1")))])

    with scripted_server(prometheus.handle) as url:
        done = _mail(mailbox, shared_archive, slurm, "--stuck", "--prometheus.url", url, *dry_run)

    assert (1, "", []) == (done.returncode, done.stdout, mailbox.mails)
    assert done.stderr.startswith("not sent: ")
    assert "slurmdbd is away" in done.stderr


@pytest.mark.parametrize(("dry_run", "is_refused"), [((), True), (("--dry-run",), False)])
def test_two_timers_do_not_mail_about_stuck_jobs_at_the_same_time(
    mailbox: Mailbox, shared_archive: Path, slurm: Path, dry_run: tuple[str, ...], is_refused: bool
) -> None:
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{shared_archive}", timeout=60.0))
    lock = archive.database.make_lock(STUCK_MAILS)
    try:
        assert lock.hold()
        with scripted_server(FakePrometheus([vector()]).handle) as url:
            done = _mail(mailbox, shared_archive, slurm, "--stuck", "--prometheus.url", url, *dry_run)
    finally:
        lock.release()
        archive.close()

    assert is_refused == bool(done.returncode)
    assert is_refused == ("another process is sending mails about stuck jobs" in done.stderr)


@pytest.mark.parametrize("other", [("12",), ("--to", "me@example.org"), ("-M", "lab"), ("-s", "Slurm Job_id=12")])
def test_stuck_jobs_are_chosen_by_alerts_alone(
    mailbox: Mailbox, shared_archive: Path, slurm: Path, other: tuple[str, ...]
) -> None:
    done = _mail(mailbox, shared_archive, slurm, "--stuck", *other)

    assert (True, []) == (bool(done.returncode), mailbox.mails)
    assert "--stuck mails the owners of all stuck jobs" in done.stderr
