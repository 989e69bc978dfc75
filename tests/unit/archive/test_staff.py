# SPDX-License-Identifier: Apache-2.0
"""Without an archive there are no notes, tags or saved views."""

from __future__ import annotations

from slurmscope.archive.interface import NotedKind, NotedThing, SavedViews, StaffNotes
from slurmscope.jobs.viewer import EVERYTHING


def test_nothing_is_stored_without_an_archive() -> None:
    notes, views, job = StaffNotes(), SavedViews(), NotedThing(NotedKind.JOB, "lab", "1")
    notes.add_note(EVERYTHING, job, "text")
    notes.delete_note(EVERYTHING, job, 1)
    notes.set_tag(EVERYTHING, job, "slow", is_set=True)
    views.save_view(EVERYTHING, "mine", "", is_shared=True)
    views.delete_view(EVERYTHING, 1)

    found = (notes.list_notes(EVERYTHING, job), notes.list_tags(EVERYTHING, job), notes.list_tagged(EVERYTHING))
    assert ((), (), (), ()) == (*found, views.list_views(EVERYTHING))
