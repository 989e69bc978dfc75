# SPDX-License-Identifier: Apache-2.0
"""Measure what an idle exporter costs, and what many scrapes at once cost."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import cpu_seconds_of, judge, judge_ratio, resident_bytes_of, running_exporter, scrape
from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.exporter.feature import OpenFeatures, Running
from slurmscope.exporter.page import EnabledCollector, PageService
from slurmscope.exporter.reading import SharedReading
from slurmscope.http.server.app import ScrapeRequest
from slurmscope.metrics.family import Family, gauge
from slurmscope.metrics.guard import Guard
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands.executables import write_fake_commands

IDLE_LIMIT_BYTES = 30_000_000
START_LIMIT = 8.0  # times an interpreter that imports the same standard modules and click
BARE_START = "import click, http.client, logging, ssl, threading"
START_TRIES = 3
SCRAPES = 50
SAMPLES = 100_000


def main() -> int:
    """Print the figures of a real exporter process, then those of parallel scrapes."""
    with tempfile.TemporaryDirectory() as folder:
        write_fake_commands(simulate(Shape(), now=int(time.time())), Path(folder))
        starts = [_start(folder) for _ in range(START_TRIES)]
    cpu_seconds = min(cpu for cpu, _ in starts)
    resident_bytes = min(resident for _, resident in starts)
    runs, scrape_seconds, cached_seconds = _parallel_scrapes()
    bare_seconds = min(_bare_start() for _ in range(START_TRIES))
    of = f"a bare interpreter with its imports, {bare_seconds:.3f} s"
    scraped = f"{SCRAPES} parallel scrapes of {SAMPLES} samples"
    resident = f"{resident_bytes / 1e6:.1f} MB resident"
    is_met = [
        judge_ratio(
            "start to first answer", f"{cpu_seconds:.2f} s of CPU", cpu_seconds / bare_seconds, START_LIMIT, of
        ),
        judge("idle exporter", resident, "under 30 MB", is_met=resident_bytes < IDLE_LIMIT_BYTES),
        judge(scraped, f"{runs} run of the collector, {scrape_seconds:.2f} s of CPU", "1 run", is_met=runs == 1),
    ]
    print(f"one more scrape of the cached page: {cached_seconds * 1000:.2f} ms of CPU")
    return 0 if all(is_met) else 1


def _bare_start() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", BARE_START], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _start(bin_path: str) -> tuple[float, int]:
    with running_exporter("--slurm.bin-path", bin_path) as (pid, address):
        scrape(address)
        return cpu_seconds_of(pid), resident_bytes_of(pid)


def _parallel_scrapes() -> tuple[int, float, float]:
    runs = []
    metric = gauge("bench_samples", "Samples.", "a", "b", "c", "d", "e")

    def collect(options: NoOptions, *, rows: int) -> Iterator[Family]:
        runs.append(1)
        yield Family(metric, {(f"node{n}", "partition", "account", "user", str(n)): n for n in range(rows)})

    collector = Collector(
        name="bench", role=Role.CLUSTER, help="Rows.", needs=("rows",), metrics=(metric,), collect=collect
    )
    service = PageService(
        [EnabledCollector(collector=collector, options=NoOptions())],
        OpenFeatures(Running(readings=(SharedReading("rows", lambda: SAMPLES, interval_seconds=3600),))),
        guard=Guard(series_limit=SAMPLES),
        self_families=lambda _: (),
    )
    started = time.process_time()
    threads = [threading.Thread(target=_scrape, args=(service,)) for _ in range(SCRAPES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = time.process_time()
    _scrape(service)
    return len(runs), ended - started, time.process_time() - ended


def _scrape(service: PageService) -> None:
    for _ in service.scrape(ScrapeRequest(is_gzip=True, deadline_seconds=60)):
        pass


if __name__ == "__main__":
    sys.exit(main())
