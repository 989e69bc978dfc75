# SPDX-License-Identifier: Apache-2.0
"""List the settings of the portal and its reporter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import Section, choice, parse_list, parse_text, setting
from slurmscope.portal.scope import UNIX, PeerList, parse_ip, parse_peers
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.settings import report_sections

LOCAL = "local"
OWNER, STAFF, OFF = "owner", "staff", "off"
PROXY = "proxy"

_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[0-9A-Fa-f:.%]+)\]|(?P<plain>[^:\[\]/]*)):(?P<port>[0-9]{1,5})")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_BASE_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?")
_DOMAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
# Linux limits a unix socket address to 108 bytes, including the terminating NUL.
_MAX_SOCKET_PATH_BYTES = 107
# Headers with another meaning: clients may set them freely.
_RESERVED_HEADERS = frozenset({"host", "authorization", "cookie", "connection", "content-length", "transfer-encoding"})
USER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,255}")
"""Allowed user names: ASCII only, because databases may treat accented letters as equal to plain ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """Where the portal listens: host and port, or ``socket_path``."""

    host: str = ""
    port: int = 0
    socket_path: str = ""

    def __str__(self) -> str:
        """Return the address as users write it."""
        if self.socket_path:
            return f"unix:{self.socket_path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Return whether only this machine can connect."""
        address = parse_ip(self.host)
        return bool(self.socket_path) or self.host == "localhost" or (address is not None and address.is_loopback)


def parse_listen_address(given: object) -> ListenAddress:
    """Parse a listen address: HOST:PORT, [IPV6]:PORT, :PORT or unix:/PATH."""
    text = parse_text(given) if not isinstance(given, ListenAddress) else str(given)
    if text.startswith("unix:/") and len(text.encode()) <= len("unix:") + _MAX_SOCKET_PATH_BYTES:
        return ListenAddress(socket_path=text.removeprefix("unix:"))
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, [IPV6]:PORT, :PORT or unix:/PATH of up to 107 bytes")
    return ListenAddress(host=match["bracketed"] or match["plain"], port=int(match["port"]))


def parse_base_path(given: object) -> str:
    """Parse the path under which a proxy serves the portal; a trailing slash is dropped."""
    path = parse_text(given).rstrip("/")
    if not _BASE_PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise ValueError(f"{given!r} is not a valid path prefix; use one such as /portal")
    return path


def parse_header_name(given: object) -> str:
    """Parse the name of the header in which the proxy passes the user name."""
    name = parse_text(given)
    if not _HEADER.fullmatch(name) or name.lower() in _RESERVED_HEADERS:
        raise ValueError(f"{given!r} cannot carry the user name; use a header such as X-Remote-User")
    return name


def parse_user_names(given: object) -> tuple[str, ...]:
    """Parse a list of user names."""
    names = parse_list(given)
    for name in names:
        if not USER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid user name")
    return names


def parse_user_name(given: object) -> str:
    """Parse one user name; empty is allowed."""
    name = parse_text(given)
    return parse_user_names([name])[0] if name else ""


def parse_domains(given: object) -> tuple[str, ...]:
    """Parse a list of domains or realms, without the at sign."""
    domains = parse_list(given)
    for domain in domains:
        if not _DOMAIN.fullmatch(domain):
            raise ValueError(f"{domain!r} is not a domain such as example.org")
    return domains


def parse_link(given: object) -> str:
    """Parse a link; schemes that run code in a browser are rejected."""
    link = parse_text(given)
    if link and not link.startswith(("https://", "http://", "mailto:")):
        raise ValueError(f"{given!r} is not an https://, http:// or mailto: link")
    return link


def parse_origins(given: object) -> tuple[str, ...]:
    """Parse a list of origins: scheme, host and port, without a path."""
    origins = parse_list(given)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is not an origin such as https://ondemand.example.org")
    return origins


