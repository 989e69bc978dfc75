# SPDX-License-Identifier: Apache-2.0
"""Check several clusters: settings with which numbers of equal job IDs would be added up, and other controllers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slurmscope.errors import ConfigError, MalformedAnswer, SlurmscopeError
from slurmscope.model.check import Check
from slurmscope.sources.accounting.settings import ALL_CLUSTERS, AccountingSettings
from slurmscope.sources.prometheus.settings import PrometheusSettings
from slurmscope.sources.slurm.commands import RunCommand
from slurmscope.sources.slurm.other_cluster import run_in_cluster
from slurmscope.sources.slurm.scontrol_config import read_config
from slurmscope.units import DAY_SECONDS

ACTIVE_SECONDS = 7 * DAY_SECONDS
ADVICE = (
    "set prometheus.cluster-label to the label with the name of the cluster, or give each cluster a portal of its "
    "own with prometheus.matchers: docs/scaling.md"
)

CONTROLLER_ADVICE = (
    "pages show no nodes and no pending jobs of this cluster: check that its slurmctld runs, that this host can "
    "connect to the ControlHost and ControlPort that sacctmgr list clusters prints, and that both share a munge key"
)


def require_cluster_label(settings: PrometheusSettings, accounting: AccountingSettings) -> None:
    """Raise ConfigError if several clusters are configured whose series cannot be distinguished."""
    if settings.url is not None and not settings.cluster_label and len(accounting.clusters) > 1:
        names = ", ".join(accounting.clusters)
        raise ConfigError(f"job IDs of {names} repeat, and their series would be added up; {ADVICE}")


def require_one_cluster(accounting: AccountingSettings) -> None:
    """Raise ConfigError if several clusters are configured where the jobs of one are recorded."""
    if len(accounting.clusters) > 1 or accounting.clusters == (ALL_CLUSTERS,):
        raise ConfigError("slurmscope up records the jobs of one cluster; name one in accounting.clusters, or none")


def check_controller(run: RunCommand, cluster: str) -> Check:
    """Check that the controller of another cluster answers Slurm's commands with -M, and is the one of that cluster."""
    name = f"controller of {cluster}"
    try:
        found = read_config(run_in_cluster(run, cluster)).cluster_name.lower()
        if found != cluster:
            raise MalformedAnswer(
                f"the controller that slurmdbd names for {cluster} is that of {found or 'no cluster'}"
            )
    except SlurmscopeError as error:
        return Check(name=name, is_good=False, message=str(error), advice=CONTROLLER_ADVICE)
    return Check(name=name, is_good=True, message="it answers")


def find_active_clusters(checkpoints: Mapping[str, str], now: float) -> tuple[str, ...]:
    """Return the clusters that were read lately, given the checkpoints by cluster; others no longer exist."""
    since = now - ACTIVE_SECONDS
    return tuple(sorted(name for name, text in checkpoints.items() if text.isdecimal() and int(text) >= since))


def find_mixed_clusters(settings: PrometheusSettings, read: Sequence[str], archived: Iterable[str] = ()) -> str:
    """Return a message if series of several clusters may be added up; empty if not.

    ``read`` are the clusters whose jobs are read here, ``archived`` those that other portals archive, perhaps from a
    Prometheus of their own.
    """
    if settings.url is None or settings.cluster_label or (len(read) < 2 and settings.matchers):
        return ""
    names = sorted({*read, *archived})
    if len(names) < 2:
        return ""
    return f"jobs of {', '.join(names)} may have equal IDs, whose series in one Prometheus are added up"
