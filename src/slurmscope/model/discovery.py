# SPDX-License-Identifier: Apache-2.0
"""Hold what service discovery says about each node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class DiscoveredNode(NamedTuple):
    """Hold one node: its name in Slurm, the address at which slurmd is reached, and its host name.

    ``gpu_models`` has the GPUs by model, which is empty where the site configured none.
    """

    name: str
    address: str
    host: str
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    base_state: str = "unknown"
    flags: frozenset[str] = frozenset()
    gpus: int = 0
    gpu_models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredNodes:
    """Hold all nodes of the cluster, each once."""

    nodes: tuple[DiscoveredNode, ...]
