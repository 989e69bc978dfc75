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
    """One person; ``coordinates`` are the accounts whose jobs a Slurm coordinator may see.

    ``coordinated_clusters`` are the clusters whose accounts are meant; None is every cluster.
    """

    name: str
    role: ViewerRole = ViewerRole.USER
    coordinates: frozenset[str] = frozenset()
    coordinated_clusters: frozenset[str] | None = None

    @property
    def is_staff(self) -> bool:
        """Return whether this person may see the jobs of all users."""
        return self.role in {ViewerRole.SUPPORT, ViewerRole.ADMIN}

    def sees(self, user: str, account: str, cluster: str) -> bool:
        """Return whether this person may see a job of this user in this account of a cluster."""
        return self.is_staff or user == self.name or self.coordinates_account(account, cluster)

    def coordinates_account(self, account: str, cluster: str) -> bool:
        """Return whether this person may see all jobs of an account of a cluster; false for an unknown cluster."""
        is_known = self.coordinated_clusters is None or cluster in self.coordinated_clusters
        return is_known and account in self.coordinates


EVERYTHING = Viewer(name="slurmscope", role=ViewerRole.ADMIN)
"""The viewer of services that work for all users."""
