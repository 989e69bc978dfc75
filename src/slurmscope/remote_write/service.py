# SPDX-License-Identifier: Apache-2.0
"""Check the remote write endpoint, for ``slurmscope doctor``: an agent that cannot send is silent in every graph.

::

    slurmscope_remote_write_samples_total 1.2e+06
    slurmscope_remote_write_dropped_samples_total{reason="refused"} 12
    slurmscope_remote_write_buffered_bytes 35972

One thread takes samples and fills the buffer, another one empties it. So a server that is slow or down delays no
sample, and a scrape waits for neither.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from slurmscope.core.clock import run_periodically
from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.log import fields
from slurmscope.core.rate_limit import backoff_seconds, random_share
from slurmscope.exporter.collector import Role
from slurmscope.exporter.page import decompressed
from slurmscope.exporter.reading import PushedPage
from slurmscope.http.client.address import ServerAddress
from slurmscope.metrics.family import Family, gauge
from slurmscope.metrics.parse import parse
from slurmscope.metrics.write import Format
from slurmscope.remote_write.client import TIMEOUT_SECONDS as SEND_TIMEOUT_SECONDS
from slurmscope.remote_write.client import BufferedRequest, RemoteWriteClient, RequestBuffer, WriteFailed, WriteRefused
from slurmscope.remote_write.encoding import RequestEncoder, Series
from slurmscope.remote_write.feature import BUFFERED, DROPPED, FAILURES, SAMPLES, RemoteWriteSettings

logger = logging.getLogger(__name__)


REASONS = ("refused", "age", "size")


@dataclass(slots=True)
class RemoteWriteCounters:
    """Count what became of samples; the sender writes, pages read."""

    buffer: RequestBuffer
    accepted: int = 0
    refused: int = 0
    failures: int = 0

    def families(self) -> Iterator[Family]:
        dropped = Counter(self.buffer.dropped) + Counter(refused=self.refused)
        yield Family(SAMPLES, {(): self.accepted})
        yield Family(DROPPED, {(reason,): dropped[reason] for reason in REASONS})
        yield Family(FAILURES, {(): self.failures})
        yield Family(BUFFERED, {(): self.buffer.bytes})


EncodeSeries = Callable[[str, Mapping[str, str]], Series]


class PushedSeries:
    def __init__(self, find_page: Callable[[], PushedPage], encode_series: EncodeSeries) -> None:
        """Take what returns the current page, the same object as long as nothing changes."""
        self._find_page = find_page
        self._encode_series = encode_series
        self._page = PushedPage()
        self._samples: list[tuple[Series, float]] = []

    def samples(self) -> Sequence[tuple[Series, float]]:
        """Return all pushed samples; none if their page cannot be parsed."""
        page = self._find_page()
        if page is not self._page:
            self._page = page
            try:
                self._samples = self._encode(page)
            except MalformedAnswer as error:
                self._samples = []
                logger.error("pushed metrics are not sent by remote write", extra=fields(error=str(error)))
        return self._samples

    def _encode(self, page: PushedPage) -> list[tuple[Series, float]]:
        beside = (text.header + text.samples for text in page.beside.values())
        text = b"".join((*decompressed(page.blocks), *beside)).decode()
        return [
            (self._encode_series(sample.name, sample.labels), sample.value)
            for family in parse(text, Format.TEXT)
            for sample in family.samples
        ]


JOBS = {Role.CLUSTER: "slurm", Role.NODE: "slurm-nodes"}
"""Value of the label ``job``, as in ``deploy/prometheus.yml``."""
UP = gauge("up", "1 while slurmscope sends samples; a server that scrapes makes this metric itself.")
FINAL_SECONDS = 3.0
"""How long the last samples may take when the exporter ends."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0

Collect = Callable[[], Sequence[Family]]
"""Return the families of a fresh page."""


