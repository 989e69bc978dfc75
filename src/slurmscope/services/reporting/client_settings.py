# SPDX-License-Identifier: Apache-2.0
"""Declare the settings with which ``slurmscope report`` reads jobs from a portal."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from slurmscope.config import parse_path
from slurmscope.http_client.address import ServerAddress, parse_address
from slurmscope.portal.views.page_paths import job_path
from slurmscope.settings import setting
from slurmscope.units import parse_positive_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Which portal to read jobs from, and how to authenticate."""

    url: ServerAddress | None = setting(
        None,
        help="Portal to read jobs from, instead of this host's archive and accounting: https://HOST[:PORT][/PREFIX].",
        parse=parse_address,
        metavar="URL",
    )
    token_file: Path = setting(
        Path("~/.config/slurmscope/token"),
        help="File with the portal token of slurmscope report, readable by its owner only; without it, munge is used.",
        parse=parse_path,
        metavar="FILE",
    )
    token_over_http: bool = setting(
        False, help="Send the token to portals on other hosts without TLS, where the network can read it."
    )
    ca_file: Path | None = setting(
        None, help="CA file that verifies the portal; default is the system's.", parse=parse_path, metavar="FILE"
    )
    timeout: float = setting(
        20.0, help="Timeout for each request to the portal.", parse=parse_positive_seconds, metavar="DURATION"
    )


def is_private(address: ServerAddress) -> bool:
    """Return whether the network cannot read what is sent: TLS, loopback or a unix socket."""
    if address.is_tls or address.socket_path or address.host == "localhost":
        return True
    try:
        return ip_address(address.host).is_loopback
    except ValueError:
        return False


def portal_link(shown_id: str, settings: ClientSettings, *, cluster: str = "") -> str:
    """Return the address of a job's page; empty without a portal that browsers can reach."""
    address = settings.url
    if address is None or address.socket_path:
        return ""
    usual = ":443" if address.is_tls else ":80"
    scheme = "https" if address.is_tls else "http"
    return f"{scheme}://{address.host_and_port.removesuffix(usual)}{address.prefix}{job_path(shown_id, cluster)}"