def parse_time_zone(given: object) -> str:
    """Parse the name of a time zone that this system knows."""
    name = parse_text(given)
    if name == "UTC":
        return name
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{given!r} is not a time zone of this system; use a name such as Europe/Berlin") from None
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalSettings:
    listen_address: ListenAddress = setting(
        ListenAddress(host="127.0.0.1", port=8080),
        "Address to listen on: HOST:PORT, [IPV6]:PORT or unix:/PATH.",
        parse=parse_listen_address,
        metavar="ADDRESS",
    )
    base_path: str = setting(
        "", "URL path prefix of the portal behind a proxy, such as /portal.", parse=parse_base_path, metavar="PATH"
    )
    mode: str = choice(
        LOCAL,
        (LOCAL, PROXY),
        "Sign-in: local (one user on this host, sees all jobs) or proxy (a reverse proxy authenticates users).",
    )
    proxy_header: str = setting(
        "X-Remote-User",
        "Header with the user name set by the proxy; the proxy must overwrite it if the browser sends it.",
        parse=parse_header_name,
        metavar="NAME",
    )
    proxy_peers: tuple[str, ...] = setting(
        (UNIX,),
        "Trusted proxy: IP address, network, or unix for the Unix socket. Any process on a listed host that can "
        "connect is trusted; repeatable.",
        parse=parse_peers,
        metavar="PEER",
    )
    strip_domain: tuple[str, ...] = setting(
        (),
        "Domain or realm to strip from user names: with example.org, ada@example.org becomes ada; repeatable.",
        parse=parse_domains,
        metavar="DOMAIN",
    )
    support: tuple[str, ...] = setting(
        (), "User who may see all jobs; this access is audited; repeatable.", parse=parse_user_names, metavar="USER"
    )
    admins: tuple[str, ...] = setting(
        (), "User who may see all jobs and administer the portal; repeatable.", parse=parse_user_names, metavar="USER"
    )
    local_user: str = setting(
        "", "User name in local mode; default is the user that runs the portal.", parse=parse_user_name, metavar="USER"
    )
    time_zone: str = setting(
        "UTC",
        "Time zone of pages for browsers without scripts, such as Europe/Berlin; others show their own zone.",
        parse=parse_time_zone,
        metavar="ZONE",
    )
    munge: bool = setting(
        False,
        "Identify users of slurmscope report on login nodes by munge, so that they need no token; needs "
        "mail.portal-url.",
    )
    scripts: str = choice(
        OWNER,
        (OWNER, STAFF, OFF),
        "Who may see job scripts that Slurm stored: owner, staff (also support and admins, audited) or off.",
    )
    frame_parents: tuple[str, ...] = setting(
        (),
        "Site that may show single charts in a frame, such as https://ondemand.example.org; no other page can be "
        "framed; repeatable.",
        parse=parse_origins,
        metavar="ORIGIN",
    )
    title: str = setting("slurmscope", "Name of the portal, shown on every page.", metavar="TEXT")
    help_link: str = setting(
        "", "Link to a help page, or mailto: address, shown on every page.", parse=parse_link, metavar="URL"
    )


def check_settings(settings: PortalSettings) -> None:
    """Raise a ConfigError for settings that give access to strangers or make sign-in impossible."""
    address = settings.listen_address
    if settings.mode == LOCAL:
        if not address.is_local:
            raise ConfigError(
                f"portal.mode is local, which gives full access to everyone who can connect to {address}; "
                "listen on 127.0.0.1, or set portal.mode to proxy"
            )
        return
    peers = PeerList(settings.proxy_peers)
    if address.socket_path and UNIX not in settings.proxy_peers:
        raise ConfigError(
            "sign-in is impossible: the portal listens on a unix socket, but portal.proxy-peers does not list unix"
        )
    if not address.socket_path and not peers.has_addresses:
        raise ConfigError(
            f"sign-in is impossible: the portal listens on {address}, but portal.proxy-peers lists no proxy address"
        )


def portal_sections() -> Iterator[Section]:
    """Yield the settings of the portal and its reporter."""
    yield Section(name="portal", type=PortalSettings)
    yield Section(name="reporter", type=ReporterSettings)
    yield from report_sections()