@contextmanager
def open_remote_write_loop(  # noqa: PLR0913 - two kinds of metrics and how to send them
    collect: Collect,
    settings: RemoteWriteSettings,
    address: ServerAddress,
    *,
    role: Role,
    interval_seconds: float,
    find_pushed: Callable[[], PushedPage] = PushedPage,
    final_seconds: float = FINAL_SECONDS,
) -> Iterator[RemoteWriteCounters]:
    """Send samples until the block ends, then mark all series as stale."""
    labels = external_labels(settings, role)
    encoder = RequestEncoder(labels)
    pushed = PushedSeries(find_pushed, encoder.encode_series)
    buffer = RequestBuffer(max_bytes=settings.buffer_bytes)
    counters = RemoteWriteCounters(buffer)
    stopping = threading.Event()

    def sample() -> None:
        at_ms = _now_ms()
        families = [Family(UP, {(): 1.0}), *collect()]
        # At the end, a slow collector is not waited for: the stale markers are encoded, and are newer than its samples.
        if not stopping.is_set():
            for request in encoder.encode(families, at_ms, pushed.samples()):
                buffer.add(request)

    def spread() -> None:
        # Nodes that boot together must not send at the same moment.
        stopping.wait(random_share() * interval_seconds)

    shown = ",".join(f"{name}={value}" for name, value in labels.items())
    logger.info("sending samples", extra=fields(url=str(address), labels=shown, interval=interval_seconds))
    sender = RequestSender(RemoteWriteClient(settings, address), buffer, counters)
    sender.start()
    with run_periodically("remote-write", interval_seconds, sample, first=spread, stopping=stopping):
        yield counters
    for request in encoder.encode_end(_now_ms()):
        buffer.add(request)
    sender.finish(final_seconds)


def external_labels(settings: RemoteWriteSettings, role: Role) -> dict[str, str]:
    """Return the labels that every sample gets: those that a scrape would add, unless they are set."""
    given = dict(item.split("=", 1) for item in settings.labels)
    return {"instance": socket.gethostname().partition(".")[0], "job": JOBS[role], **given}


def _now_ms() -> int:
    return round(time.time() * 1000)


class RequestSender:
    """Send the requests of a buffer in order, from a thread of its own."""

    def __init__(
        self,
        client: RemoteWriteClient,
        buffer: RequestBuffer,
        counters: RemoteWriteCounters,
    ) -> None:
        self._client = client
        self._buffer = buffer
        self._counters = counters
        self._finishing = threading.Event()
        self._ends_at = float("inf")
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="remote-write-sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Send what is left, each request once, for at most so long."""
        self._ends_at = time.monotonic() + seconds
        self._buffer.close()
        self._finishing.set()
        self._thread.join(seconds)
        if lost := self._buffer.samples:
            logger.warning("samples were not sent before the end", extra=fields(samples=lost))

    def _run(self) -> None:
        while (entry := self._buffer.take()) is not None:
            pause_seconds = self._send(entry)
            if pause_seconds and self._finishing.is_set():
                return
            self._finishing.wait(pause_seconds)
            if time.monotonic() >= self._ends_at:
                return

    def _send(self, entry: BufferedRequest) -> float:
        """Send a request; return how long to pause before the next one."""
        timeout_seconds = max(0.1, min(SEND_TIMEOUT_SECONDS, self._ends_at - time.monotonic()))
        try:
            self._client.send(entry.request.body, timeout_seconds)
        except WriteRefused as error:
            self._counters.refused += entry.request.samples
            logger.error("remote write was refused; samples are dropped", extra=fields(error=str(error)))
        except WriteFailed as error:
            self._buffer.give_back(entry)
            self._counters.failures += 1
            self._failures += 1
            logger.warning("remote write failed; samples are kept", extra=fields(error.kind, error=str(error)))
            pause_seconds = backoff_seconds(self._failures, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            return max(error.retry_after_seconds, pause_seconds)
        else:
            self._counters.accepted += entry.request.samples
            if self._failures:
                logger.info("remote write works again", extra=fields(failures=self._failures))
        self._failures = 0
        return 0.0
