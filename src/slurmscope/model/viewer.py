# SPDX-License-Identifier: Apache-2.0
"""Say who looks, and whose jobs that person may see."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ViewerRole(enum.StrEnum):
    """Say what somebody is to the portal; a coordinator is a user with accounts."""

    USER = "user"
    SUPPORT = "support"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Be one person; ``coordinates`` are the accounts whose jobs a Slurm coordinator may see."""

    name: str
    role: ViewerRole = ViewerRole.USER
    coordinates: frozenset[str] = frozenset()

    @property
    def is_staff(self) -> bool:
        """Tell whether this person may see everybody's jobs."""
        return self.role in {ViewerRole.SUPPORT, ViewerRole.ADMIN}

    def sees(self, user: str, account: str) -> bool:
        """Tell whether a job of this user, in this account, may be shown."""
        return self.is_staff or user == self.name or account in self.coordinates


EVERYTHING = Viewer(name="slurmscope", role=ViewerRole.ADMIN)
"""Who services are when they work for everybody."""
