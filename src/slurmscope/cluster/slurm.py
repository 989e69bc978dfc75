# SPDX-License-Identifier: Apache-2.0
"""Export the cluster name and the Slurm version.

::

    slurm_info{cluster_name="alpha",slurm_version="22.05.8"} 1
"""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.cluster.sources import Sources
from slurmscope.exporter.collector import SLOW_SECONDS, Collector, NoOptions, Reading, Role
from slurmscope.metrics.family import Family, info
from slurmscope.slurm.config import ControllerConfig, read_config

INFO = info("slurm_info", "Name of the cluster and Slurm version of its controller.", "cluster_name", "slurm_version")


def collect(options: NoOptions, *, config: ControllerConfig) -> Iterator[Family]:  # noqa: ARG001 - the protocol
    yield Family(INFO, {(config.cluster_name, config.slurm_version): 1.0})


def _read(slurm: Sources) -> ControllerConfig:
    return read_config(slurm.run)


# Retried soon, because series are hidden until PrivateData is known.
CONFIG = Reading(name="config", read=_read, every_seconds=2 * SLOW_SECONDS, retry_seconds=0.0)
COLLECTOR = Collector(
    name="slurm",
    role=Role.CLUSTER,
    help="Name and Slurm version of the cluster.",
    needs=(CONFIG,),
    metrics=(INFO,),
    collect=collect,
)
