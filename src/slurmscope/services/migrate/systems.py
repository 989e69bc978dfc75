# SPDX-License-Identifier: Apache-2.0
"""List the tools that slurmscope replaces."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from slurmscope.services.migrate import (
    cluster_exporter,
    jobs_exporter,
    profile_plugin,
    pseudo_exporter,
    slurm_exporter,
)
from slurmscope.services.migrate.old_system import OldMetrics, OldSystem

SYSTEMS: tuple[OldSystem, ...] = (
    slurm_exporter.SYSTEM,
    jobs_exporter.SYSTEM,
    pseudo_exporter.SYSTEM,
    cluster_exporter.SYSTEM,
    profile_plugin.SYSTEM,
)


@lru_cache(maxsize=1)
def known_metrics() -> Mapping[str, tuple[OldSystem, OldMetrics]]:
    """Return the tool and the description of each name."""
    return {name: (system, metrics) for system in SYSTEMS for name, metrics in system.by_name().items()}
