# SPDX-License-Identifier: Apache-2.0
"""Export the state of remote write.

::

    slurmscope_remote_write_samples_total 1.2e+06
    slurmscope_remote_write_dropped_samples_total{reason="refused"} 12
    slurmscope_remote_write_buffered_bytes 35972
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from slurmscope.metrics.family import Family, counter, gauge

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

REASONS = ("refused", "age", "size")


class WriteBuffer(Protocol):
    """The buffer of requests; see ``outputs.remote_write.buffer``."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """Count samples that exceeded a bound, by reason."""
        ...

    @property
    def bytes(self) -> int:
        """Return the size of the queued requests."""
        ...


@dataclass(slots=True)
class RemoteWriteCounters:
    """Count what became of samples; the sender writes, pages read."""

    buffer: WriteBuffer
    accepted: int = 0
    refused: int = 0
    failures: int = 0

    def families(self) -> Iterator[Family]:
        """Yield the metrics of remote write."""
        dropped = Counter(self.buffer.dropped) + Counter(refused=self.refused)
        yield Family(SAMPLES, {(): self.accepted})
        yield Family(DROPPED, {(reason,): dropped[reason] for reason in REASONS})
        yield Family(FAILURES, {(): self.failures})
        yield Family(BUFFERED, {(): self.buffer.bytes})
