# SPDX-License-Identifier: Apache-2.0
"""Open the features of an exporter as the exporter itself does, without starting it."""

from __future__ import annotations

from collections.abc import Mapping

from slurmscope.cli.roles import find_role
from slurmscope.core.config import Config, load
from slurmscope.exporter.feature import OpenFeatures, Running, open_features
from slurmscope.exporter.reading import SharedReading


def load_role(name: str, flags: Mapping[str, object] | None = None) -> Config:
    """Return the settings of a role; flags by key."""
    return load(find_role(name).sections(), flags=flags or {}, environment={})


def open_role(name: str, config: Config | None = None) -> OpenFeatures:
    """Open all features of a role."""
    role = find_role(name)
    return open_features(role.features, role.role, config or load_role(name), {})


def open_readings(*readings: SharedReading) -> OpenFeatures:
    """Return features that have these readings and nothing else."""
    return OpenFeatures(Running(readings=readings))
