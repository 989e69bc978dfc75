# SPDX-License-Identifier: Apache-2.0
"""Name the exporters, each with what can be set for it and how it is wired.

A role's code is imported when it is used: a compute node does not pay for what the controller's host runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from slurmscope.config import Config, own_environment
from slurmscope.metrics.collector import Role
from slurmscope.services.exporter.readings import ReadingSet
from slurmscope.settings import Section

ROLE_NAMES = tuple(role.value for role in Role)
SECTION_NAMES = (*ROLE_NAMES, "report", "portal", "up", "database")
"""Everything that has settings of its own. Reports, mails and digests share theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCommand:
    """Hold what the commands of one role have in common."""

    role: Role
    sections: Callable[[], Iterable[Section]]
    make_readings: Callable[[Config], ReadingSet]
    help: str


def find_role(name: str) -> RoleCommand:
    """Return a role by its name."""
    return {"cluster": _cluster, "node": _node}[name]()


def find_sections(name: str) -> Iterable[Section]:
    """Return what can be set for a role or another service."""
    if name in ROLE_NAMES:
        return find_role(name).sections()
    if name == "database":
        from slurmscope.services.database.grant import database_sections

        return database_sections()
    from slurmscope.services.portal.settings import portal_sections
    from slurmscope.services.reporting.settings import report_sections
    from slurmscope.services.up.settings import up_sections

    return {"report": report_sections, "portal": portal_sections, "up": up_sections}[name]()


def keys_of_others(name: str) -> Iterator[str]:
    """Yield what a file shared by several services may hold for the others."""
    for other in SECTION_NAMES:
        if other != name:
            for section in find_sections(other):
                yield from (declared.key for declared in section.settings())


def _cluster() -> RoleCommand:
    from slurmscope.services.cluster.readings import ClusterReadings, cluster_sections

    return RoleCommand(
        role=Role.CLUSTER,
        sections=cluster_sections,
        make_readings=lambda config: ClusterReadings(config, own_environment()),
        help="Serve what the controller knows to Prometheus. Run it on one host that has Slurm's commands.",
    )


def _node() -> RoleCommand:
    from slurmscope.services.node.readings import NodeReadings, node_sections

    return RoleCommand(
        role=Role.NODE,
        sections=node_sections,
        make_readings=NodeReadings,
        help="Serve what every job on this node really uses to Prometheus. Run it on every compute node.",
    )
