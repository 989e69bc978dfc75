# SPDX-License-Identifier: Apache-2.0
"""Measure what pages of node agents cost the servers that scrape them, in each profile.

Debian's Prometheus and VictoriaMetrics scrape the same fake nodes at the same time. Each node serves the real page of
an agent with 64 jobs, whose counters move on with each scrape. There are fewer nodes in the larger profiles, so that
every profile has about as many series.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench.agent_page import JOBS, PROCESSES, make_agent, make_jobs, page_text, scrape
from bench.measure import cpu_seconds_of, judge_ratio, judge_seconds, reference_seconds, resident_bytes_of
from bench.processes import run_sleeping
from lab.prometheus import Server, run_prometheus, run_victoria_metrics
from lab.waiting import wait_until
from slurmscope.exporter.settings import MetricsProfile

SERIES = 46_000
SCRAPES = 12
PATIENCE_SECONDS = 120.0
MILLION = 1_000_000
BYTES_A_SERIES = {"Prometheus": 2900.0, "VictoriaMetrics": 2000.0}
"""As in docs/scaling.md."""
BYTES_LIMIT = 1.6
REFERENCES_LIMIT = {"Prometheus": 250.0, "VictoriaMetrics": 350.0}
"""For a million samples."""
PROFILE_LIMIT = 0.5
STORED = {
    "Prometheus": r"^prometheus_tsdb_head_samples_appended_total\{[^}]*\} (\S+)$",
    "VictoriaMetrics": r'^vm_rows_inserted_total\{type="promscrape"\} (\S+)$',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Hold what the pages of one profile cost one server."""

    nodes: int
    series: int
    memory_bytes: int
    cpu_seconds: float
    samples: int

    @property
    def bytes_a_series(self) -> float:
        """Return the memory of one series."""
        return self.memory_bytes / self.series

    @property
    def seconds_a_sample(self) -> float:
        """Return the CPU time of one sample."""
        return self.cpu_seconds / self.samples


def main() -> int:
    """Print the figures of each server and profile, and return 1 when a target is missed."""
    reference = reference_seconds()
    costs = {profile: measure(text) for profile, text in make_pages().items()}
    for profile, of_servers in costs.items():
        for name, cost in of_servers.items():
            print(describe(name, profile, cost))
    kept = [_judge(name, {profile: costs[profile][name] for profile in costs}, reference) for name in BYTES_A_SERIES]
    return 0 if all(kept) else 1


def _judge(name: str, costs: dict[MetricsProfile, Cost], reference: float) -> bool:
    reports, standard = costs[MetricsProfile.REPORTS], costs[MetricsProfile.STANDARD]
    found, documented = reports.bytes_a_series, BYTES_A_SERIES[name]
    a_node = (reports.memory_bytes / reports.nodes) / (standard.memory_bytes / standard.nodes)
    seconds = reports.seconds_a_sample * MILLION
    return all(
        (
            judge_ratio(
                f"{name}: a series", f"{found / 1e3:.1f} kB", found / documented, BYTES_LIMIT, "the docs' figure"
            ),
            judge_seconds(f"{name}: a million samples", seconds, REFERENCES_LIMIT[name], reference),
            judge_ratio(
                f"{name}: memory of a node, profile reports",
                f"{a_node:.0%}",
                a_node,
                PROFILE_LIMIT,
                "the standard profile",
            ),
        )
    )


def describe(name: str, profile: MetricsProfile, cost: Cost) -> str:
    """Return the figures of one server, and what they mean for a thousand nodes."""
    return (
        f"{name}, profile {profile}: {cost.series:,} series of {cost.nodes} nodes, {cost.bytes_a_series / 1e3:.1f} kB "
        f"a series, {cost.seconds_a_sample * 1e6:.1f} µs of CPU for each of {cost.samples:,} samples; "
        f"1,000 nodes with {JOBS} jobs: {1000 * cost.memory_bytes / cost.nodes / 1e9:.1f} GB"
    )


