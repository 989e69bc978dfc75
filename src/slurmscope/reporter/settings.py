# SPDX-License-Identifier: Apache-2.0
"""Settings of the reporter: how jobs are archived, and how long they are kept."""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import duration, setting
from slurmscope.core.units import format_duration, parse_seconds
from slurmscope.reporter.retention import parse_keep_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterSettings:
    """How ended jobs are archived, and how long they are kept."""

    enabled: bool = setting(
        True,
        "Archive ended jobs, unless another portal of the same archive does; if disabled, only serve pages.",
        flag="reporter",
    )
    interval: float = duration(
        60.0, "Interval between polls of accounting; a job is summarized two intervals after its end."
    )
    look_back: float = duration(7 * 86400.0, "How far back to read jobs when the archive is new.", parse=parse_seconds)
    give_up: float = duration(
        7 * 86400.0,
        "How long after its end to measure a job again whose numbers Prometheus did not return.",
        parse=parse_seconds,
    )
    keep_curves: float = duration(
        365 * 86400.0,
        "How long to keep curves of ended jobs, at least 7d; totals and findings remain. 0s keeps them forever.",
        parse=parse_keep_seconds,
    )
    thin_curves_after: float = duration(
        0.0,
        "Age at which curves of ended jobs are thinned, at least 7d; 0s never thins them.",
        parse=parse_keep_seconds,
    )
    keep_jobs: float = duration(
        0.0, "How long to keep ended jobs, at least 7d; 0s keeps them forever.", parse=parse_keep_seconds
    )
    keep_audit: float = duration(
        365 * 86400.0,
        "How long to keep audit records of staff access, at least 7d; 0s keeps them forever.",
        parse=parse_keep_seconds,
    )

    @property
    def settle(self) -> float:
        """Return the seconds from the end of a job until it is summarized, so that its last samples arrive."""
        return 2 * self.interval


def check_retention(settings: ReporterSettings) -> None:
    """Raise ConfigError if curves would be deleted before they are thinned."""
    thin, keep = settings.thin_curves_after, settings.keep_curves
    if thin and 0 < keep <= thin:
        raise ConfigError(
            f"reporter.thin-curves-after is {format_duration(thin)}, but reporter.keep-curves deletes curves after "
            f"{format_duration(keep)}: none would be thinned"
        )
