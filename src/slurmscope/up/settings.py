# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of recording in one process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

from slurmscope.core.config import file_path
from slurmscope.core.errors import ConfigError
from slurmscope.core.hostlist import expand_hosts
from slurmscope.core.settings import Section, parse_list, setting
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.portal.settings import portal_sections
from slurmscope.recorder.settings import RecorderSettings

AGENT_PORT = 9798
AGENT_PATH = "/metrics"

NODES_LIMIT = 1024
"""Maximum number of nodes of one target: a host with that many slurmd is a simulated cluster."""
NODE_FIELD = "{node}"

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")
_NAMED = re.compile(r"(?P<nodes>[^=/:]*)=(?P<url>.*)\Z")
_NUMBERS = re.compile(r"[0-9.]+\Z|.*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Name a node agent: its address, and the nodes whose jobs it may report.

    The first of ``nodes`` is the node of samples that have no node label.
    """

    address: ServerAddress
    nodes: tuple[str, ...]
    label: str = ""

    def __str__(self) -> str:
        """Write the target as :func:`parse_target` reads it."""
        return f"{self.label}={self.address}" if self.label else str(self.address)

    @property
    def is_private(self) -> bool:
        """Return whether the network cannot read what is sent: TLS, loopback or a unix socket."""
        address = self.address
        return address.is_tls or bool(address.socket_path) or is_loopback(address.host)


def parse_targets(given: object) -> tuple[Target, ...]:
    """Parse addresses of node agents: repeated flags, a list in the file, or comma-separated in the environment."""
    return tuple(parse_target(item) for item in parse_list(given))


def parse_target(text: str) -> Target:
    """Parse ``[NODE=]URL``, where NODE may be a host list; without NODE the host is the node name."""
    named = _NAMED.match(text)
    label, url = (named["nodes"], named["url"]) if named else ("", text)
    address = parse_address(url, default_port=AGENT_PORT)
    nodes = expand_hosts(label, NODES_LIMIT) if named else _nodes_of_host(address)
    for node in nodes or (label,):
        if not _NODE.match(node):
            raise ValueError(f"{node!r} is not a node name")
    return Target(address=replace(address, prefix=address.prefix or AGENT_PATH), nodes=nodes, label=label)


def _nodes_of_host(address: ServerAddress) -> tuple[str, ...]:
    host = address.host
    if address.socket_path or host == "localhost" or _NUMBERS.match(host):
        raise ValueError(f"the node of {address} is not known; write NODE={address}")
    # Agents report the short host name.
    return tuple(dict.fromkeys((host, host.partition(".")[0])))


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, judged by its text alone: a name service may be wrong."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpSettings:
    """What slurmscope up records."""

    cluster: bool = setting(True, "Record cluster metrics.")
    node: bool = setting(True, "Record the jobs of this host, as slurmscope node does.")
    targets: tuple[Target, ...] = setting(
        (),
        "Node agent to scrape, for its own nodes only: http://n1:9798/metrics or n[1-4]=http://10.0.0.1:9798/metrics.",
        parse=parse_targets,
        metavar="[NODE=]URL",
    )
    bearer_token_file: Path | None = file_path(
        None, "File with the bearer token for node agents; {node} in it is replaced by the node's name."
    )
    bearer_token_over_http: bool = setting(
        False, "Send the bearer token to other hosts without TLS, where the network can read it."
    )
    timeout: float = 10.0
    """Timeout for scraping a node agent."""

    def token_path(self, target: Target) -> Path | None:
        """Return the file with the token for a target; raise ConfigError if the token would be sent in clear text."""
        if self.bearer_token_file is None:
            return None
        if not target.is_private and not self.bearer_token_over_http:
            raise ConfigError(
                f"the bearer token would be sent to {target} in clear text; "
                "use https:// or set up.bearer-token-over-http"
            )
        return Path(str(self.bearer_token_file).replace(NODE_FIELD, target.nodes[0]))


def up_sections() -> Iterator[Section]:
    # Imported here: only this function needs the agent.
    from slurmscope.node.settings import NodeSettings

    yield Section(name="up", type=UpSettings)
    yield Section(name="node", type=NodeSettings)
    yield Section(name="recorder", type=RecorderSettings)
    yield from portal_sections()
