# SPDX-License-Identifier: Apache-2.0
"""Wire the cluster exporter: which command feeds which reading, and how often."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurmscope.config import Config, parse_path
from slurmscope.metrics.collector import Role
from slurmscope.metrics.family import Family
from slurmscope.model.controller_config import ControllerConfig
from slurmscope.model.job_list import JobList
from slurmscope.services.cluster.completions import CompletionsTracker
from slurmscope.services.cluster.queue import QueueReader
from slurmscope.services.cluster.seed_scrapes import command_families, scrape_families
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.exporter.settings import exporter_sections
from slurmscope.services.exporter.wiring import Wiring
from slurmscope.settings import Section, setting
from slurmscope.sources.slurm import (
    sacctmgr_stats,
    scontrol_config,
    scontrol_licenses,
    scontrol_limits,
    scontrol_ping,
    scontrol_reservations,
    sdiag,
    squeue_list,
    sshare,
)
from slurmscope.sources.slurm.backends import Backend, open_backend
from slurmscope.sources.slurm.commands import SlurmCommands, SlurmSettings, random_separator
from slurmscope.units import parse_seconds

KEEP_SECONDS = 300.0
KEEP_INTERVALS = 3


def _interval(default_seconds: float, what: str) -> float:
    return setting(
        default_seconds,
        help=f"Shortest time between two questions for {what}; never less than --slurm.poll-limit.",
        parse=parse_seconds,
        metavar="DURATION",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalSettings:
    """How often each kind of question is asked; what changes slowly is asked for rarely."""

    jobs: float = _interval(0.0, "the queue")
    job_list: float = _interval(0.0, "jobs one by one")
    nodes: float = _interval(0.0, "nodes and partitions")
    controllers: float = _interval(0.0, "the state of the controllers")
    diag: float = _interval(30.0, "the scheduler's statistics")
    licenses: float = _interval(180.0, "licences")
    reservations: float = _interval(300.0, "reservations")
    limits: float = _interval(300.0, "limits and their use")
    shares: float = _interval(600.0, "fair shares")
    dbd: float = _interval(300.0, "the statistics of slurmdbd")
    completions: float = _interval(60.0, "jobs that ended")
    config: float = _interval(600.0, "Slurm's configuration")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionsSettings:
    """Where counting of ended jobs begins and goes on."""

    state_file: Path | None = setting(
        None,
        help="File that keeps the counts of ended jobs over a restart; without it they start at 0.",
        parse=parse_path,
        metavar="FILE",
    )
    look_back: float = setting(
        0.0, help="How far back to count when there is no state yet.", parse=parse_seconds, metavar="DURATION"
    )


def cluster_sections() -> Iterator[Section]:
    """Yield what can be set for the cluster exporter."""
    yield Section(name="slurm", type=SlurmSettings)
    yield Section(name="slurm.interval", type=IntervalSettings)
    yield Section(name="completions", type=CompletionsSettings)
    yield from exporter_sections(Role.CLUSTER)


def wire_cluster(config: Config, environment: Mapping[str, str]) -> Wiring:
    """Make every reading that a cluster collector can name."""
    settings = config.of(SlurmSettings)
    commands = SlurmCommands(settings, environment)
    intervals = config.of(IntervalSettings)
    readings = {
        name: _make_reading(name, read, max(settings.poll_limit, getattr(intervals, name)))
        for name, read in _readers(commands, open_backend(settings, commands), config.of(CompletionsSettings)).items()
    }

    def own_families() -> Iterator[Family]:
        yield from command_families(commands.runs)
        yield from scrape_families(readings)

    return Wiring(
        readings=readings,
        own_families=own_families,
        hidden_labels=_hidden_labels(readings["config"]) if settings.private_data == "respect" else None,
    )


def _hidden_labels(reading: SharedReading) -> Callable[[float], frozenset[str]]:
    """Return a function that tells, before a given moment, which labels Slurm's PrivateData forbids."""

    def hidden(until: float) -> frozenset[str]:
        reading.request()
        config = reading.wait(until).value
        return config.hidden_labels if isinstance(config, ControllerConfig) else frozenset()

    return hidden


def _readers(
    commands: SlurmCommands, backend: Backend, completions: CompletionsSettings
) -> dict[str, Callable[[], object]]:
    run = commands.run
    tracker = CompletionsTracker(
        wall_clock=time.time, state_file=completions.state_file, look_back_seconds=completions.look_back
    )
    return {
        "jobs": QueueReader(backend.read_jobs, time.time).read,
        "job_list": lambda: _read_job_list(commands),
        "nodes": backend.read_nodes,
        "controllers": lambda: scontrol_ping.read_controllers(run),
        "diag": lambda: sdiag.parse_diag(run(sdiag.COMMAND, sdiag.ARGUMENTS)),
        "licenses": lambda: scontrol_licenses.parse_licenses(run("scontrol", scontrol_licenses.ARGUMENTS)),
        "reservations": lambda: scontrol_reservations.parse_reservations(
            run("scontrol", scontrol_reservations.ARGUMENTS)
        ),
        "limits": lambda: scontrol_limits.parse_limits(run("scontrol", scontrol_limits.ARGUMENTS)),
        "shares": lambda: sshare.parse_shares(run("sshare", sshare.ARGUMENTS)),
        "dbd": lambda: sacctmgr_stats.parse_dbd(run(sacctmgr_stats.COMMAND, sacctmgr_stats.ARGUMENTS)),
        "completions": lambda: tracker.update(run),
        "config": lambda: scontrol_config.parse_config(run("scontrol", scontrol_config.ARGUMENTS)),
    }


def _read_job_list(commands: SlurmCommands) -> JobList:
    separator = random_separator()
    return squeue_list.parse_job_list(commands.run("squeue", squeue_list.arguments(separator)), separator)


def _make_reading(name: str, read: Callable[[], object], interval_seconds: float) -> SharedReading:
    keep_seconds = max(KEEP_SECONDS, KEEP_INTERVALS * interval_seconds)
    return SharedReading(name, read, interval_seconds=interval_seconds, keep_seconds=keep_seconds)
