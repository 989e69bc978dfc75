# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of remote write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.config import parse_path
from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import setting
from slurmscope.core.units import parse_bytes, parse_positive_seconds
from slurmscope.exporter.output_settings import parse_labels
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.http.client.credentials import Header, parse_headers

MIN_BUFFER_BYTES = 64 * 1024


def parse_write_url(given: object) -> ServerAddress:
    """Parse the URL of a remote write endpoint, whose path differs between servers."""
    address = parse_address(given)
    if address.socket_path or not address.prefix:
        raise ValueError("the URL is not of the form http[s]://HOST[:PORT]/PATH, such as http://HOST:9090/api/v1/write")
    return address


def parse_external_labels(given: object) -> tuple[str, ...]:
    """Parse labels written as name=value; names that Prometheus reserves are rejected."""
    items = parse_labels(given)
    for item in items:
        if item.startswith("__"):
            raise ValueError(f"{item!r}: label names that begin with __ are reserved")
    return items


def parse_buffer_size(given: object) -> int:
    """Parse the size of the buffer in bytes."""
    size_bytes = parse_bytes(given) if isinstance(given, str) else given
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or not MIN_BUFFER_BYTES <= size_bytes <= 2**40:
        raise ValueError(f"{given!r} is not a size between 64KiB and 1TiB, such as 16MiB")
    return size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteWriteSettings:
    """How samples are sent by Prometheus' remote write protocol, at the interval of the other outputs."""

    url: ServerAddress | None = setting(
        None,
        key="remote-write",
        help="Send samples to this remote write endpoint instead of being scraped, such as "
        "http://HOST:9090/api/v1/write.",
        parse=parse_write_url,
        metavar="URL",
    )
    headers: tuple[Header, ...] = setting(
        (),
        key="remote-write-headers",
        help="HTTP header of remote write, such as X-Scope-OrgID=TENANT; NAME=@FILE reads the value from a file for "
        "every request, such as Authorization=@FILE; repeatable.",
        parse=parse_headers,
        metavar="NAME=VALUE",
        is_secret=True,
    )
    ca_file: Path | None = setting(
        None,
        key="remote-write-ca-file",
        help="File with the CA certificates to verify the remote write server, instead of those of the system.",
        parse=parse_path,
        metavar="FILE",
    )
    cert_file: Path | None = setting(
        None,
        key="remote-write-cert-file",
        help="File with the client certificate for a remote write server that requires one.",
        parse=parse_path,
        metavar="FILE",
    )
    key_file: Path | None = setting(
        None,
        key="remote-write-key-file",
        help="File with the key of the client certificate, unless it is in the same file.",
        parse=parse_path,
        metavar="FILE",
    )
    labels: tuple[str, ...] = setting(
        (),
        key="remote-write-labels",
        help="Label of all samples sent by remote write; default is instance with this host's short name, and job with "
        "slurm or slurm-nodes; repeatable.",
        parse=parse_external_labels,
        metavar="NAME=VALUE",
    )
    buffer_bytes: int = setting(
        16 * 1024 * 1024,
        key="remote-write-buffer",
        help="Memory for samples that the remote write server has not accepted yet; beyond it, the oldest are dropped.",
        parse=parse_buffer_size,
        metavar="SIZE",
    )
    max_age: float = setting(
        3600.0,
        key="remote-write-max-age",
        help="How long to keep samples that the remote write server has not accepted; Prometheus rejects samples that "
        "are older than about an hour.",
        parse=parse_positive_seconds,
        metavar="DURATION",
    )


def check_certificates(settings: RemoteWriteSettings) -> None:
    """Raise ConfigError for a key without its certificate."""
    if settings.key_file and not settings.cert_file:
        raise ConfigError("--output.remote-write-key-file needs --output.remote-write-cert-file")
