# SPDX-License-Identifier: Apache-2.0
"""Hold the controllers of the cluster, and the part of their configuration that slurmscope needs."""

from __future__ import annotations

from dataclasses import dataclass

# Labels that would reveal what PrivateData hides from ordinary users.
_HIDDEN = {
    "jobs": frozenset({"user", "username", "user_name", "jobid"}),
    "users": frozenset({"user", "username", "user_name", "jobid"}),
    "accounts": frozenset({"account"}),
}
ALL_HIDDEN_LABELS = frozenset().union(*_HIDDEN.values())
"""What is hidden while PrivateData is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Hold one controller; its role is ``primary``, ``backup``, or ``backup1``, ``backup2`` and so on."""

    host: str
    role: str
    is_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """Hold all controllers; empty if none answered and their names are not known."""

    controllers: tuple[Controller, ...] = ()

    @property
    def is_up(self) -> bool:
        """Return whether at least one controller answers."""
        return any(controller.is_up for controller in self.controllers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Hold the cluster name, the Slurm version, Slurm's own user, and the PrivateData setting."""

    cluster_name: str = ""
    slurm_version: str = ""
    slurm_user: str = ""
    private_data: frozenset[str] = frozenset()

    @property
    def hidden_labels(self) -> frozenset[str]:
        """Return the labels that reveal what PrivateData hides; other values hide nothing that is exported."""
        return frozenset().union(*(_HIDDEN.get(word, frozenset()) for word in self.private_data))
