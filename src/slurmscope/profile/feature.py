# SPDX-License-Identifier: Apache-2.0
"""Join Slurm's own samples to the node agent, if a socket or address to receive them is configured."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from slurmscope.core.config import file_path
from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import Section, parse_text, setting
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.output_settings import WebSettings, parse_push_url
from slurmscope.exporter.reading import SharedReading
from slurmscope.http.server.address import parse_address
from slurmscope.node.job_use import NodeJobs
from slurmscope.node.settings import NodeSettings
from slurmscope.profile.collector import COLLECTOR
from slurmscope.profile.events import Profile

INTERCONNECTS = ("ofed", "sysfs")


def parse_inbox_address(given: object) -> str:
    """Parse the address to listen on for writes; empty for none."""
    text = parse_text(given)
    try:
        return str(parse_address(text)) if text else ""
    except ConfigError as error:
        raise ValueError(str(error)) from error


def parse_interconnect(given: object) -> str:
    """Parse the name of Slurm's interconnect plugin; empty if it is not known."""
    name = parse_text(given).removeprefix("acct_gather_interconnect/")
    if name and name not in INTERCONNECTS:
        raise ValueError(f"{name!r} is not one of {', '.join(INTERCONNECTS)}")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """How samples of Slurm's profiling plugin are received; see docs/profiling.md."""

    socket: Path | None = file_path(
        None, "Listen on this unix socket for Slurm's profiling plugin; ProfilePrometheusSocket in acct_gather.conf."
    )
    influxdb_listen_address: str = setting(
        "",
        "Listen here for Slurm's plugin acct_gather_profile/influxdb; ProfileInfluxDBHost in acct_gather.conf. "
        "On a loopback address only root may write; others need TLS and users in web.config.file.",
        parse=parse_inbox_address,
        metavar="ADDRESS",
    )
    influxdb_gpus: bool = setting(
        False, "Use the GPU fields of acct_gather_profile/influxdb; only if AccountingStorageTRES has gres/gpu."
    )
    influxdb_interconnect: str = setting(
        "",
        "AcctGatherInterconnectType where acct_gather_profile/influxdb is used: ofed or sysfs. Without it, "
        "network bytes are left out, as their unit differs.",
        parse=parse_interconnect,
        metavar="NAME",
    )
    timeout: float = 600.0
    """Drop a step that sent nothing for this long; longer than the intervals of JobAcctGatherFrequency."""
    push: str = setting(
        "",
        "Push the samples to this Pushgateway under Slurm's own names, and delete them there at the step's end.",
        parse=parse_push_url,
        metavar="URL",
        is_secret=True,
    )
    push_interval: float = 5.0
    """Minimum interval between pushes of the same job."""

    @property
    def has_input(self) -> bool:
        """Return whether samples can be received."""
        return self.socket is not None or bool(self.influxdb_listen_address)


def check_push(settings: ProfileSettings) -> None:
    """Raise ConfigError if samples are to be pushed, but cannot be received."""
    if settings.push and not settings.has_input:
        raise ConfigError(
            "profile.push needs profile.socket or profile.influxdb-listen-address, where the samples to push arrive"
        )


ADVICE = "check the path of its socket and the directory, which the unit creates while the agent runs"
RUNNING_SECONDS = 3.0
"""How long the reading of profiled steps waits for that of the jobs."""


def find_running(node_jobs: SharedReading) -> frozenset[int] | None:
    """Return the jobs that run on this node, None if they could not be read now."""
    node_jobs.request()
    snapshot = node_jobs.wait(time.monotonic() + RUNNING_SECONDS)
    if snapshot.error is not None or not isinstance(snapshot.value, NodeJobs):
        return None
    return frozenset(job.key.job_id for job in snapshot.value.jobs if not job.has_ended)


def _open(host: Host) -> Running:
    settings, jobs = host.config.of(ProfileSettings), host.readings["node_jobs"]

    def share(read: Callable[[], Profile]) -> tuple[SharedReading]:
        return (SharedReading("profile", read, interval_seconds=jobs.interval_seconds, advice=ADVICE),)

    check_push(settings)
    if not settings.has_input:
        return Running(readings=share(Profile))
    # Imported here: most nodes receive no samples.
    from slurmscope.profile.service import NodeProfiling

    profiling = NodeProfiling(
        settings,
        grace_seconds=host.config.of(NodeSettings).grace,
        host=socket.gethostname(),
        config_file=host.config.of(WebSettings).config_file,
        find_running=partial(find_running, jobs),
    )
    stack = ExitStack()
    stack.enter_context(profiling.open())
    return Running(readings=share(profiling.read), checks=profiling.checks, close=stack.close)


PROFILING = Feature(
    name="profile", sections=(Section(name="profile", type=ProfileSettings),), collectors=(COLLECTOR,), open=_open
)
