# SPDX-License-Identifier: Apache-2.0
"""One process at a time is elected in an archive that is a file; a killed one is replaced at once."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.election import Election, find_elected, record_name
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.core.errors import ArchiveError, ArchiveSchemaError
from slurmscope.reports.sources import open_archive
from tests.contracts.election import ROLE, ElectionContract, until_elected

OTHER_PROCESS = """
import sys, time
from slurmscope.archive.election import Election
from slurmscope.reports.sources import open_archive
from slurmscope.archive.settings import ArchiveSettings
election = Election(open_archive(ArchiveSettings(url=sys.argv[1])).database, sys.argv[2])
election.hold_lock()
print(election.elected.is_set(), flush=True)
time.sleep(600)
"""


class TestSqlite(ElectionContract):
    """Run the contract tests on a file."""


def test_killed_process_is_replaced(archive: SqlArchive) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, archive.database.settings.url, ROLE], stdout=subprocess.PIPE, text=True
    )
    with other, closing(Election(archive.database, ROLE)) as ours:
        assert other.stdout is not None
        assert "True\n" == other.stdout.readline()
        ours.hold_lock()
        assert not ours.elected.is_set()
        assert other.pid == getattr(find_elected(archive.database, ROLE), "pid", None)
        other.send_signal(signal.SIGKILL)
        other.wait()

        until_elected(ours)

        assert os.getpid() == getattr(find_elected(archive.database, ROLE), "pid", None)


def test_process_that_is_not_elected_says_so_once(archive: SqlArchive, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        closing(Election(archive.database, ROLE)) as elected,
        closing(Election(archive.database, ROLE)) as other,
    ):
        elected.hold_lock()
        other.hold_lock()
        other.hold_lock()

    assert ["this process was elected", "another process is elected; waiting"] == caplog.messages


def test_lock_file_is_closed_to_others_and_no_link(archive: SqlArchive, tmp_path: Path) -> None:
    with closing(Election(archive.database, ROLE)) as election:
        election.hold_lock()
        (file,) = tmp_path.glob("*.lock")
        assert 0o600 == file.stat().st_mode & 0o777
        file.unlink()
        file.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ArchiveError, match="cannot lock"):
            election.hold_lock()
        with pytest.raises(ArchiveError, match="cannot read"):
            find_elected(archive.database, ROLE)
        assert not election.elected.is_set()


@pytest.mark.parametrize("value", ["", "nonsense", "[]", '{"term": "x"}', '{"term": 1}'])
def test_damaged_record_is_replaced(archive: SqlArchive, value: str) -> None:
    Checkpoints(archive.database).write_checkpoint(record_name(ROLE), value)
    with closing(Election(archive.database, ROLE)) as election:
        election.hold_lock()
        assert 1 == getattr(find_elected(archive.database, ROLE), "term", None)


def test_file_with_two_names_has_one_lock(archive: SqlArchive, tmp_path: Path) -> None:
    (tmp_path / "current.db").symlink_to("archive.db")
    ours = archive.database.make_lock(ROLE)
    with closing(open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/current.db", timeout=60.0))) as other:
        theirs = other.database.make_lock(ROLE)

        assert (True, False, True) == (ours.hold(), theirs.hold(), theirs.is_taken())
        ours.release()
        assert theirs.hold()
        theirs.release()


def test_process_steps_down_when_the_tables_are_those_of_another_release(archive: SqlArchive) -> None:
    lock = archive.database.make_lock(record_name(ROLE))
    with closing(Election(archive.database, ROLE)) as election:
        election.hold_lock()
        with archive.database.writing() as connection:
            connection.execute(text("UPDATE slurmscope_schema SET version = 99"))
        assert (True, True) == (election.elected.is_set(), lock.is_taken())

        with pytest.raises(ArchiveSchemaError):
            Checkpoints(election.database).write_checkpoint("progress", "1")
        assert not election.elected.is_set()
        election.hold_lock()
        assert not lock.is_taken()
        with pytest.raises(ArchiveSchemaError):
            election.hold_lock()
        assert not lock.is_taken()
