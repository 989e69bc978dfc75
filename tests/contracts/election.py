# SPDX-License-Identifier: Apache-2.0
"""What is true of an election in every archive, whether it is in a file or in a database server."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import text

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.election import ElectedProcess, Election, NotElected, find_elected
from slurmscope.archive.sql_archive import SqlArchive

ROLE = "reporter of lab"
PATIENCE_SECONDS = 60.0


def break_lock(archive: SqlArchive) -> None:
    """Break the lock without its holder noticing, as a network failure does."""
    if archive.database.dialect == "sqlite":
        (file,) = Path(archive.database.settings.url.removeprefix("sqlite:///")).parent.glob("*.lock")
        file.unlink()
        return
    with archive.database.reading() as connection:
        if archive.database.dialect == "postgresql":
            connection.execute(text("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"))
            return
        others = text("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = :user")
        for (number,) in connection.execute(others, {"user": "slurmscope"}).all():
            connection.execute(text(f"KILL {number}"))


def until_elected(election: Election) -> None:
    """Try until this process is elected; a server needs a moment to end a connection."""

    def try_once() -> bool:
        election.hold_lock()
        return election.elected.is_set()

    wait_for(try_once)


def wait_for(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class ElectionContract:
    """Run these with a fixture ``archive``."""

    def test_roles_for_clusters_with_similar_names_are_apart(self, archive: SqlArchive) -> None:
        names = ("site.a", "site_a", "site-a", f"{'c' * 63}1", f"{'c' * 63}2")
        with ExitStack() as stack:
            elections = [stack.enter_context(closing(Election(archive.database, f"reporter {name}"))) for name in names]
            for election in elections:
                election.hold_lock()

            assert [True] * len(names) == [election.elected.is_set() for election in elections]

    def test_one_of_two_is_elected_and_the_other_takes_over(self, archive: SqlArchive) -> None:
        with closing(Election(archive.database, ROLE)) as one, closing(Election(archive.database, ROLE)) as two:
            for _ in range(2):
                one.hold_lock()
                two.hold_lock()
            assert (True, False) == (one.elected.is_set(), two.elected.is_set())
            first = find_elected(archive.database, ROLE)

            one.close()
            until_elected(two)
            one.hold_lock()

            assert (False, True) == (one.elected.is_set(), two.elected.is_set())
            second = find_elected(archive.database, ROLE)
        assert isinstance(first, ElectedProcess)
        assert isinstance(second, ElectedProcess)
        assert (socket.gethostname(), os.getpid(), first.term + 1) == (first.host, first.pid, second.term)
        wait_for(lambda: find_elected(archive.database, ROLE) is None)

    def test_every_role_has_its_own_election(self, archive: SqlArchive) -> None:
        with closing(Election(archive.database, "a" * 500)) as one, closing(Election(archive.database, "b/é")) as two:
            one.hold_lock()
            two.hold_lock()
            assert one.elected.is_set()
            assert two.elected.is_set()

    def test_process_that_was_replaced_writes_nothing(self, archive: SqlArchive) -> None:
        with closing(Election(archive.database, ROLE)) as stale, closing(Election(archive.database, ROLE)) as newer:
            stale.hold_lock()
            mine, theirs = Checkpoints(stale.database), Checkpoints(newer.database)
            mine.write_checkpoint("progress", "1")
            with pytest.raises(NotElected):
                theirs.write_checkpoint("progress", "2")
            break_lock(archive)
            until_elected(newer)

            # It has not noticed yet.
            assert stale.elected.is_set()
            with pytest.raises(NotElected):
                mine.write_checkpoint("progress", "3")

            assert not stale.elected.is_set()
            theirs.write_checkpoint("progress", "4")
            for _ in range(3):
                stale.hold_lock()
            assert not stale.elected.is_set()
            assert "4" == mine.read_checkpoint("progress")

    def test_elected_process_works_even_if_a_check_from_before_ended_late(self, archive: SqlArchive) -> None:
        with closing(Election(archive.database, ROLE)) as election:
            # A round that outlived the last term finds that it is not elected, just when this process is elected again.
            clear = election.elected.clear

            def elect_first() -> None:
                election.hold_lock()
                clear()

            election.elected.clear = elect_first  # type: ignore[method-assign]
            with archive.database.reading() as connection, pytest.raises(NotElected):
                election.check(connection)
            election.elected.clear = clear  # type: ignore[method-assign]

            until_elected(election)

    def test_next_one_waits_for_a_transaction_of_the_one_before(self, archive: SqlArchive) -> None:
        with closing(Election(archive.database, ROLE)) as before, closing(Election(archive.database, ROLE)) as after:
            before.hold_lock()
            with before.database.writing():
                break_lock_of_file_or_connection(archive, before)
                waiting = threading.Thread(target=until_elected, args=(after,))
                waiting.start()
                waiting.join(1.0)
                was_elected = after.elected.is_set()
            waiting.join(PATIENCE_SECONDS)

            assert (False, True) == (was_elected, after.elected.is_set())


def break_lock_of_file_or_connection(archive: SqlArchive, election: Election) -> None:
    """Break the lock, and leave other connections alone."""
    if archive.database.dialect == "sqlite":
        break_lock(archive)
    else:
        election._lock.release()
