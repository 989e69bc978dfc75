# SPDX-License-Identifier: Apache-2.0
"""Answer only for jobs of this host's cluster: a recorder has no samples of others, which may have the same job IDs."""

from __future__ import annotations

from collections.abc import Sequence

from slurmscope.model.series import Curves, JobSpan, SeriesQuery, SeriesSource, Totals
from slurmscope.sources.slurm.cluster_names import ClusterNames, read_own_name
from slurmscope.sources.slurm.commands import RunCommand


class OwnSeries:
    """Read series of one cluster; safe to use from any thread if the source is."""

    def __init__(self, source: SeriesSource, run: RunCommand) -> None:
        """Take the source, and what runs a command of Slurm."""
        self._source = source
        self._own = ClusterNames(lambda: (read_own_name(run),))

    @property
    def max_concurrent_queries(self) -> int:
        """Return that of the source."""
        return self._source.max_concurrent_queries

    def read_curves(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, points: int, until: float) -> Curves:
        """Return curves; none for jobs of another cluster."""
        is_own = self._is_own(wanted)
        return self._source.read_curves(wanted, spans, points=points, until=until) if is_own else Curves()

    def read_totals(self, wanted: SeriesQuery, spans: Sequence[JobSpan], *, until: float) -> Totals:
        """Return totals; none for jobs of another cluster."""
        return self._source.read_totals(wanted, spans, until=until) if self._is_own(wanted) else Totals()

    def _is_own(self, wanted: SeriesQuery) -> bool:
        """Return whether the jobs are of this host's cluster; raise SourceError while its name is not known."""
        return wanted.cluster in self._own.get()
