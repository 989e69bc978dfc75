# SPDX-License-Identifier: Apache-2.0
"""Describe what other services in the same process add to the portal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slurmscope.metrics.family import Family
from slurmscope.model.job_record import JobRecord
from slurmscope.model.job_script import JobScript
from slurmscope.model.report import Chart
from slurmscope.portal.sign_in.view_as import DemoView


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """Provide metrics and problem messages of other services in this process.

    ``charts`` returns charts of the cluster's last 24 hours, if they are recorded.
    """

    families: Callable[[], Iterable[Family]] = tuple
    problems: Callable[[], Iterable[str]] = tuple
    charts: Callable[[], tuple[Chart, ...]] = tuple
    scripts: Callable[[JobRecord], JobScript | None] | None = None
    """Return the script of a job; None where scripts come from Slurm."""
    demo_views: tuple[DemoView, ...] = ()
    """Viewers to choose from in a demo; none in any other portal."""
