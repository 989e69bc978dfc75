# SPDX-License-Identifier: Apache-2.0
"""Attack: a user submits jobs whose mail recipient is a command, a file or an option of the mail program."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import ALICE, SlurmLab
from lab.config import LabSettings
from lab.requirements import find_program

pytestmark = pytest.mark.lab

MAIL_SLURMSCOPE = Path(__file__).resolve().parents[2] / "deploy" / "mail-slurmscope"
PATIENCE_SECONDS = 120.0

# Called by slurmctld: writes down each recipient when our script has dealt with it.
MAIL_PROGRAM = """#!/bin/sh
/bin/sh {folder}/mail-slurmscope "$@"
printf '%s\\n' "$3" >>{folder}/finished
"""
# Stand in place of slurmscope, which cannot send at this site, and of the mail program: mail to a user is written down,
# everything else is left to GNU mailutils.
PROGRAMS = {
    "slurmscope": 'printf "%s\\n" "$@" >>{folder}/slurmscope.given; exit 2',
    "mail": 'printf "%s\\n" "$3" >>{folder}/mailed; case $3 in ada@example.org) exit 0;; esac; exec {mail} "$@"',
}


@pytest.fixture(scope="module")
def mail() -> str:
    """Return the mail program of GNU mailutils."""
    return find_program("mail", "mailutils")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Give a folder that users can write to."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-mail-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def mailing_lab(folder: Path, mail: str) -> Iterator[SlurmLab]:
    """Start a cluster of one node that mails through the script that we deploy."""
    for name, script in PROGRAMS.items():
        (folder / name).write_text(f"#!/bin/sh\n{script.format(folder=folder, mail=mail)}\n")
        (folder / name).chmod(0o755)
    text = MAIL_SLURMSCOPE.read_text(encoding="utf-8").replace("/opt/slurmscope/bin/slurmscope", f"{folder}/slurmscope")
    (folder / "mail-slurmscope").write_text(text.replace("/usr/bin/mail", f"{folder}/mail"))
    program = folder / "mail-program"
    program.write_text(MAIL_PROGRAM.format(folder=folder))
    program.chmod(0o755)
    home = Path(tempfile.mkdtemp(prefix="slurm-lab-"))
    lab = SlurmLab(home, LabSettings(node_count=1, extra_lines=(f"MailProg={program}",)))
    try:
        lab.start()
        yield lab
    finally:
        lab.destroy()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_recipient_of_a_job_runs_no_command_and_writes_no_file(mailing_lab: SlurmLab, folder: Path, mail: str) -> None:
    # The attack is real: this is what the mail program does with such a recipient. It fails where the command, which
    # reads nothing, ends before the mail is written to it.
    subprocess.run([mail, "-s", "x", f"|touch {folder}/direct"], stdin=subprocess.DEVNULL, timeout=60, check=False)
    mailing_lab.wait_for((folder / "direct").exists, PATIENCE_SECONDS, "the mail program to run the command")
    hostile = [
        f"|touch {folder}/forged-command",
        f"ada@example.org,|touch {folder}/forged-second",
        f"{folder}/forged-file",
        f"--exec=shell touch {folder}/forged-option",
        f"$(touch {folder}/forged-substitution)",
        f"`touch {folder}/forged-backticks`",
        f"ada@example.org;touch {folder}/forged-list",
    ]

    for recipient in (*hostile, "ada@example.org"):
        flags = ("--mail-type=END", f"--mail-user={recipient}", f"--job-name=$(touch {folder}/forged-name)")
        mailing_lab.submit(ALICE, *flags, script="exit 0")
    mailing_lab.wait_for(
        lambda: {*lines(folder / "finished")} >= {*hostile, "ada@example.org"}, PATIENCE_SECONDS, "all mails"
    )

    assert [] == [path.name for path in folder.glob("forged*")]
    assert ["ada@example.org"] == lines(folder / "mailed")
    # The one who has an address is mailed, first by us, then by the mail program.
    assert "ada@example.org" in lines(folder / "slurmscope.given")
    assert not {*hostile} & {*lines(folder / "slurmscope.given")}
