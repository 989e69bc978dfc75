# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of the push inbox."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

from slurmscope.config import parse_path
from slurmscope.outputs.networks import Network, parse_networks
from slurmscope.settings import SIZE, parse_text, setting
from slurmscope.units import parse_bytes, parse_seconds


def parse_size(given: object) -> int:
    """Parse a size in bytes."""
    return parse_bytes(parse_text(str(given)))


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxSettings:
    """The paths under /metrics/job/ to which batch jobs and scripts push metrics, as to a Pushgateway."""

    enabled: bool = setting(False, help="Accept pushed metrics and expose them beside the exporter's own.")
    networks: tuple[Network, ...] = setting(
        (ip_network("127.0.0.0/8"), ip_network("::1/128")),
        help="Network that may push while web.config.file requires neither password nor certificate; repeatable.",
        parse=parse_networks,
        metavar="NETWORK",
    )
    directory: Path | None = setting(
        None,
        help="Directory that keeps pushed metrics across restarts; without it they are lost. Read at start only.",
        parse=parse_path,
        metavar="DIR",
    )
    ttl: float = setting(
        7 * 86_400.0,
        help="How long a group is exposed after its last push; 0 means forever. ?ttl=DURATION of a push shortens it.",
        parse=parse_seconds,
        metavar="DURATION",
    )
    body_limit: int = setting(
        2 * 1024 * 1024,
        help="Maximum size of the body of a push, also when decompressed.",
        parse=parse_size,
        metavar=SIZE,
    )
    groups: int = setting(10_000, help="Maximum number of groups.", metavar="COUNT")
    series: int = setting(100_000, help="Maximum number of series of all groups together.", metavar="COUNT")
    series_per_group: int = setting(10_000, help="Maximum number of series of one group.", metavar="COUNT")
    size: int = setting(
        64 * 1024 * 1024, help="Maximum size of all groups together, as text.", parse=parse_size, metavar=SIZE
    )
