# SPDX-License-Identifier: Apache-2.0
"""Fake a Lustre exporter: a page of counters that grow at known rates.

Every sample carries the time at which it was computed, so that the rates are exact on a busy machine too.
"""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

READ = "lustre_job_read_bytes_total"
WRITE = "lustre_job_write_bytes_total"
STATS = "lustre_job_stats_total"


class Counter(NamedTuple):
    """Identify one counter."""

    metric: str
    job: str
    target: str
    operation: str = ""


@dataclass(slots=True)
class _Growth:
    per_second: float
    since: float
    value: float = 0.0

    def at(self, now: float) -> float:
        return self.value + self.per_second * (now - self.since)


@dataclass(slots=True)
class FakeLustreExporter:
    """Serve counters whose rates can be changed while they are scraped."""

    counters: dict[Counter, _Growth] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def grow(self, metric: str, job: str, target: str, per_second: float, operation: str = "") -> None:
        """Let a counter grow at this rate from now on; as in Lustre, it stays where it is at a rate of 0."""
        now = time.time()
        with self.lock:
            counter = Counter(metric, job, target, operation)
            before = self.counters.get(counter)
            self.counters[counter] = _Growth(per_second, now, before.at(now) if before else 0.0)

    def page(self) -> bytes:
        """Return the current counters in text format."""
        with self.lock:
            now = round(time.time(), 3)
            lines = [_line(counter, growth.at(now), now) for counter, growth in sorted(self.counters.items())]
        return "".join(lines).encode()


def _line(counter: Counter, value: float, now: float) -> str:
    labels = {"component": "ost" if "-OST" in counter.target else "mdt", "jobid": counter.job, "target": counter.target}
    if counter.operation:
        labels["operation"] = counter.operation
    inner = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return f"{counter.metric}{{{inner}}} {value!r} {round(now * 1000)}\n"


@contextlib.contextmanager
def serve_page(exporter: FakeLustreExporter) -> Iterator[str]:
    """Serve the page on a free loopback port and yield the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = exporter.page()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
