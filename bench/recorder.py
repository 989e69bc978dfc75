# SPDX-License-Identifier: Apache-2.0
"""Measure how fast samples go into the embedded recorder, and how fast a long job's curves come out."""

from __future__ import annotations

import math
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.measure import judge_seconds, least_seconds, reference_seconds
from slurmscope.jobs.series import NODE_LABEL, Aggregation, JobSpan, SeriesQuery
from slurmscope.recorder.recorder import RecordedSample, Recorder
from slurmscope.recorder.series import RecorderSeries
from slurmscope.recorder.settings import JOB_METRICS, RecorderSettings

NODES = 64
JOB = 4711
START = 1_790_000_000.0
INTERVAL_SECONDS = 15.0
DAY_SECONDS = 86_400
PAGE_LINES = 2_000
RATE_LIMIT = 0.63  # references for 1,000 samples or lines: 50,000 a second on a quiet core
CURVE_LIMIT = 6.2  # 200 ms
CORES = 64


def main() -> int:
    """Print every figure with its target and return 1 when one is missed."""
    with tempfile.TemporaryDirectory() as folder:
        is_met = [_measure_samples(Path(folder)), _measure_pages(Path(folder)), _measure_day(Path(folder))]
    return 0 if all(is_met) else 1


def _measure_samples(folder: Path) -> bool:
    """Record 40 rounds of 25,600 series: by then a period is packed, which is part of the cost."""
    series = [
        ("jobs_cpu_core_seconds_total", (("slurm_job", str(job)), (NODE_LABEL, f"n{node:03}"), ("core", str(core))))
        for job in range(4)
        for node in range(NODES)
        for core in range(100)
    ]
    rounds = [[(*names, 15.0 * turn + index) for index, names in enumerate(series)] for turn in range(40)]
    with Recorder(RecorderSettings(file=folder / "in.db")) as recorder:
        began, cpu_began = time.perf_counter(), time.process_time()
        for turn, samples in enumerate(rounds):
            recorder.record(START + 60 * turn, samples)
            recorder.settle()
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu_began
        count = recorder.recorded
    figure = f"{count / wall:,.0f} samples a second on the clock, {count / cpu:,.0f} a second of CPU"
    print(f"recorder in: {figure}")
    return judge_seconds("recording 1,000 samples", 1000 * cpu / count, RATE_LIMIT, reference_seconds())


def _measure_pages(folder: Path) -> bool:
    pages = [[_page(node, turn) for node in range(NODES)] for turn in range(4)]
    with Recorder(RecorderSettings(file=folder / "pages.db")) as recorder:
        costs = []
        for turn, round_of_pages in enumerate(pages):
            began = time.process_time()
            for node, page in enumerate(round_of_pages):
                recorder.record_page(START + 15 * turn, page, nodes=(f"n{node:03}",))
            recorder.settle()
            costs.append(time.process_time() - began)
        recorded = recorder.recorded
    lines = NODES * PAGE_LINES
    figure = f"first {costs[0]:.2f} s, then {min(costs[1:]):.3f} s of CPU, {recorded // len(pages)} samples recorded"
    what = f"recorder, {NODES} pages of {PAGE_LINES} lines"
    print(f"{what}: {figure}")
    return judge_seconds("1,000 lines of pages", 1000 * min(costs[1:]) / lines, RATE_LIMIT, reference_seconds())


def _page(node: int, turn: int) -> str:
    """Make the page of a node on which eight jobs run; half of its lines are of metrics that are not recorded."""
    wanted = sorted(JOB_METRICS - {"jobs_cpu_core_seconds_total"})
    labels = [f'slurm_job="{1000 * node + job}",slurm_node=""' for job in range(8)]
    lines = [f"{metric}{{{job}}} {1234.5 * turn + node}" for metric in wanted for job in labels]
    lines += [
        f'jobs_cpu_core_seconds_total{{{job},core="{core}"}} {15.25 * turn + core}'
        for job in labels
        for core in range(125 - len(wanted))
    ]
    lines += [f'node_other_bytes{{device="d{index}"}} {index * turn}' for index in range(PAGE_LINES - len(lines))]
    return "\n".join(lines) + "\n"


def _measure_day(folder: Path) -> bool:
    chance = random.Random(1)
    settings = RecorderSettings(file=folder / "day.db")
    cpu = [0.0] * NODES
    with Recorder(settings) as recorder:
        for turn in range(int(DAY_SECONDS / INTERVAL_SECONDS)):
            samples: list[RecordedSample] = []
            for node in range(NODES):
                cpu[node] += chance.uniform(10, 15) * 16
                labels = (("slurm_job", str(JOB)), (NODE_LABEL, f"n{node:03}"))
                samples.append(("jobs_cpu_seconds_total", labels, round(cpu[node], 6)))
                memory = (1 << 30) * (2 + math.sin(turn / 200 + node)) + chance.randrange(1 << 20)
                samples.append(("jobs_memory_anon_bytes", labels, float(int(memory))))
            recorder.record(START + turn * INTERVAL_SECONDS, samples)
        size = settings.file.stat().st_size / recorder.recorded
        verdicts = [_measure_curves(recorder.series(), name, wanted) for name, wanted in _QUERIES.items()]
        total = SeriesQuery(metric="jobs_cpu_seconds_total", how=Aggregation.MAX)
        seconds = _least(lambda: recorder.series().read_totals(total, [_SPAN], until=math.inf))
        print(f"recorder, totals of a day of {NODES} nodes: {seconds * 1000:.1f} ms of CPU; {size:.1f} bytes a sample")
    return all(verdicts)


_SPAN = JobSpan(JOB, START, START + DAY_SECONDS)
_QUERIES = {
    "CPU by node": SeriesQuery(metric="jobs_cpu_seconds_total", how=Aggregation.RATE),
    "CPU summed up": SeriesQuery(metric="jobs_cpu_seconds_total", how=Aggregation.RATE, by=()),
    "memory": SeriesQuery(metric="jobs_memory_anon_bytes", how=Aggregation.MAX),
    "mean memory": SeriesQuery(metric="jobs_memory_anon_bytes", how=Aggregation.MEAN),
}


def _measure_curves(series: RecorderSeries, name: str, wanted: SeriesQuery) -> bool:
    seconds = _least(lambda: series.read_curves(wanted, [_SPAN], points=300, until=math.inf))
    what = f"recorder, {name} of a day of {NODES} nodes"
    return judge_seconds(what, seconds, CURVE_LIMIT, reference_seconds())


def _least(work: Callable[[], object]) -> float:
    return least_seconds(work)[0]


if __name__ == "__main__":
    sys.exit(main())
