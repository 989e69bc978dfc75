# SPDX-License-Identifier: Apache-2.0
"""Join remote write to an exporter: it starts with the exporter, goes on through reloads, and ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurmscope.core.check import Check
from slurmscope.core.errors import SlurmscopeError
from slurmscope.core.settings import Section
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.output_settings import OutputSettings
from slurmscope.metrics.family import Family, counter, gauge
from slurmscope.remote_write.settings import RemoteWriteSettings

if TYPE_CHECKING:
    from slurmscope.remote_write.service import RemoteWriteCounters

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
