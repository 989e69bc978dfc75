# SPDX-License-Identifier: Apache-2.0
"""Open the readings of the cluster exporter, and respect Slurm's PrivateData.

Readings and commands are exported as metrics, also under the names of older exporters::

    slurmscope_commands_total{command="squeue"} 360
    slurm_job_scrape_duration 112
"""

from __future__ import annotations

import functools
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurmscope.cluster import scheduler
from slurmscope.cluster.backends import JOBS, NODES, open_backend
from slurmscope.cluster.completions_tracker import COMPLETIONS, CompletionsSettings
from slurmscope.cluster.scheduler import DIAG
from slurmscope.cluster.slurm import CONFIG
from slurmscope.cluster.sources import Sources
from slurmscope.core.check import Check
from slurmscope.core.errors import CommandMissing, MalformedAnswer, SlurmscopeError, SourceError
from slurmscope.core.log import fields
from slurmscope.core.settings import Section, duration
from slurmscope.exporter.collector import SLOW_SECONDS, Reading, declared_readings, find_collectors
from slurmscope.exporter.doctor import ADVICE
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.reading import SharedReading, open_reading
from slurmscope.http.server.app import Audience
from slurmscope.metrics.family import Family, Metric, counter
from slurmscope.slurm import munge
from slurmscope.slurm.command import RunCommand, SlurmCommands, SlurmSettings
from slurmscope.slurm.config import (
    ALL_HIDDEN_LABELS,
    CONTROLLER,
    ControllerConfig,
    Controllers,
    JobVisibility,
    read_config,
)

logger = logging.getLogger(__name__)

COMMANDS = counter("slurmscope_commands_total", "Runs of Slurm commands, by command.", "command")
MOST_SKEW_SECONDS = 5.0

MUNGE_ADVICE = "start munge (systemctl start munge): without it, Slurm commands hang and print nothing"
STORAGE_ADVICE = (
    "set AccountingStorageType=accounting_storage/slurmdbd and run slurmdbd: without it there are no archived jobs, "
    "limits and shares; or disable collector.completions, limits and shares of the cluster exporter"
)
PRIVATE_ADVICE = "until then squeue and sacct print no jobs of others: pages and metrics of jobs are missing"
CLOCK_ADVICE = "synchronize the clocks of this host and the controller (chrony): ages and ends of jobs are wrong"

