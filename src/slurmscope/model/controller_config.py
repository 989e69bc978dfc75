# SPDX-License-Identifier: Apache-2.0
"""Hold what we need to know of Slurm's own configuration."""

from __future__ import annotations

from dataclasses import dataclass

# What PrivateData keeps from ordinary users, as labels that would show it to everybody.
_HIDDEN = {
    "jobs": frozenset({"user", "username", "jobid"}),
    "users": frozenset({"user", "username", "jobid"}),
    "accounts": frozenset({"account"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Name the cluster, its release, and what its administrators keep private."""

    cluster_name: str = ""
    slurm_version: str = ""
    private_data: frozenset[str] = frozenset()

    @property
    def hidden_labels(self) -> frozenset[str]:
        """Return the labels that would tell what PrivateData hides; other words hide nothing that we show."""
        return frozenset().union(*(_HIDDEN.get(word, frozenset()) for word in self.private_data))
