# SPDX-License-Identifier: Apache-2.0
"""Let people stop the weekly letters to themselves and have them again; admins also those to others."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from slurmscope.model.viewer import Viewer, ViewerRole
from slurmscope.portal.pages.visit import Visit
from slurmscope.portal.sign_in.errors import Refused
from slurmscope.reports.words import format_time


class DigestChoice(enum.StrEnum):
    """Say what is wished; not "the other way round", so that sending a form twice does no harm."""

    STOP = "stop"
    SEND = "send"


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestForm:
    """Hold what the section about letters shows: whether they are sent, and the token of its form."""

    is_sent: bool
    token: str


def make_letter_form(visit: Visit, name: str) -> DigestForm | None:
    """Make the form on the page of a person; None for those who may not change anything there."""
    if not _may_change(visit.viewer, name):
        return None
    return DigestForm(is_sent=not visit.desk.letters.is_opted_out(name), token=visit.desk.csrf.issue(visit.viewer))


def change_letters(visit: Visit, name: str, wish: DigestChoice, token: str) -> None:
    """Do what the form says, or refuse; what an admin does to somebody else is written down first."""
    if not _may_change(visit.viewer, name):
        raise Refused("Only this person, and the admins of the portal, can change that.")
    visit.desk.csrf.check(visit.viewer, token, visit.request.scope)
    # With the time: a look that was written down a moment ago is not written again, but each change has to be.
    visit.audit(f"letters to {name}: {wish}, {format_time(visit.desk.clock())}", owner=name)
    visit.desk.letters.set_opt_out(name, is_opted_out=wish is DigestChoice.STOP)


def _may_change(viewer: Viewer, name: str) -> bool:
    return name == viewer.name or viewer.role is ViewerRole.ADMIN
