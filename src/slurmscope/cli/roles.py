# SPDX-License-Identifier: Apache-2.0
"""Map each role to its settings and its wiring.

A role is imported only when it is used, so that a compute node does not load the cluster exporter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from slurmscope.core.config import Config, own_environment
from slurmscope.core.settings import Section
from slurmscope.exporter.collector import Role
from slurmscope.exporter.reading import ReadingSet

ROLE_NAMES = tuple(role.value for role in Role)
SECTION_NAMES = (*ROLE_NAMES, "report", "portal", "up", "database")
"""Roles and services that have settings. Reports, mails and digests share theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCommand:
    """Hold what the commands of one role have in common; ``shown`` names the settings in its short help."""

    role: Role
    sections: Callable[[], Iterable[Section]]
    make_readings: Callable[[Config], ReadingSet]
    help: str
    shown: tuple[str, ...]


def find_role(name: str) -> RoleCommand:
    """Return a role by its name."""
    return {"cluster": _cluster, "node": _node}[name]()


def find_sections(name: str) -> Iterable[Section]:
    """Return the settings of a role or another service."""
    if name in ROLE_NAMES:
        return find_role(name).sections()
    if name == "database":
        from slurmscope.accounting.grant import database_sections

        return database_sections()
    from slurmscope.portal.settings import portal_sections
    from slurmscope.reports.settings import command_sections
    from slurmscope.up.settings import up_sections

    return {"report": command_sections, "portal": portal_sections, "up": up_sections}[name]()


def find_local_sections() -> Iterator[Section]:
    """Yield the settings of commands that make reports on this host, and never get them from a portal."""
    return (section for section in find_sections("report") if section.name != "portal")


def keys_of_others(name: str) -> Iterator[str]:
    """Yield the keys of all other services, which may share a configuration file."""
    for other in SECTION_NAMES:
        if other != name:
            for section in find_sections(other):
                yield from (declared.key for declared in section.settings())


def _cluster() -> RoleCommand:
    from slurmscope.cluster.exporter import ClusterReadings, cluster_sections

    return RoleCommand(
        role=Role.CLUSTER,
        sections=cluster_sections,
        make_readings=lambda config: ClusterReadings(config, own_environment()),
        help="Export cluster metrics to Prometheus: jobs, nodes, scheduler. Run it on one host with Slurm's commands.",
        shown=("slurm.bin-path", "slurm.poll-limit", "web.listen-address", "log.level"),
    )


def _node() -> RoleCommand:
    from slurmscope.node.exporter import NodeReadings, node_sections

    return RoleCommand(
        role=Role.NODE,
        sections=node_sections,
        make_readings=NodeReadings,
        help="Export the resource usage of every job on this node to Prometheus. Run it on every compute node.",
        shown=("node.name", "web.listen-address", "log.level"),
    )
