# SPDX-License-Identifier: Apache-2.0
"""Tell whether Slurm answers, and which of its controllers do.

::

    slurm_up 1
    slurm_controller_up{host="ctl1",role="primary"} 1
    slurm_controller_up{host="ctl2",role="backup"} 0

While nobody answers there is only ``slurm_up 0``: Slurm names its controllers when one of them is up.
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.metrics.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, gauge
from slurmscope.model.controllers import Controllers

UP = gauge("slurm_up", "1 when at least one controller answers us, 0 when none does in time.")
CONTROLLER_UP = gauge("slurm_controller_up", "1 when this controller answers us.", "host", "role")


def collect(options: NoOptions, *, controllers: Controllers) -> Iterator[Family]:  # noqa: ARG001 - part of the protocol
    """Serve the answer of each controller and of all together."""
    yield Family(UP, {(): int(controllers.is_up)})
    yield Family(CONTROLLER_UP, {(one.host, one.role): int(one.is_up) for one in controllers.controllers})


COLLECTOR = Collector(
    name="controller",
    role=Role.CLUSTER,
    help="Whether Slurm's controllers answer, from one scontrol ping.",
    needs=("controllers",),
    metrics=(UP, CONTROLLER_UP),
    collect=collect,
)
