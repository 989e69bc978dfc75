# SPDX-License-Identifier: Apache-2.0
"""Warn that series of several clusters cannot be distinguished, in the log and on pages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from slurmscope.errors import SourceError
from slurmscope.log import fields
from slurmscope.services.reporting.cluster_checks import ADVICE, find_active_clusters, find_mixed_clusters
from slurmscope.sources.prometheus.settings import PrometheusSettings

REFRESH_SECONDS = 300.0

logger = logging.getLogger(__name__)


class MixedClusters:
    """Hold the warning, which ``refresh`` updates: no page waits for Slurm."""

    def __init__(
        self,
        settings: PrometheusSettings,
        read: Callable[[], Sequence[str]],
        list_checkpoints: Callable[[], Mapping[str, str]],
    ) -> None:
        """Take what reads the clusters of accounting, and the checkpoints of all archived clusters by name."""
        self._settings = settings
        self._read = read
        self._list_checkpoints = list_checkpoints
        self._names: Sequence[str] = ()
        self._logged = ""

    def refresh(self) -> None:
        """Read the clusters again, and log a warning if it is a new one; may raise ``ArchiveError``."""
        # First, so that a new archive is created also where Slurm does not answer.
        active = find_active_clusters(self._list_checkpoints(), time.time())
        with suppress(SourceError):  # the reporters, and pages that read jobs, report it
            self._names = self._read()
        mixed = find_mixed_clusters(self._settings, self._names, active)
        if mixed and mixed != self._logged:
            logger.warning("numbers may be wrong", extra=fields(reason=mixed, advice=ADVICE))
        self._logged = mixed

    def problems(self) -> Iterator[str]:
        """Yield a message for pages if jobs of several clusters are read here.

        Those that only the archive has may be measured by other portals, from a Prometheus of their own.
        """
        if mixed := find_mixed_clusters(self._settings, self._names):
            yield f"Numbers may be wrong: {mixed}; {ADVICE}"
