# SPDX-License-Identifier: Apache-2.0
"""Name the exporters, each with what can be set for it and how it is wired.

A role's code is imported when it is used: a compute node does not pay for what the controller's host runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from slurmscope.config import Config, own_environment
from slurmscope.metrics.collector import Role
from slurmscope.services.wiring import Wiring
from slurmscope.settings import Section

ROLE_NAMES = tuple(role.value for role in Role)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCommand:
    """Hold what the commands of one role have in common."""

    role: Role
    sections: Callable[[], Iterable[Section]]
    wire: Callable[[Config], Wiring]
    help: str


def find_role(name: str) -> RoleCommand:
    """Return a role by its name."""
    return {"cluster": _cluster, "node": _node}[name]()


def keys_of_other_roles(name: str) -> Iterator[str]:
    """Yield what a file shared by several services may hold for the others."""
    for other in ROLE_NAMES:
        if other != name:
            for section in find_role(other).sections():
                yield from (declared.key for declared in section.settings())


def _cluster() -> RoleCommand:
    from slurmscope.services.cluster import cluster_sections, wire_cluster

    return RoleCommand(
        role=Role.CLUSTER,
        sections=cluster_sections,
        wire=lambda config: wire_cluster(config, own_environment()),
        help="Serve what the controller knows to Prometheus. Run it on one host that has Slurm's commands.",
    )


def _node() -> RoleCommand:
    from slurmscope.services.node import node_sections, wire_node

    return RoleCommand(
        role=Role.NODE,
        sections=node_sections,
        wire=wire_node,
        help="Serve what every job on this node really uses to Prometheus. Run it on every compute node.",
    )
