# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of remote write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmscope.core.config import file_path
from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import byte_size, setting
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteWriteSettings:
    """How samples are sent by Prometheus' remote write protocol, at the interval of the other outputs."""

    url: ServerAddress | None = setting(
        None,
        "Send samples to this remote write endpoint instead of being scraped, such as http://HOST:9090/api/v1/write.",
        key="remote-write",
        parse=parse_write_url,
        metavar="URL",
    )
    headers: tuple[Header, ...] = setting(
        (),
        "HTTP header of remote write, such as X-Scope-OrgID=TENANT; NAME=@FILE reads the value from a file for "
        "every request, such as Authorization=@FILE; repeatable.",
        key="remote-write-headers",
        parse=parse_headers,
        metavar="NAME=VALUE",
        is_secret=True,
    )
    ca_file: Path | None = file_path(
        None,
        "File with the CA certificates to verify the remote write server, instead of those of the system.",
        key="remote-write-ca-file",
    )
    cert_file: Path | None = file_path(
        None,
        "File with the client certificate for a remote write server that requires one.",
        key="remote-write-cert-file",
    )
    key_file: Path | None = file_path(
        None, "File with the key of the client certificate, unless it is in the same file.", key="remote-write-key-file"
    )
    labels: tuple[str, ...] = setting(
        (),
        "Label of all samples sent by remote write; default is instance with this host's short name, and job with "
        "slurm or slurm-nodes; repeatable.",
        key="remote-write-labels",
        parse=parse_external_labels,
        metavar="NAME=VALUE",
    )
    buffer_bytes: int = byte_size(
        16 * 1024 * 1024,
        "Memory for samples that the remote write server has not accepted yet; beyond it, the oldest are dropped.",
        key="remote-write-buffer",
        least_bytes=MIN_BUFFER_BYTES,
    )


def check_certificates(settings: RemoteWriteSettings) -> None:
    """Raise ConfigError for a key without its certificate."""
    if settings.key_file and not settings.cert_file:
        raise ConfigError("--output.remote-write-key-file needs --output.remote-write-cert-file")
