# SPDX-License-Identifier: Apache-2.0
"""A real Slurm mails through slurmscope: the report at the end of a job, everything else as it came."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import ALICE, SlurmLab
from lab.config import LabSettings
from slurmscope.slurm.coordinators import ARGUMENTS, COMMAND, parse_coordinators
from tests.fakes.mail_server import Mailbox, body_of, mail_server

pytestmark = pytest.mark.lab

PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def mailbox() -> Iterator[Mailbox]:
    with mail_server(Mailbox()) as mailbox:
        yield mailbox


@pytest.fixture(scope="module")
def mailing_lab(mailbox: Mailbox) -> Iterator[SlurmLab]:
    """Start a cluster of one node whose mail program is ours."""
    # Not pytest's own temporary folder: that one is closed to the users whose jobs run here.
    folder = Path(tempfile.mkdtemp(prefix="slurm-lab-"))
    program = Path(tempfile.mkdtemp(prefix="slurm-mail-")) / "mail"
    lab = SlurmLab(folder, LabSettings(node_count=1, extra_lines=(f"MailProg={program}",)))
    _write_program(program, "exit 0")
    try:
        lab.start()
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in lab.environment.items())
        command = [sys.executable, "-m", "slurmscope", "mail", "--mail.server", mailbox.address]
        command += ["--slurm.bin-path", str(lab.bin_path), "--archive.url", str(program.parent / "none.db")]
        _write_program(program, f'{variables} exec {shlex.join(command)} "$@" 2>>{program.parent}/complaints')
        yield lab
    finally:
        lab.destroy()
        shutil.rmtree(program.parent)


def _write_program(path: Path, script: str) -> None:
    aside = path.with_suffix(".new")
    aside.write_text(f"#!/bin/sh\n{script}\n")
    aside.chmod(0o755)
    aside.replace(path)


def _wait_for_mail(lab: SlurmLab, mailbox: Mailbox, recipient: str, count: int) -> dict[str, str]:
    """Return the texts of somebody's mails by their subjects, when there are so many."""

    def mails() -> dict[str, str]:
        return {" ".join(mail["Subject"].split()): body_of(mail) for mail in mailbox.mails if mail["To"] == recipient}

    lab.wait_for(lambda: len(mails()) >= count, PATIENCE_SECONDS, f"{count} mails to {recipient}")
    return mails()


def test_end_of_a_job_brings_its_report(mailing_lab: SlurmLab, mailbox: Mailbox) -> None:
    flags = ("--mail-type=BEGIN,END", "--mail-user=ada@example.org", "--mem=100M", "--job-name=x Ended, or not")
    job = mailing_lab.submit(ALICE, *flags, script="sleep 2")

    mails = _wait_for_mail(mailing_lab, mailbox, "ada@example.org", 2)

    (begin,) = [subject for subject in mails if " Began" in subject]
    (report,) = [subject for subject in mails if subject != begin]
    assert begin.startswith(f"Slurm Job_id={job} Name=x Ended, or not Began, Queued time ")
    assert f"{begin}\n" == mails[begin]
    assert report.endswith(f"job {job} x Ended, or not: COMPLETED")
    assert "100 MiB" in mails[report]
    assert mails[report].rstrip().splitlines()[-1] in {"WARNING=true", "WARNING=false"}


def test_tasks_and_arrays_are_told_apart(mailing_lab: SlurmLab, mailbox: Mailbox) -> None:
    whole = mailing_lab.submit(
        ALICE, "--mail-type=END", "--mail-user=whole@example.org", "--mem=100M", "--array=1-2", script="true"
    )
    tasks = mailing_lab.submit(
        ALICE, "--mail-type=END,ARRAY_TASKS", "--mail-user=tasks@example.org", "--mem=100M", "--array=1-2",
        script="true",
    )  # fmt: skip

    (summary,) = _wait_for_mail(mailing_lab, mailbox, "whole@example.org", 1).items()
    reports = _wait_for_mail(mailing_lab, mailbox, "tasks@example.org", 2)

    assert summary[0].startswith(f"Slurm Array Summary Job_id={whole}_* ({whole}) ")
    assert f"slurmscope report {whole}_1" in summary[1]
    assert {f"job {tasks}_1 ", f"job {tasks}_2 "} == {
        subject[subject.index("job ") : subject.index("sbatch")] for subject in reports
    }


def test_coordinators_of_accounts_are_read(mailing_lab: SlurmLab) -> None:
    mailing_lab.run("sacctmgr", "--immediate", "add", "coordinator", "accounts=physics", "names=labbob,labcarol")

    answer = mailing_lab.run(COMMAND, *ARGUMENTS).encode()

    assert {"physics": ("labbob", "labcarol")} == parse_coordinators(answer)
