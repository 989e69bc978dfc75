# SPDX-License-Identifier: Apache-2.0
"""List the features of each role: the only place that knows all of them.

A role is imported only when it is used, so that a compute node does not load the cluster exporter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from slurmscope.core.config import Config
from slurmscope.core.settings import Section
from slurmscope.exporter.collector import Collector, Role
from slurmscope.exporter.exporter import Exporter
from slurmscope.exporter.feature import Feature, collectors_of
from slurmscope.exporter.self_metrics import SELF_METRICS
from slurmscope.exporter.settings import ReportMetrics, exporter_sections
from slurmscope.metrics.family import Metric
from slurmscope.remote_write.feature import REMOTE_WRITE

ROLE_NAMES = tuple(role.value for role in Role)
SECTION_NAMES = (*ROLE_NAMES, "report", "portal", "up", "database")
"""Roles and services that have settings. Reports, mails and digests share theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCommand:
    """What the commands of one role have in common; ``shown`` names the settings in its short help."""

    role: Role
    features: tuple[Feature, ...]
    help: str
    shown: tuple[str, ...]
    reports: ReportMetrics = field(default_factory=ReportMetrics)

    @property
    def collectors(self) -> tuple[Collector, ...]:
        """Return all collectors, enabled or not."""
        return collectors_of(self.features)

    def sections(self) -> Iterator[Section]:
        """Yield the settings of all features, then those that all exporters have."""
        for feature in self.features:
            yield from feature.sections
        yield from exporter_sections(self.role, self.collectors)

    def make_exporter(self, load: Callable[[], Config]) -> Exporter:
        return Exporter(role=self.role, features=self.features, load=load, reports=self.reports)


def find_role(name: str, extensions: Sequence[str] = ()) -> RoleCommand:
    """Return a role, with the named extensions of the site."""
    role = {"cluster": _cluster, "node": _node}[name]()
    if not extensions:
        return role
    from slurmscope.exporter.extensions import add_extensions

    return replace(role, features=add_extensions(role.features, role.role, extensions))


def all_collectors(role: Role) -> tuple[Collector, ...]:
    """Return all collectors of a role, enabled or not, by name."""
    return find_role(role.value).collectors


def feature_metrics(role: Role) -> tuple[Metric, ...]:
    return tuple(metric for feature in find_role(role.value).features for metric in feature.metrics)


def _reserved_metrics() -> Iterator[Metric]:
    """Yield every metric that the cluster exporter could have, whatever is enabled, and those of node agents.

    Reports are made from the latter; their older names may be pushed, since the agent itself does so.
    """
    yield from (metric for collector in all_collectors(Role.CLUSTER) for metric in collector.metrics)
    yield from (m for collector in all_collectors(Role.NODE) for m in collector.metrics if not m.is_compat)
    yield from (*feature_metrics(Role.CLUSTER), *SELF_METRICS)


def find_sections(name: str, extensions: Sequence[str] = ()) -> Iterable[Section]:
    """Return the settings of a role, with those of extensions, or of another service."""
    if name in ROLE_NAMES:
        return find_role(name, extensions).sections()
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


def keys_of_others(name: str, extensions: Sequence[str] = ()) -> Iterator[str]:
    """Yield the keys of all other services, which may share a configuration file."""
    for other in SECTION_NAMES:
        if other != name:
            for section in find_sections(other, extensions):
                yield from (declared.key for declared in section.settings())


def _cluster() -> RoleCommand:
    from slurmscope.cluster.discovery import DISCOVERY
    from slurmscope.cluster.exporter import cluster_feature
    from slurmscope.inbox.inbox import inbox_feature
    from slurmscope.lustre.feature import LUSTRE
    from slurmscope.trace.cluster_endpoint import TRACING

    return RoleCommand(
        role=Role.CLUSTER,
        features=(cluster_feature(), LUSTRE, TRACING, inbox_feature(_reserved_metrics), DISCOVERY, REMOTE_WRITE),
        help="Export cluster metrics to Prometheus: jobs, nodes, scheduler. Run it on one host with Slurm's commands.",
        shown=("slurm.bin-path", "slurm.poll-limit", "web.listen-address", "log.level"),
    )


def _node() -> RoleCommand:
    from slurmscope.jobs.queries import REPORTS_CONDITIONS, REPORTS_METRICS
    from slurmscope.node.exporter import node_feature
    from slurmscope.profile.feature import PROFILING
    from slurmscope.trace.node_collector import NODE_TRACING

    return RoleCommand(
        role=Role.NODE,
        features=(node_feature(), NODE_TRACING, PROFILING, REMOTE_WRITE),
        reports=ReportMetrics(REPORTS_METRICS, REPORTS_CONDITIONS),
        help="Export the resource usage of every job on this node to Prometheus. Run it on every compute node.",
        shown=("node.name", "web.listen-address", "log.level"),
    )
