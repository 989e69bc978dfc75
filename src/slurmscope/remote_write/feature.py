# SPDX-License-Identifier: Apache-2.0
"""Join remote write to an exporter: it starts with the exporter, goes on through reloads, and ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.core.check import Check
from slurmscope.core.config import file_path
from slurmscope.core.errors import ConfigError, SlurmscopeError
from slurmscope.core.settings import Section, byte_size, setting
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.settings import OutputSettings, parse_labels
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.http.client.credentials import Header, parse_headers
from slurmscope.metrics.family import Family, counter, gauge

if TYPE_CHECKING:
    from slurmscope.remote_write.service import RemoteWriteCounters


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


SAMPLES = counter("slurmscope_remote_write_samples_total", "Samples that the remote write server accepted.")
DROPPED = counter(
    "slurmscope_remote_write_dropped_samples_total",
    "Samples that were dropped: refused by the server, or beyond the age or size limit of the buffer.",
    "reason",
)
FAILURES = counter(
    "slurmscope_remote_write_failures_total", "Remote write requests that failed and were or will be retried."
)
BUFFERED = gauge(
    "slurmscope_remote_write_buffered_bytes", "Size of the requests that the remote write server has not accepted yet."
)
REMOTE_WRITE_METRICS = (SAMPLES, DROPPED, FAILURES, BUFFERED)

TIMEOUT_SECONDS = 10.0
ADVICE = (
    "check the path of output.remote-write, its headers and certificates; Prometheus needs "
    "--web.enable-remote-write-receiver: docs/scaling.md"
)


def check_remote_write(settings: RemoteWriteSettings) -> Iterator[Check]:
    """Send a request without samples; nothing is checked where remote write is not set up."""
    if settings.url is None:
        return
    from slurmscope.remote_write.client import RemoteWriteClient
    from slurmscope.remote_write.encoding import EMPTY_REQUEST

    try:
        RemoteWriteClient(settings, settings.url).send(EMPTY_REQUEST, TIMEOUT_SECONDS)
    except SlurmscopeError as error:
        yield Check(name="remote write", is_good=False, message=str(error), advice=ADVICE)
    else:
        yield Check(name="remote write", is_good=True, message=f"{settings.url} accepts requests")


@dataclass(slots=True)
class _Loop:
    """The loop that sends; a reload hands it on."""

    stack: ExitStack = field(default_factory=ExitStack)
    counters: RemoteWriteCounters | None = None

    def take_over(self, before: _Loop) -> None:
        self.stack, self.counters = before.stack.pop_all(), before.counters

    def families(self) -> Iterator[Family]:
        return self.counters.families() if self.counters else iter(())

    def close(self) -> None:
        self.stack.close()


def _open(host: Host) -> Running:
    settings = host.config.of(RemoteWriteSettings)
    loop = _Loop()

    def start(before: object) -> None:
        if isinstance(before, _Loop):
            loop.take_over(before)
        elif settings.url is not None:
            from slurmscope.remote_write.service import open_remote_write_loop

            seconds = host.config.of(OutputSettings).interval
            sending = open_remote_write_loop(
                lambda: host.page.collect(seconds),
                settings,
                settings.url,
                role=host.role,
                interval_seconds=seconds,
                find_pushed=host.page.pushed,
            )
            loop.counters = loop.stack.enter_context(sending)

    return Running(
        families=lambda _: loop.families(),
        checks=lambda: check_remote_write(settings),
        is_output=settings.url is not None,
        state=loop,
        start=start,
        close=loop.close,
    )


REMOTE_WRITE = Feature(
    name="remote_write",
    sections=(Section(name="output", type=RemoteWriteSettings),),
    metrics=REMOTE_WRITE_METRICS,
    open=_open,
)
