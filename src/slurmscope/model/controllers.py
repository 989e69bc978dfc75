# SPDX-License-Identifier: Apache-2.0
"""Hold which controllers of the cluster answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Name one controller; its role is ``primary``, ``backup``, or ``backup1`` and up with several."""

    host: str
    role: str
    is_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """Hold all controllers; there is none when nobody could be asked or nobody answered."""

    controllers: tuple[Controller, ...] = ()

    @property
    def is_up(self) -> bool:
        """Tell whether at least one controller answers."""
        return any(controller.is_up for controller in self.controllers)
