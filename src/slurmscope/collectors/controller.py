# SPDX-License-Identifier: Apache-2.0
"""Report which controllers of the cluster answer.

::

    slurm_up 1
    slurm_controller_up{host="ctl1",role="primary"} 1
    slurm_controller_up{host="ctl2",role="backup"} 0

While no controller answers, all of them are 0. If scontrol could not even list them since the start, there is only
``slurm_up 0``.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.metrics.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, gauge
from slurmscope.model.controllers import Controllers

UP = gauge("slurm_up", "1 if at least one controller answers, 0 if none answers in time.")
CONTROLLER_UP = gauge("slurm_controller_up", "1 if this controller answers, 0 if not.", "host", "role")


def collect(options: NoOptions, *, controllers: Controllers) -> Iterator[Family]:  # noqa: ARG001 - part of the protocol
    """Yield the state of all controllers together and of each one."""
    yield Family(UP, {(): int(controllers.is_up)})
    yield Family(CONTROLLER_UP, {(one.host, one.role): int(one.is_up) for one in controllers.controllers})


COLLECTOR = Collector(
    name="controller",
    role=Role.CLUSTER,
    help="Whether the Slurm controllers answer, from one scontrol ping.",
    needs=("controllers",),
    metrics=(UP, CONTROLLER_UP),
    collect=collect,
)
