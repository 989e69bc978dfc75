# SPDX-License-Identifier: Apache-2.0
"""Define who views the portal, and whose jobs that person may see."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ViewerRole(enum.StrEnum):
    """Role of a person in the portal; a coordinator is a user with accounts."""

    USER = "user"
    SUPPORT = "support"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Hold one person; ``coordinates`` are the accounts whose jobs a Slurm coordinator may see."""

    name: str
    role: ViewerRole = ViewerRole.USER
    coordinates: frozenset[str] = frozenset()

    @property
    def is_staff(self) -> bool:
        """Return whether this person may see the jobs of all users."""
        return self.role in {ViewerRole.SUPPORT, ViewerRole.ADMIN}

    def sees(self, user: str, account: str) -> bool:
        """Return whether this person may see a job of this user in this account."""
        return self.is_staff or user == self.name or account in self.coordinates


EVERYTHING = Viewer(name="slurmscope", role=ViewerRole.ADMIN)
"""The viewer of services that work for all users."""
