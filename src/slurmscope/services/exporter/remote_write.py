# SPDX-License-Identifier: Apache-2.0
"""Sample the metrics at regular intervals and send them by remote write.

One thread takes samples and fills the buffer, another one empties it. So a server that is slow or down delays no
sample, and a scrape waits for neither.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from slurmscope.http_client.address import ServerAddress
from slurmscope.log import fields
from slurmscope.metrics.collector import Role
from slurmscope.metrics.family import Family, gauge
from slurmscope.outputs.remote_write.buffer import BufferedRequest, RequestBuffer
from slurmscope.outputs.remote_write.client import TIMEOUT_SECONDS, RemoteWriteClient, WriteFailed, WriteRefused
from slurmscope.outputs.remote_write.encoding import RequestEncoder
from slurmscope.outputs.remote_write.settings import RemoteWriteSettings
from slurmscope.services.exporter.pushed_series import PushedSeries
from slurmscope.services.exporter.readings import PushedPage
from slurmscope.services.exporter.remote_write_metrics import RemoteWriteCounters
from slurmscope.services.runtime.periodic import run_periodically

logger = logging.getLogger(__name__)

JOBS = {Role.CLUSTER: "slurm", Role.NODE: "slurm-nodes"}
"""Value of the label ``job``, as in ``deploy/prometheus.yml``."""
UP = gauge("up", "1 while slurmscope sends samples; a server that scrapes makes this metric itself.")
FINAL_SECONDS = 3.0
"""How long the last samples may take when the exporter ends."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0

Collect = Callable[[], Sequence[Family]]
"""Return the families of a fresh page."""


def _random() -> float:
    return int.from_bytes(os.urandom(4), "big") / 2**32


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
    buffer = RequestBuffer(max_bytes=settings.buffer_bytes, max_age_seconds=settings.max_age)
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
        stopping.wait(_random() * interval_seconds)

    shown = ",".join(f"{name}={value}" for name, value in labels.items())
    logger.info("sending samples", extra=fields(url=str(address), labels=shown, interval=interval_seconds))
    sender = Sender(RemoteWriteClient(settings, address), buffer, counters)
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


class Sender:
    """Send the requests of a buffer in order, from a thread of its own."""

    def __init__(
        self,
        client: RemoteWriteClient,
        buffer: RequestBuffer,
        counters: RemoteWriteCounters,
        random: Callable[[], float] = _random,
    ) -> None:
        self._client = client
        self._buffer = buffer
        self._counters = counters
        self._random = random
        self._finishing = threading.Event()
        self._ends_at = float("inf")
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="remote-write-sender", daemon=True)

    def start(self) -> None:
        """Begin to send."""
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
        timeout_seconds = max(0.1, min(TIMEOUT_SECONDS, self._ends_at - time.monotonic()))
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
            return max(error.retry_after_seconds, self._pause_seconds())
        else:
            self._counters.accepted += entry.request.samples
            if self._failures:
                logger.info("remote write works again", extra=fields(failures=self._failures))
        self._failures = 0
        return 0.0

    def _pause_seconds(self) -> float:
        """Return the pause before a retry: doubled each time, and randomised so that nodes do not retry in step."""
        longest = min(FIRST_PAUSE_SECONDS * (1 << min(self._failures - 1, 16)), LONGEST_PAUSE_SECONDS)
        return longest * (0.5 + 0.5 * self._random())