def make_pages() -> dict[MetricsProfile, str]:
    """Return the page of an agent with 64 jobs, in each profile."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        root = make_jobs(folder / "cgroup", stack.enter_context(run_sleeping(folder, PROCESSES, JOBS)))
        pages = {}
        for profile in MetricsProfile:
            agent = stack.enter_context(closing(make_agent(root, profile)))
            scrape(agent)  # the first one has no rates
            pages[profile] = page_text(scrape(agent)).decode()
        return pages


def measure(page: str) -> dict[str, Cost]:
    """Return what nodes with this page cost each server."""
    nodes = FakeNodes(page)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = stack.enter_context(nodes.serving())
        servers: dict[str, Server] = {
            "Prometheus": stack.enter_context(run_prometheus(folder / "p", nodes.config("Prometheus", port))),
            "VictoriaMetrics": stack.enter_context(
                run_victoria_metrics(folder / "v", nodes.config("VictoriaMetrics", port))
            ),
        }
        before = {name: (resident_bytes_of(server.pid), cpu_seconds_of(server.pid)) for name, server in servers.items()}
        nodes.is_open.set()
        wait_until(lambda: nodes.least_scrapes() >= SCRAPES, "scrapes", timeout_seconds=PATIENCE_SECONDS)
        return {
            name: Cost(
                nodes=nodes.count,
                series=nodes.count * nodes.series,
                memory_bytes=resident_bytes_of(server.pid) - before[name][0],
                cpu_seconds=cpu_seconds_of(server.pid) - before[name][1],
                samples=stored_samples(name, server),
            )
            for name, server in servers.items()
        }


def stored_samples(name: str, server: Server) -> int:
    """Return how many samples a server has stored, as it counts them itself."""
    found = re.search(STORED[name], server.get("/metrics").decode(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{name} does not count its samples")
    return int(float(found[1]))


class FakeNodes:
    """Serve the page of every node on one port, under a path for each server and node."""

    def __init__(self, page: str) -> None:
        """Take the page of one node; nothing is served until ``is_open``."""
        self._lines = [_split(line) for line in page.splitlines(keepends=True)]
        self.series = sum(not line.startswith("#") for line in page.splitlines())
        self.count = round(SERIES / self.series)
        self.is_open = threading.Event()
        self._scrapes: Counter[str] = Counter()

    def config(self, server: str, port: int) -> str:
        """Return the configuration by which a server scrapes them."""
        targets = [
            {
                "targets": [f"127.0.0.1:{port}"],
                "labels": {"instance": f"n{number:04}", "__metrics_path__": self._path(server, number)},
            }
            for number in range(self.count)
        ]
        jobs = [{"job_name": "slurm-nodes", "static_configs": targets}]
        return json.dumps({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs})

    def least_scrapes(self) -> int:
        """Return how many pages of each node every server has fetched."""
        paths = (self._path(server, number) for server in STORED for number in range(self.count))
        return min(self._scrapes[path] for path in paths)

    def page(self, path: str) -> bytes | None:
        """Return the next page of a node, with counters that have moved on; None as long as they are down."""
        if not self.is_open.is_set():
            return None
        self._scrapes[path] += 1
        moved = 37 * self._scrapes[path]
        lines = (text if value is None else f"{text}{value + moved}\n" for text, value in self._lines)
        return gzip.compress("".join(lines).encode(), compresslevel=1)

    @contextmanager
    def serving(self) -> Iterator[int]:
        """Serve until the block ends; yield the port."""
        find_page = self.page

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = find_page(self.path)
                self.send_response(503 if page is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Encoding", "gzip")
                self.end_headers()
                self.wfile.write(page or b"")

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield server.server_address[1]
            finally:
                server.shutdown()
                thread.join()

    @staticmethod
    def _path(server: str, number: int) -> str:
        return f"/{server}/{number}"


def _split(line: str) -> tuple[str, float | None]:
    """Split a line of a counter into what stays and its value."""
    series, _, value = line.rpartition(" ")
    is_counter = not line.startswith("#") and series.partition("{")[0].endswith("_total")
    return (f"{series} ", float(value)) if is_counter else (line, None)