_REPORTED = re.compile(rb"sdiag output at [^\n]*\((\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSettings:
    """How often Slurm is called for what changes slowly."""

    slow_interval: float = duration(
        SLOW_SECONDS,
        "Interval between Slurm calls for what changes slowly, such as reservations and limits; those of sdiag "
        "(30s), sacct (1m), licenses (3m), shares and configuration (10m) change in proportion.",
    )


@functools.cache
def cluster_feature() -> Feature:
    """Return what every cluster exporter has: a collector is any module of this package that declares one."""
    collectors, own = find_collectors("slurmscope.cluster"), (JOBS, NODES, DIAG, COMPLETIONS)
    return Feature(
        name="cluster",
        sections=(
            Section(name="slurm", type=SlurmSettings),
            Section(name="slurm", type=SlowSettings),
            Section(name="completions", type=CompletionsSettings),
        ),
        collectors=collectors,
        readings=own,
        metrics=(COMMANDS, *_older_metrics(declared_readings(collectors, *own))),
        open=_open,
    )


def _older_metrics(declared: Mapping[str, Reading]) -> Iterator[Metric]:
    for reading in declared.values():
        if reading.duration_metric:
            yield reading.duration_metric
        yield from reading.error_metrics


def _open(host: Host) -> Running:
    """Open every declared reading; nothing is read yet."""
    settings = host.config.of(SlurmSettings)
    slow_seconds = host.config.of(SlowSettings).slow_interval
    commands = SlurmCommands(settings, host.environment)
    host.sources = Sources(
        run=commands.run,
        backend=open_backend(settings, commands),
        settings=host.config.of,
        wall_clock=time.time,
        require_all_jobs=JobVisibility(commands.run, CONTROLLER).require,
    )
    readings = {
        name: open_reading(declared, host.sources, shortest_seconds=settings.poll_limit, slow_seconds=slow_seconds)
        for name, declared in host.declared.items()
    }

    def checks() -> Iterator[Check]:
        needs_accounting = host.config.values["collector.completions.enabled"].value is True
        yield from check_slurm(commands.run, host.environment, needs_accounting=needs_accounting)
        yield from check_controllers(readings["controllers"].wait(0.0).value)

    def families(_: Mapping[str, bool]) -> Iterator[Family]:
        yield Family(COMMANDS, {(command,): count for command, count in sorted(commands.runs.items())})
        yield from _older_families(host.declared, readings)

    respects = settings.private_data == "respect"
    return Running(
        readings=tuple(readings.values()),
        hidden_labels=functools.partial(_hidden_labels, readings[CONFIG.name])
        if respects
        else lambda _, __: frozenset(),
        families=families,
        checks=checks,
    )


def _older_families(declared: Mapping[str, Reading], readings: Mapping[str, SharedReading]) -> Iterator[Family]:
    """Yield durations and errors of readings under their older names."""
    for name, reading in readings.items():
        if not reading.attempts:
            continue
        metric = declared[name].duration_metric
        if metric is not None and reading.duration_seconds is not None:
            yield Family(metric, {(): round(reading.duration_seconds * 1000, 3)})
        for metric in declared[name].error_metrics:
            yield Family(metric, {(): sum(reading.errors.values())})


def _hidden_labels(config: SharedReading, until: float, _: Audience) -> frozenset[str]:
    """Return the labels that Slurm's PrivateData hides: all that it could hide while it is unknown."""
    config.request()
    snapshot = config.wait(until)
    if isinstance(snapshot.value, ControllerConfig):
        return snapshot.value.hidden_labels
    logger.warning("PrivateData is unknown, hiding series by user, job and account", extra=fields(error=snapshot.error))
    return ALL_HIDDEN_LABELS


def check_slurm(
    run: RunCommand,
    environment: Mapping[str, str],
    *,
    needs_accounting: bool = True,
    wall_clock: Callable[[], float] = time.time,
) -> Iterator[Check]:
    """Check one dependency after the other; without munge the rest would only time out."""
    if (socket := munge.find_munge_socket(environment)) is not None:
        check = _check("munge", lambda: _check_munge(socket), MUNGE_ADVICE)
        yield check
        if not check.is_good:
            return
    try:
        storage = read_config(run).accounting_storage
    except CommandMissing as error:
        yield Check(name="Slurm commands", is_good=False, message=str(error), advice=ADVICE["missing"])
        return
    except SlurmscopeError:  # PrivateData, which comes from the same answer, says so
        storage = ""
    if storage == "none":
        yield Check(
            name="accounting storage",
            is_good=not needs_accounting,
            message="slurm.conf has no AccountingStorageType: Slurm keeps nothing about ended jobs",
            advice=STORAGE_ADVICE,
        )
    yield _check("PrivateData", lambda: _check_private_data(run), PRIVATE_ADVICE)
    yield _check("clock", lambda: _check_clock(run, wall_clock), CLOCK_ADVICE)


def check_controllers(controllers: object) -> Iterator[Check]:
    """Check that a controller answers: their reading succeeds also if none does."""
    if not isinstance(controllers, Controllers):
        return
    names = ", ".join(one.host for one in controllers.controllers) or "no controller"
    is_up = controllers.is_up
    yield Check(
        name="controllers",
        is_good=is_up,
        message=f"{names} answers" if is_up else f"no controller answers ({names})",
        advice="" if is_up else "check that slurmctld runs there and can be reached from here",
    )


def _check(name: str, run: Callable[[], str], advice: str) -> Check:
    try:
        return Check(name=name, is_good=True, message=run())
    except SlurmscopeError as error:
        reason = error.reason if isinstance(error, SourceError) else ""
        own = ADVICE[reason] if reason in ("missing", "timeout", "failed") else advice
        return Check(name=name, is_good=False, message=str(error), advice=own)


def _check_munge(socket: Path) -> str:
    munge.try_munge(socket)
    return f"munged listens on {socket}"


def _check_private_data(run: RunCommand) -> str:
    return JobVisibility(run, CONTROLLER).describe()


def _check_clock(run: RunCommand, wall_clock: Callable[[], float]) -> str:
    before = wall_clock()
    match = _REPORTED.search(run(scheduler.COMMAND, scheduler.ARGUMENTS))
    after = wall_clock()
    if match is None:
        raise MalformedAnswer("sdiag: the answer does not say when it was made")
    controller = float(match[1])
    # The controller reports whole seconds.
    skew_seconds = max(before - controller - 1, controller - after, 0.0)
    if skew_seconds > MOST_SKEW_SECONDS:
        direction = "behind" if controller > after else "ahead of"
        raise ClockSkew(f"the clock of this host is {skew_seconds:.0f} s {direction} the controller's")
    return "the clocks of this host and the controller agree"


class ClockSkew(SlurmscopeError):
    """Two clocks differ too much."""
