# SPDX-License-Identifier: Apache-2.0
"""Hold which controllers of the cluster are up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Hold one controller; its role is ``primary``, ``backup``, or ``backup1``, ``backup2`` and so on."""

    host: str
    role: str
    is_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """Hold all controllers; empty if no controller answered."""

    controllers: tuple[Controller, ...] = ()

    @property
    def is_up(self) -> bool:
        """Return whether at least one controller answers."""
        return any(controller.is_up for controller in self.controllers)
