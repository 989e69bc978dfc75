# SPDX-License-Identifier: Apache-2.0
"""Write down when staff look at what is not theirs."""

from __future__ import annotations

from typing import Protocol

from slurmscope.model.viewer import Viewer


class AuditTrail(Protocol):
    """Keep rows for as long as the site wants. What cannot be written is an ``ArchiveError``."""

    def audit(self, viewer: Viewer, route: str, subject: str) -> None:
        """Keep who looked, through which route, and at what: ``job 4711``, ``user ada``, ``account physics``.

        The same person at the same thing a moment later is still the same look: an open page asks every few seconds.
        """
        ...


def audit_view(trail: AuditTrail, viewer: Viewer, route: str, subject: str, *, owner: str = "") -> None:
    """Write a row if staff look at something whose owner is somebody else; call it before anything is shown.

    ``owner`` is a user's name, empty for what belongs to many. A row that cannot be written means that nothing is
    shown: the ``ArchiveError`` is not caught here.
    """
    if viewer.is_staff and owner != viewer.name:
        trail.audit(viewer, route, subject)
