# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of recording in one process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from slurmscope.config import parse_path
from slurmscope.http_client.address import ServerAddress, parse_address
from slurmscope.services.portal.settings import portal_sections
from slurmscope.settings import Section, parse_list, setting
from slurmscope.store.recorder.settings import RecorderSettings
from slurmscope.units import parse_positive_seconds

AGENT_PORT = 9798
AGENT_PATH = "/metrics"

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")
_NAMED = re.compile(r"(?P<node>[^=/:]*)=(?P<url>.*)\Z")
_NUMBERS = re.compile(r"[0-9.]+\Z|.*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Name a node agent: its address, and the node of samples that have no node label."""

    address: ServerAddress
    node: str = ""

    def __str__(self) -> str:
        """Write the target as :func:`parse_target` reads it."""
        return f"{self.node}={self.address}" if self.node not in ("", self.address.host) else str(self.address)


def parse_targets(given: object) -> tuple[Target, ...]:
    """Parse addresses of node agents: repeated flags, a list in the file, or comma-separated in the environment."""
    return tuple(parse_target(item) for item in parse_list(given))


def parse_target(text: str) -> Target:
    """Parse ``[NODE=]URL``; without NODE the host is the node name, unless it is an IP address or localhost."""
    named = _NAMED.match(text)
    node, url = (named["node"], named["url"]) if named else ("", text)
    if named and not _NODE.match(node):
        raise ValueError(f"{node!r} is not a node name")
    address = parse_address(url, default_port=AGENT_PORT)
    if not address.socket_path and not node and address.host != "localhost" and not _NUMBERS.match(address.host):
        node = address.host
    return Target(address=replace(address, prefix=address.prefix or AGENT_PATH), node=node)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpSettings:
    """What slurmscope up records."""

    cluster: bool = setting(True, help="Record cluster metrics.")
    node: bool = setting(True, help="Record the jobs of this host, as slurmscope node does.")
    targets: tuple[Target, ...] = setting(
        (),
        help="Node agent to scrape, as http://n1:9798/metrics or n1=http://10.0.0.1:9798/metrics; repeatable.",
        parse=parse_targets,
        metavar="[NODE=]URL",
    )
    bearer_token_file: Path | None = setting(
        None, help="File with the bearer token for node agents.", parse=parse_path, metavar="FILE"
    )
    timeout: float = setting(
        10.0, help="Timeout for scraping a node agent.", parse=parse_positive_seconds, metavar="DURATION"
    )


def up_sections() -> Iterator[Section]:
    """Yield the settings of slurmscope up."""
    # Imported here: only this function needs the agent.
    from slurmscope.services.node.readings import NodeSettings

    yield Section(name="up", type=UpSettings)
    yield Section(name="node", type=NodeSettings)
    yield Section(name="recorder", type=RecorderSettings)
    yield from portal_sections()
