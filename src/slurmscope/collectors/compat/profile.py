# SPDX-License-Identifier: Apache-2.0
"""Make the page of a profiled job under the names that an older plugin pushed: Slurm's own names and units.

::

    CPUTime{step="0",task="1"} 1.98
    RSS{step="0",task="1"} 20480
    slurmscope_profile_pushed{host="n1"} 1

The labels are new: the older plugin had none, so steps and tasks overwrote each other. The last line marks groups that
are ours, so that they can be deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from slurmscope.analysis.profile_units import in_slurms_unit
from slurmscope.metrics.family import Family, Labels, Metric, MetricKind, gauge
from slurmscope.model.profile import ProfiledStep

PUSHED = gauge("slurmscope_profile_pushed", "1 for a group that the agent of this host has pushed.", "host")

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")


def pushed_families(steps: Iterable[ProfiledStep], host: str) -> Iterator[Family]:
    """Yield the last sample of all steps of one job, as Slurm took it, without impossible values."""
    samples: dict[str, dict[Labels, float]] = {}
    for step in steps:
        for (_, task), sample in step.samples.items():
            for name in sample.fields:
                value = in_slurms_unit(sample, name)
                # Sensors may have any name.
                if value is not None and _NAME.match(name):
                    samples.setdefault(name, {})[step.key.step, task] = value
    for name, values in sorted(samples.items()):
        yield Family(_metric(name), values)
    yield Family(PUSHED, {(host,): 1.0})


def _metric(name: str) -> Metric:
    return Metric(
        name=name,
        kind=MetricKind.UNKNOWN,
        help="As Slurm sampled it, in its own unit.",
        labels=("step", "task"),
        is_compat=True,
    )
