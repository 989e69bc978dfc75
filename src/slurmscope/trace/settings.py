# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of tracing in the cluster exporter and in the node agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.config import file_path
from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import duration, setting
from slurmscope.core.units import parse_seconds
from slurmscope.exporter.settings import parse_telemetry_path
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.http.server.address import Network, parse_networks

DEFAULT_RATE_SECONDS = 10.0


def parse_rate(given: object) -> float:
    """Parse the interval between samples; 0 means the default, as in the older Slurm exporter."""
    return parse_seconds(given) or DEFAULT_RATE_SECONDS


def _rate() -> float:
    return duration(
        DEFAULT_RATE_SECONDS,
        "Sample interval of senders that do not state theirs; a sample expires after three intervals.",
        parse=parse_rate,
    )


def _processes() -> int:
    return setting(
        50_000,
        "Maximum number of traced processes; one user may have a fifth of them, one job a twenty-fifth. "
        "As many may be new in an hour. Limits of posts per second follow: a fiftieth of it for a user (at least 100), "
        "a five-hundredth for a job (at least 10).",
        metavar="COUNT",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLimits:
    """Limit what senders may store and how many posts per second they may send; 0 posts means no limit."""

    rate: float = DEFAULT_RATE_SECONDS
    processes: int = 50_000
    processes_per_job: int = 2_000
    processes_per_user: int = 10_000
    posts_per_job: int = 100
    posts_per_user: int = 1_000


def limits_of(settings: TraceSettings | NodeTraceSettings) -> TraceLimits:
    """Derive the limits of jobs and users from that of all processes."""
    processes = settings.processes
    return TraceLimits(
        rate=settings.rate,
        processes=processes,
        processes_per_job=max(1, processes // 25),
        processes_per_user=max(1, processes // 5),
        posts_per_job=max(10, processes // 500),
        posts_per_user=max(100, processes // 50),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """The endpoint to which jobs send samples of their processes."""

    rate: float = _rate()
    processes: int = _processes()
    enabled: bool = setting(False, "Accept samples of traced processes from jobs.")
    path: str = setting("/trace", "Path of the trace endpoint.", parse=parse_telemetry_path, metavar="PATH")
    key_file: Path | None = file_path(
        None, "File with the keys of job tokens, made by slurmscope trace key; without it, tokens are refused."
    )
    munge: bool = setting(True, "Accept samples with a munge credential.")
    plain_networks: tuple[Network, ...] = setting(
        (),
        "Network from which samples are accepted without a credential, such as 127.0.0.0/8; repeatable.",
        parse=parse_networks,
        metavar="NETWORK",
    )
    grace: float = duration(
        30.0, "How long samples of a job are still accepted and exposed after its end.", parse=parse_seconds
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTraceSettings:
    """The unix socket to which jobs on this node send samples of their processes."""

    rate: float = _rate()
    processes: int = _processes()
    socket: Path | None = file_path(
        None, "Unix socket on which to accept samples of traced processes; without it, none are accepted."
    )
    forward: ServerAddress | None = setting(
        None,
        "URL of the trace endpoint of the cluster exporter, which then exposes the samples instead of this agent.",
        parse=parse_address,
        metavar="URL",
    )
    key_file: Path | None = file_path(
        None, "File with the keys of job tokens, the same as the cluster exporter's; needed with trace.forward."
    )


def check_forwarding(settings: NodeTraceSettings) -> None:
    """Raise ConfigError if samples are to be forwarded, but cannot be received or signed."""
    if settings.forward is None:
        return
    if settings.socket is None:
        raise ConfigError("trace.forward needs trace.socket: there is nothing to forward without a socket")
    if settings.key_file is None:
        raise ConfigError("trace.forward needs trace.key-file: the endpoint accepts samples with a job token only")
