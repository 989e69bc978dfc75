# SPDX-License-Identifier: Apache-2.0
"""What an archive of any database keeps of people: notes, filters, tokens, preferences, and the audit log."""

from __future__ import annotations

import pytest

from slurmscope.archive.access import AuditLog, TokenStore
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.interface import NotedKind, NotedThing
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.archive.staff import SqlSavedViews, SqlStaffNotes
from slurmscope.core.errors import ArchiveError
from slurmscope.jobs.viewer import Viewer, ViewerRole
from tests.fakes.reports import (
    HOSTILE_NAME,
    START,
)


class PeopleContract:
    """Run these with a fixture ``archive`` that is empty at first."""

    def test_notes_and_tags_are_for_staff(self, archive: SqlArchive) -> None:
        notes = SqlStaffNotes(archive.database, wall_clock=lambda: float(START))
        sue, ada = Viewer(name="sue", role=ViewerRole.SUPPORT), Viewer(name="ada")
        job, other, user = (
            NotedThing(NotedKind.JOB, "lab", "12_3"), NotedThing(NotedKind.JOB, "other", "12_3"),
            NotedThing(NotedKind.USER, "", "ada"),
        )  # fmt: skip
        notes.add_note(sue, job, HOSTILE_NAME)
        notes.add_note(sue, job, "second 🚀")
        notes.add_note(sue, user, "x" * 10_000)
        for thing, tag in ((job, "slow"), (job, "io"), (user, "slow"), (job, "slow")):
            notes.set_tag(sue, thing, tag, is_set=True)
        notes.set_tag(sue, job, "io", is_set=False)

        first, second = notes.list_notes(sue, job)
        assert ("sue", START, HOSTILE_NAME, "second 🚀") == (first.author, first.at_seconds, first.text, second.text)
        assert ((), ("slow",)) == (notes.list_tags(sue, other), notes.list_tags(sue, job))
        assert {("slow", job), ("slow", user)} == set(notes.list_tagged(sue)) == set(notes.list_tagged(sue, "slow"))
        notes.delete_note(sue, other, first.note_id)
        notes.delete_note(sue, job, second.note_id)
        assert (first,) == notes.list_notes(sue, job)
        assert 2000 == len(notes.list_notes(sue, user)[0].text)
        assert ((), (), ()) == (notes.list_notes(ada, user), notes.list_tags(ada, user), notes.list_tagged(ada))
        assert notes.last_notes(ada, ["ada"], "Contacted") == {} == notes.last_notes(sue, ["bob"], "Contacted")
        for text in ("Contacted 1", "Contacted 2", "Not contacted"):
            notes.add_note(sue, NotedThing(NotedKind.USER, "", "ada"), text)
        assert "Contacted 2" == notes.last_notes(sue, ["ada", "bob"], "Contacted")["ada"].text
        with pytest.raises(ArchiveError, match="only staff"):
            notes.add_note(ada, job, "x")
        with pytest.raises(ArchiveError, match="only staff"):
            notes.set_tag(ada, job, "x", is_set=True)

    def test_views_are_own_or_shared_by_staff(self, archive: SqlArchive) -> None:
        views = SqlSavedViews(archive.database)
        sue, root = Viewer(name="sue", role=ViewerRole.SUPPORT), Viewer(name="root", role=ViewerRole.ADMIN)
        ada = Viewer(name="ada")
        views.save_view(sue, "failed", "?state=FAILED", is_shared=True)
        views.save_view(sue, "failed", "?state=OUT_OF_MEMORY", is_shared=True)
        views.save_view(sue, "private", "", is_shared=False)
        views.save_view(ada, "mine", "?user=ada", is_shared=False)

        assert [("failed", "?state=OUT_OF_MEMORY")] == [(view.name, view.query) for view in views.list_views(root)]
        assert ["failed", "private"] == [view.name for view in views.list_views(sue)]
        (mine,) = views.list_views(ada)
        views.delete_view(sue, mine.view_id)
        assert (mine,) == views.list_views(ada)
        views.delete_view(ada, mine.view_id)
        assert () == views.list_views(ada)
        with pytest.raises(ArchiveError, match="only staff"):
            views.save_view(ada, "mine", "", is_shared=True)
        with pytest.raises(ArchiveError, match="too long"):
            views.save_view(ada, "mine", "?" + "x" * 3000, is_shared=False)
        for number in range(50):
            views.save_view(ada, f"view {number}", "", is_shared=False)
        with pytest.raises(ArchiveError, match="50 saved views"):
            views.save_view(ada, "one more", "", is_shared=False)

    def test_checkpoints_mails_and_wishes_are_remembered(self, archive: SqlArchive) -> None:
        kept = Checkpoints(archive.database)

        assert (None, None, False) == (kept.read_checkpoint("a"), kept.last_mail("s", "ada"), kept.is_opted_out("ada"))
        kept.write_checkpoint("a", "1")
        kept.write_checkpoint("a", "2\0")
        kept.record_mail("s", "ada", 100)
        kept.record_mail("s", "ada", 200)
        kept.set_opt_out("ada", True)
        kept.set_opt_out("ada", True)
        kept.set_opt_out("bob", True)
        kept.set_opt_out("bob", False)

        assert "2\ufffd" == kept.read_checkpoint("a")
        assert (200, None, None) == (kept.last_mail("s", "ada"), kept.last_mail("s", "bob"), kept.last_mail("t", "ada"))
        assert (True, False) == (kept.is_opted_out("ada"), kept.is_opted_out("bob"))
        kept.delete_mails(201)
        assert None is kept.last_mail("s", "ada")

    def test_token_is_known_until_it_expires_or_is_revoked(self, archive: SqlArchive) -> None:
        now = [1000.0]
        tokens = TokenStore(archive.database, wall_clock=lambda: now[0])
        forever = tokens.create("ada", purpose="script")
        brief = tokens.create("root", ViewerRole.ADMIN, expires_seconds=2000)

        assert Viewer(name="ada") == tokens.find(forever)
        assert Viewer(name="root", role=ViewerRole.ADMIN) == tokens.find(brief)
        now[0] = 2000.0
        assert (None, None) == (tokens.find(brief), tokens.find("slsc_guess"))
        tokens.find(forever)
        (info,) = tokens.list_tokens("ada")
        assert (1000, 2000, "script") == (info.created_seconds, info.last_used_seconds, info.purpose)
        assert (True, False) == (tokens.revoke(info.token_id), tokens.revoke(info.token_id))
        assert None is tokens.find(forever)
        assert ["root"] == [left.name for left in tokens.list_tokens()]

    def test_audit_rows_come_latest_first(self, archive: SqlArchive) -> None:
        now = [10.0]
        log = AuditLog(archive.database, wall_clock=lambda: now[0])
        staff = Viewer(name="eve", role=ViewerRole.SUPPORT)
        for at_seconds in (10, 11, 12):
            now[0] = float(at_seconds)
            log.audit(staff, "/jobs/{id}", f"job {at_seconds}\0")

        first, second = log.list_rows(limit=2)
        (third,) = log.list_rows(before_id=second.audit_id)

        assert [12, 11, 10] == [row.at_seconds for row in (first, second, third)]
        assert ("eve", "support", "/jobs/{id}", "job 12\ufffd") == (
            first.viewer,
            first.role,
            first.route,
            first.subject,
        )

    def test_looks_are_listed_by_person_and_time_and_taken_out_when_old(self, archive: SqlArchive) -> None:
        now = [0.0]
        log = AuditLog(archive.database, wall_clock=lambda: now[0])
        for at_seconds, name in ((100, "sue"), (200, "eve"), (300, "sue")):
            now[0] = float(at_seconds)
            log.audit(Viewer(name=name, role=ViewerRole.SUPPORT), "/jobs/{id}", f"job {at_seconds}")

        asked = [
            log.list_rows(viewer="sue"),
            log.list_rows(since_seconds=200),
            log.list_rows(viewer="sue", since_seconds=200),
            log.list_rows(viewer="su"),
        ]

        assert [[300, 100], [300, 200], [300], []] == [[row.at_seconds for row in rows] for rows in asked]
        assert 1 == archive.delete_audit_entries(200)
        assert [300, 200] == [row.at_seconds for row in log.list_rows()]
