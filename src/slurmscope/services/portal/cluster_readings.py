# SPDX-License-Identifier: Apache-2.0
"""Read one cluster in the background: its jobs, its nodes, its queue and what explains it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.exporter.visible_jobs import require_all_jobs
from slurmscope.services.portal.cluster_state import ClusterState
from slurmscope.services.portal.known_config import KnownConfig
from slurmscope.services.portal.waiting import WaitingReadings, make_waiting_readings
from slurmscope.sources.slurm.backends import Backend, TextCommands
from slurmscope.sources.slurm.commands import RunCommand
from slurmscope.sources.slurm.job_visibility import CONTROLLER, JobVisibility
from slurmscope.sources.slurm.other_cluster import run_in_cluster
from slurmscope.sources.slurm.squeue import StartWindow

NOW_SECONDS = 30.0
"""Minimum interval between reads of queue and nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReadings:
    """Hold the readings of one cluster; none of them is requested yet."""

    jobs: SharedReading
    nodes: SharedReading
    state: ClusterState
    waiting: WaitingReadings


def make_own_readings(run: RunCommand, backend: Backend) -> LiveReadings:
    """Return the readings of this host's cluster."""
    return _make_readings(run, backend, KnownConfig(run))


def make_other_readings(run: RunCommand, cluster: str) -> LiveReadings:
    """Return the readings of another cluster, by text commands, which find its controller through slurmdbd."""
    run_there = run_in_cluster(run, cluster)
    return _make_readings(run_there, TextCommands(run_there), KnownConfig(run_there, cluster))


def _make_readings(run: RunCommand, backend: Backend, config: KnownConfig) -> LiveReadings:
    visibility = JobVisibility(run, CONTROLLER)
    no_starts = StartWindow(0, 0)
    read_jobs = require_all_jobs(lambda: backend.read_jobs(no_starts, time.time()), visibility)
    jobs = SharedReading(config.name("jobs"), config.guard(read_jobs), interval_seconds=NOW_SECONDS)
    nodes = SharedReading(config.name("nodes"), config.guard(backend.read_nodes), interval_seconds=NOW_SECONDS)
    return LiveReadings(
        jobs=jobs,
        nodes=nodes,
        state=ClusterState(jobs, nodes),
        waiting=make_waiting_readings(run, visibility, jobs, nodes, config),
    )
