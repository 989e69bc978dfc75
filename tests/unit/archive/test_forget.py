# SPDX-License-Identifier: Apache-2.0
"""A person who is forgotten leaves an archive like one that never had them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from slurmscope.archive import forget
from slurmscope.archive.access import TokenStore
from slurmscope.archive.advice import SqlAdviceReader
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.forget import PersonalRows, count_personal_rows, forget_person
from slurmscope.archive.interface import NotedKind, NotedThing
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.staff import SqlSavedViews, SqlStaffNotes
from slurmscope.archive.tables import METADATA
from slurmscope.jobs.advice import AdviceGroup
from slurmscope.jobs.viewer import Viewer, ViewerRole
from tests.fakes.archive_file import open_at
from tests.fakes.reports import make_finding, make_record, make_report

CLOCK = 1_800_000_000
OWN_NUMBERS = {"run_id", "note_id", "view_id", "token_id", "token_hash"}
"""Numbers that depend on what was there before; and of tokens, chance."""


def fill(archive: SqlArchive, *users: str) -> None:
    """Save jobs, notes, tags, views and tokens of these users; user by user in the order of the alphabet."""
    clock = float(CLOCK)
    notes, views = SqlStaffNotes(archive.database, wall_clock=lambda: clock), SqlSavedViews(archive.database)
    staff = Viewer(name="root", role=ViewerRole.ADMIN)
    for job_id in range(1, 11):
        user = ("ada", "bob")[job_id % 2]
        if user not in users:
            continue
        found = (make_finding("cpu_idle"),) if job_id % 3 == 0 else ()
        archive.save([make_report(make_record(job_id, user=user, name=f"job{job_id}"), findings=found)])
        job = NotedThing(NotedKind.JOB, make_record().cluster, str(job_id))
        notes.add_note(staff, job, f"a note about job {job_id}")
        notes.set_tag(staff, job, "seen", is_set=True)
    # The controller was reset: bob has a later job with an ID of ada's.
    if "bob" in users:
        later = {"submit_seconds": CLOCK, "start_seconds": CLOCK, "end_seconds": CLOCK + 3600}
        archive.save([make_report(make_record(2, user="bob", **later))])
    for user in users:
        person = NotedThing(NotedKind.USER, "", user)
        notes.add_note(staff, person, f"called {user}")
        notes.set_tag(staff, person, "course", is_set=True)
        views.save_view(Viewer(name=user, role=ViewerRole.USER), "mine", "state=FAILED", is_shared=False)
        TokenStore(archive.database, wall_clock=lambda: clock).create(name=user, role=ViewerRole.USER, purpose="script")
        for recipient in (user, f"{user}@example.org"):
            Checkpoints(archive.database).record_mail(f"digest of user {user}", recipient, CLOCK)


def rows(archive: SqlArchive) -> Mapping[str, list[str]]:
    """Return all rows of all tables, but for numbers that were given to rows."""
    found = {}
    with archive.database.reading() as connection:
        for name, table in METADATA.tables.items():
            wanted: list[Any] = [column for column in table.c if column.name not in OWN_NUMBERS]
            found[name] = sorted(map(repr, connection.execute(select(*wanted)))) if wanted else []
    return found


def test_archive_is_as_if_it_had_never_known_them(archive: SqlArchive, tmp_path: Path) -> None:
    fill(archive, "ada", "bob")
    with closing(open_at(tmp_path / "without.db")) as without:
        fill(without, "bob")
        expected = dict(rows(without))
    # A note about an ID that two people have stays, for it may be about the other one.
    shared = {"slurmscope_notes": "a note about job 2", "slurmscope_tags": "'2'"}

    progress = list(forget_person(archive.database, "ada"))

    found = {name: [row for row in kept if shared.get(name, "\0") not in row] for name, kept in rows(archive).items()}
    assert expected == found
    assert [5] == progress


def test_count_says_what_would_be_deleted_and_deletes_nothing(archive: SqlArchive) -> None:
    fill(archive, "ada", "bob")
    running = make_record(99, user="ada", state="RUNNING", end_seconds=None)
    archive.save([make_report(running)])
    before = rows(archive)

    with archive.database.reading() as connection:
        counted = count_personal_rows(connection, "ada")

    # Job 2 is bob's as well.
    assert PersonalRows(jobs=5, running=1, notes=5, tags=5, views=1, tokens=1, mails=2) == counted
    assert before == rows(archive)


def test_running_jobs_stay_and_many_are_deleted_little_by_little(
    archive: SqlArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forget, "ROWS_AT_ONCE", 2)
    fill(archive, "ada", "bob")
    archive.save([make_report(make_record(99, user="ada", state="RUNNING", end_seconds=None))])

    assert [2, 4, 5] == list(forget_person(archive.database, "ada"))

    with archive.database.reading() as connection:
        assert PersonalRows(0, 1, 0, 0, 0, 0, 0) == count_personal_rows(connection, "ada")
        assert 6 == count_personal_rows(connection, "bob").jobs


def test_nothing_says_which_advice_they_followed(archive: SqlArchive) -> None:
    found = replace(make_finding("cpu_idle"), suggestion="#SBATCH --cpus-per-task=2")
    times = {"submit_seconds": CLOCK - 9000, "start_seconds": CLOCK - 9000, "end_seconds": CLOCK - 1800}
    for job_id, user in ((1, "ada"), (2, "bob")):
        archive.save([make_report(make_record(job_id, user=user), findings=(found,))])
        archive.save([make_report(make_record(job_id + 10, user=user, cpus=2, **times), findings=())])

    list(forget_person(archive.database, "ada"))

    staff = Viewer(name="root", role=ViewerRole.ADMIN)
    totals = SqlAdviceReader(archive.database).total_outcomes(staff, AdviceGroup.USER, since_seconds=0)
    assert [("bob", 1)] == [(total.key, total.followed) for total in totals]
