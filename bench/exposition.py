# SPDX-License-Identifier: Apache-2.0
"""Measure what a page of metrics costs, beside prometheus_client in the same run.

The data is what an exporter has: ten metrics of every job, with five labels each, half of the values whole numbers
and half floats. Both sides start from the same samples in memory and end with the bytes of the page; ours go through
the guard. CPU time is the best of three rounds, taken by turns. Memory is taken in a process of its own: the highest
resident size while the page is made, above (or, for the million, including) what the samples need.
"""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from slurmscope.metrics.family import Family, Labels, gauge
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.write import Format, end, write

METRICS = 10
ROUNDS = 3
RATIO_TARGET = 10
GROWTH_TARGET_MB = 10
TOTAL_TARGET_MB = 150
MEGABYTE = 1e6


def main() -> int:
    """Print every figure with its target and return 1 when one is missed."""
    is_met = [
        _compare(METRICS, 10_000),
        _compare_growth(METRICS, 10_000),
        _compare_growth(1, 100_000),
        _measure_total(),
    ]
    # The worst case, printed without a target: no label set appears twice.
    _compare(1, 100_000)
    return 0 if all(is_met) else 1


def _compare(metrics: int, rows: int) -> bool:
    families = _families(metrics, rows)
    guard = Guard()
    library, text, openmetrics = _best_of(
        lambda: _library_page_size(families),
        lambda: _page_size(guard, families, Format.TEXT),
        lambda: _page_size(guard, families, Format.OPENMETRICS),
    )
    what = f"exposition {metrics * rows} samples" if metrics > 1 else f"exposition {rows} samples of one metric"
    target = f" (target: at least {RATIO_TARGET})" if metrics > 1 else ""
    for name, seconds in (("", text), (" OpenMetrics", openmetrics)):
        figures = f"prometheus_client {library:.2f} s, slurmscope{name} {seconds:.3f} s, ratio {library / seconds:.1f}"
        print(f"{what}: {figures}{target}")
    return library >= RATIO_TARGET * max(text, openmetrics)


def _compare_growth(metrics: int, rows: int) -> bool:
    library, _, _ = _measured("library", metrics, rows)
    text, _, _ = _measured("text", metrics, rows)
    openmetrics, _, _ = _measured("openmetrics", metrics, rows)
    print(
        f"memory growth {metrics} x {rows} samples: prometheus_client {library:.1f} MB, slurmscope {text:.1f} MB,"
        f" OpenMetrics {openmetrics:.1f} MB (target: under {GROWTH_TARGET_MB})"
    )
    return max(text, openmetrics) < GROWTH_TARGET_MB


def _measure_total() -> bool:
    growth, total, seconds = _measured("text", METRICS, 100_000)
    print(
        f"memory {METRICS} x 100000 samples: {total:.1f} MB in all, of which {growth:.1f} MB for the page,"
        f" {seconds:.2f} s of CPU (target: under {TOTAL_TARGET_MB} MB)"
    )
    return total < TOTAL_TARGET_MB


def _families(metrics: int, rows: int) -> list[Family]:
    """Make metrics that share their rows, as those of one set of jobs do."""
    chance = random.Random(1)
    users = [f"user{number:03}" for number in range(300)]
    accounts = [f"account{number:02}" for number in range(60)]
    jobs: list[Labels] = [
        (str(1_000_000 + n), chance.choice(users), chance.choice(accounts), f"partition{n % 8}", "RUNNING")
        for n in range(rows)
    ]
    families = []
    for number in range(metrics):
        metric = gauge(f"slurm_job_metric_{number}", "A metric.", "jobid", "user", "account", "partition", "state")
        families.append(Family(metric, {job: _value(chance, number + row) for row, job in enumerate(jobs)}))
    return families


def _value(chance: random.Random, number: int) -> float:
    """Return a whole number such as bytes, or a float such as seconds, by turns."""
    return round(chance.uniform(0, 100_000), 2) if number % 2 else chance.randrange(10**10)


def _library_page_size(families: list[Family]) -> int:
    """Hand the same samples to prometheus_client the way its custom collectors do."""
    # Imported here, so that the other variants' memory does not hold it.
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    class Jobs(Collector):
        def collect(self) -> Iterator[GaugeMetricFamily]:
            for family in families:
                metric = GaugeMetricFamily(family.metric.name, family.metric.help, labels=family.metric.labels)
                assert isinstance(family.samples, dict)
                for labels, value in family.samples.items():
                    metric.add_metric(labels, value)
                yield metric

        def describe(self) -> Iterator[GaugeMetricFamily]:
            return iter(())

    registry = CollectorRegistry()
    registry.register(Jobs())
    return len(generate_latest(registry))


def _page_size(guard: Guard, families: Iterable[Family], format: Format) -> int:
    """Make the page and let each block go, as a server does."""
    return sum(map(len, write(guard.admit(families), format))) + len(end(format))


def _best_of(*variants: Callable[[], int]) -> list[float]:
    """Return each variant's least CPU seconds; by turns, so that a busy machine slows all alike."""
    best = [float("inf")] * len(variants)
    for _ in range(ROUNDS):
        for index, variant in enumerate(variants):
            best[index] = min(best[index], _seconds(variant))
    return best


def _seconds(variant: Callable[[], int]) -> float:
    gc.collect()
    started = time.process_time()
    variant()
    return time.process_time() - started


def _measured(variant: str, metrics: int, rows: int) -> tuple[float, float, float]:
    """Return growth and total in megabytes, and CPU seconds, of one page made by a fresh process."""
    argv = [sys.executable, str(Path(__file__).resolve()), variant, str(metrics), str(rows)]
    answer = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True).stdout
    growth, total, seconds = map(float, answer.split())
    return growth, total, seconds


def _measure(variant: str, metrics: int, rows: int) -> None:
    """Make one page in this process and print what :func:`_measured` reads."""
    families = _families(metrics, rows)
    if variant == "library":
        _library_page_size([])  # its import is no part of the page
    gc.collect()
    # Forget the peak that making the samples left behind.
    Path("/proc/self/clear_refs").write_text("5")
    before = _status_megabytes("VmRSS")
    if variant == "library":
        seconds = _seconds(lambda: _library_page_size(families))
    else:
        seconds = _seconds(lambda: _page_size(Guard(), families, Format[variant.upper()]))
    peak = _status_megabytes("VmHWM")
    print(peak - before, peak, seconds)


def _status_megabytes(key: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024 / MEGABYTE
    raise LookupError(f"/proc/self/status has no {key}")


if __name__ == "__main__":
    if len(sys.argv) == 4:
        _measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main())
