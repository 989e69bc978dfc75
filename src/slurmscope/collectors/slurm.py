# SPDX-License-Identifier: Apache-2.0
"""Tell which cluster and which release of Slurm this is.

::

    slurm_info{cluster_name="alpha",slurm_version="22.05.8"} 1
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.metrics.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, info
from slurmscope.model.controller_config import ControllerConfig

INFO = info("slurm_info", "Name of the cluster and release of its controller.", "cluster_name", "slurm_version")


def collect(options: NoOptions, *, config: ControllerConfig) -> Iterator[Family]:  # noqa: ARG001 - the protocol
    """Yield the one line."""
    yield Family(INFO, {(config.cluster_name, config.slurm_version): 1.0})


COLLECTOR = Collector(
    name="slurm",
    role=Role.CLUSTER,
    help="Name and release of the cluster.",
    needs=("config",),
    metrics=(INFO,),
    collect=collect,
)
