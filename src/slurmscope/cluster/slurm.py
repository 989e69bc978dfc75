# SPDX-License-Identifier: Apache-2.0
"""Export the cluster name and the Slurm version.

::

    slurm_info{cluster_name="alpha",slurm_version="22.05.8"} 1
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, info
from slurmscope.slurm.config import ControllerConfig

INFO = info("slurm_info", "Name of the cluster and Slurm version of its controller.", "cluster_name", "slurm_version")


def collect(options: NoOptions, *, config: ControllerConfig) -> Iterator[Family]:  # noqa: ARG001 - the protocol
    """Yield the info metric."""
    yield Family(INFO, {(config.cluster_name, config.slurm_version): 1.0})


COLLECTOR = Collector(
    name="slurm",
    role=Role.CLUSTER,
    help="Name and Slurm version of the cluster.",
    needs=("config",),
    metrics=(INFO,),
    collect=collect,
)
