# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of the HTTP server and of other outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.config import file_path, parse_path
from slurmscope.core.settings import duration, parse_list, parse_text, setting


def parse_listen_addresses(given: object) -> tuple[str, ...]:
    """Parse the addresses to listen on; at least one is needed."""
    addresses = parse_list(given)
    if not addresses:
        raise ValueError("no address given; use :PORT, HOST:PORT or [IPV6]:PORT")
    return addresses


def parse_telemetry_path(given: object) -> str:
    """Parse the path of the metrics page; the landing page and the health paths are reserved."""
    path = parse_text(given)
    if not path.startswith("/") or path == "/" or path.startswith("/-/") or set(path) & set(" ?#%"):
        raise ValueError(f"{path!r} is not a valid path; use one such as /metrics")
    return path


def parse_textfile(given: object) -> Path:
    """Parse the path of a file that node_exporter's textfile collector reads."""
    path = parse_path(given)
    if path.suffix != ".prom":
        raise ValueError(f"{str(path)!r} does not end in .prom; node_exporter reads only *.prom files")
    return path


def parse_push_url(given: object) -> str:
    url = parse_text(given)
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url.rsplit('@', 1)[-1]!r} is not an http:// or https:// URL")
    return url


def parse_labels(given: object) -> tuple[str, ...]:
    """Parse grouping labels written as name=value."""
    items = parse_list(given)
    for item in items:
        name, equals, _ = item.partition("=")
        if not equals or not name.isidentifier() or not name.isascii():
            raise ValueError(f"{item!r} is not of the form name=value")
    return items


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """How metrics are served over HTTP."""

    listen_address: tuple[str, ...] = setting(
        (),
        "Address to listen on: :PORT, HOST:PORT or [IPV6]:PORT; repeatable.",
        parse=parse_listen_addresses,
        metavar="ADDRESS",
    )
    telemetry_path: str = setting(
        "/metrics", "Path under which to expose metrics.", parse=parse_telemetry_path, metavar="PATH"
    )
    config_file: Path | None = file_path(
        None,
        "File for TLS and basic authentication, in the format of the Prometheus exporter toolkit.",
        key="config.file",
    )
    max_requests: int = 40
    """Maximum number of parallel scrapes; further requests get status 503."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSettings:
    """Other outputs. With any of them, the HTTP server starts only if an address is given."""

    textfile: Path | None = setting(
        None,
        "Write metrics periodically to this file, for node_exporter's textfile collector; must end in .prom.",
        parse=parse_textfile,
        metavar="FILE",
    )
    push: str = setting(
        "",
        "Push metrics to this Pushgateway, and delete them there on exit.",
        parse=parse_push_url,
        metavar="URL",
        is_secret=True,
    )
    push_grouping: tuple[str, ...] = setting(
        (),
        "Grouping label of pushed metrics, as name=value; default is instance with this host's name; repeatable.",
        parse=parse_labels,
        metavar="NAME=VALUE",
    )
    interval: float = duration(
        15.0, "Interval between writes to the text file, pushes, or remote write samples.", flag="interval"
    )
