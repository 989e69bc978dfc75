# SPDX-License-Identifier: Apache-2.0
"""Declare what can be set about where pages go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmscope.config import parse_path
from slurmscope.settings import parse_text, setting
from slurmscope.units import parse_positive_seconds


def parse_telemetry_path(given: object) -> str:
    """Read the path of the metrics page; the landing page and the health paths are taken."""
    path = parse_text(given)
    if not path.startswith("/") or path == "/" or path.startswith("/-/") or set(path) & set(" ?#%"):
        raise ValueError(f"{path!r} is not a path such as /metrics")
    return path


def parse_textfile(given: object) -> Path:
    """Read the path of a file that node_exporter would look at."""
    path = parse_path(given)
    if path.suffix != ".prom":
        raise ValueError(f"{str(path)!r} does not end in .prom, so node_exporter would not read it")
    return path


def parse_push_url(given: object) -> str:
    """Read the address of a Pushgateway."""
    url = parse_text(given)
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url.rsplit('@', 1)[-1]!r} is not an http:// or https:// address")
    return url


def parse_labels(given: object) -> tuple[str, ...]:
    """Read grouping labels written as name=value."""
    items = given.split(",") if isinstance(given, str) else given
    if not isinstance(items, list | tuple):
        raise ValueError(f"{given!r} is not a list of name=value")
    for item in items:
        name, equals, _ = str(item).partition("=")
        if not equals or not name.isidentifier() or not name.isascii():
            raise ValueError(f"{item!r} is not written as name=value")
    return tuple(str(item) for item in items)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """How pages are served over HTTP."""

    listen_address: tuple[str, ...] = setting(
        (),
        help="Address to listen on, as :PORT, HOST:PORT or [IPV6]:PORT. May be repeated.",
        metavar="ADDRESS",
    )
    telemetry_path: str = setting(
        "/metrics", help="Path of the metrics page.", parse=parse_telemetry_path, metavar="PATH"
    )
    config_file: Path | None = setting(
        None,
        key="config.file",
        help="File that switches on TLS, client certificates or basic authentication, in the format that "
        "Prometheus exporters share.",
        parse=parse_path,
        metavar="FILE",
    )
    max_requests: int = setting(40, help="Scrapes answered at the same time; further ones get 503.", metavar="COUNT")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSettings:
    """Where else pages go. With a file or a gateway, nothing is listened on unless an address is given."""

    textfile: Path | None = setting(
        None,
        help="Write the page to this file again and again, for the textfile collector of node_exporter; "
        "its name ends in .prom.",
        parse=parse_textfile,
        metavar="FILE",
    )
    push: str = setting(
        "",
        help="Push the page to the Pushgateway at this address, and remove it there at the end.",
        parse=parse_push_url,
        metavar="URL",
        is_secret=True,
    )
    push_job: str = setting("slurmscope", help="Value of the label job of the pushed group.", metavar="NAME")
    push_grouping: tuple[str, ...] = setting(
        (),
        help="Further label of the pushed group, as name=value; without any, instance is the name of this host. "
        "May be repeated.",
        parse=parse_labels,
        metavar="NAME=VALUE",
    )
    interval: float = setting(
        15.0,
        flag="interval",
        help="Time from one write or push to the next.",
        parse=parse_positive_seconds,
        metavar="DURATION",
    )
