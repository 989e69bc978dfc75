# SPDX-License-Identifier: Apache-2.0
"""Every number of slurmdbd has its metric."""

from __future__ import annotations

from collections import Counter

from slurmscope.cluster.dbd import COLLECTOR, ClusterRollup, Dbd, Rollup, RollupTimes
from slurmscope.cluster.rpc import MessageRpcs, UserRpcs
from slurmscope.exporter.collector import NoOptions
from slurmscope.metrics.family import Samples
from slurmscope.metrics.guard import Guard

TIMES = RollupTimes(runs=2, seconds=0.75, last_seconds=0.25, max_seconds=0.5, last_timestamp=3_600)
POOR_TIMES = RollupTimes(runs=0, seconds=0.125, last_seconds=None, max_seconds=None, last_timestamp=None)
RICH = Dbd(
    since=1_000,
    rollups=(Rollup(origin="internal", times=TIMES), Rollup(origin="request", times=POOR_TIMES)),
    cluster_rollups=(ClusterRollup(cluster="lab", period="hour", times=TIMES),),
    messages=(
        MessageRpcs(message="DBD_FINI", requests=4, seconds=0.5),
        MessageRpcs(message="Unknown", requests=1, seconds=0.25),
        MessageRpcs(message="Unknown", requests=2, seconds=0.5),
    ),
    users=(UserRpcs(user="root", uid=0, requests=7, seconds=1.25),),
)


def serve(dbd: Dbd) -> dict[str, Samples]:
    """Return all samples that are left after the guard, by the name of their metric."""
    families = Guard().admit(COLLECTOR.collect(NoOptions(), dbd=dbd))
    return {family.metric.name: family.samples for family in families}


def test_every_number_has_its_own_metric() -> None:
    assert {
        "slurm_dbd_statistics_start_timestamp_seconds": {(): 1_000},
        "slurm_dbd_rpc_requests_total": {("DBD_FINI",): 4, ("Unknown",): 3},
        "slurm_dbd_rpc_seconds_total": {("DBD_FINI",): 0.5, ("Unknown",): 0.75},
        "slurm_dbd_rpc_user_requests_total": {("root", "0"): 7},
        "slurm_dbd_rpc_user_seconds_total": {("root", "0"): 1.25},
        "slurm_dbd_rollups_total": {("internal",): 2, ("request",): 0},
        "slurm_dbd_rollup_seconds_total": {("internal",): 0.75, ("request",): 0.125},
        "slurm_dbd_rollup_last_seconds": {("internal",): 0.25},
        "slurm_dbd_rollup_max_seconds": {("internal",): 0.5},
        "slurm_dbd_rollup_last_timestamp_seconds": {("internal",): 3_600},
        "slurm_dbd_cluster_rollups_total": {("lab", "hour"): 2},
        "slurm_dbd_cluster_rollup_seconds_total": {("lab", "hour"): 0.75},
        "slurm_dbd_cluster_rollup_last_seconds": {("lab", "hour"): 0.25},
        "slurm_dbd_cluster_rollup_max_seconds": {("lab", "hour"): 0.5},
        "slurm_dbd_cluster_rollup_last_timestamp_seconds": {("lab", "hour"): 3_600},
    } == serve(RICH)


def test_a_rich_answer_serves_exactly_what_is_declared() -> None:
    declared = Counter(metric.name for metric in COLLECTOR.metrics)

    assert {1} == set(declared.values())
    assert set(declared) == set(serve(RICH))


def test_a_daemon_without_figures_serves_none() -> None:
    assert {} == serve(Dbd(since=None, rollups=(), cluster_rollups=(), messages=(), users=()))


def test_it_is_disabled_by_default_because_it_needs_privileges() -> None:
    assert not COLLECTOR.is_default
