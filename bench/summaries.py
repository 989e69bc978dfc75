# SPDX-License-Identifier: Apache-2.0
"""Measure how many ended jobs a second are summarized out of a real Prometheus, in batches of a hundred.

Jobs of an hour on one node, sampled every 30 seconds, with everything a report asks for. The server shares the machine
with us, so its work counts as well.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from bench.measure import cpu_seconds_of, judge_seconds, reference_seconds
from lab.prometheus import create_blocks, run_prometheus
from slurmscope.http.client.address import parse_address
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.jobs.record import JobRecord
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reporter.measure import BATCH_JOBS
from slurmscope.reports.make import ReportMaker

JOBS = 300
CORES = 4
RUN_SECONDS = 3600
SAMPLE_SECONDS = 30
JOB_LIMIT = 0.31  # references for each job: 100 jobs a second on a quiet core
FIRST = 1_790_000_000
_EXTRA_LABELS = {"core": [str(core) for core in range(CORES)], "state": ["running"], "event": ["oom_kill"]}


def main() -> int:
    """Print the rate with its target and return 1 when it is missed."""
    records = [_record(number) for number in range(1, JOBS + 1)]
    with tempfile.TemporaryDirectory() as folder:
        create_blocks(Path(folder), "".join(_history()))
        with run_prometheus(Path(folder), "") as server:
            settings = PrometheusSettings(url=parse_address(server.url), scrape_interval=SAMPLE_SECONDS)
            client = Prometheus(settings)
            maker = ReportMaker(PrometheusSeries(client, settings), wall_clock=lambda: FIRST + 10 * RUN_SECONDS)
            maker.make(records[:BATCH_JOBS])
            reference, began, cpu = reference_seconds(), time.perf_counter(), time.process_time()
            server_cpu = cpu_seconds_of(server.pid)
            made = [maker.make(records[at : at + BATCH_JOBS]) for at in range(0, JOBS, BATCH_JOBS)]
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            server_cpu = cpu_seconds_of(server.pid) - server_cpu
    reports = [report for batch in made for report in batch]
    assert all(len(report.charts) >= 4 and report.summary.cpu.mean_cores for report in reports)
    print(f"queries: {sum(count.queries for count in client.counters.snapshot().by_kind.values())}")
    print(f"CPU per job: ours {cpu / JOBS * 1000:.1f} ms, the server's {server_cpu / JOBS * 1000:.1f} ms")
    print(f"summaries from Prometheus: {JOBS / seconds:.0f} jobs a second")
    return 0 if judge_seconds("summary of one job", seconds / JOBS, JOB_LIMIT, reference) else 1


def _record(number: int) -> JobRecord:
    start = FIRST + number * 10
    return JobRecord(
        cluster="bench", job_id=number, name="job", user=f"user{number % 50}", account="physics", partition="batch",
        state="COMPLETED", submit_seconds=start - 60, start_seconds=start, end_seconds=start + RUN_SECONDS,
        time_limit_seconds=2 * RUN_SECONDS, nodes=(f"n{number}",), node_count=1, cpus=CORES, memory_bytes=8 << 30,
    )  # fmt: skip


def _history() -> list[str]:
    lines: list[str] = []
    labels_of = {wanted.metric: wanted.each for wanted in (*CURVES.values(), *TOTALS.values())}
    for metric, each in labels_of.items():
        kind = "counter" if metric.endswith("_total") else "gauge"
        lines.append(f"# TYPE {metric.removesuffix('_total')} {kind}\n")
        (extra,) = [label for label in each if label in _EXTRA_LABELS] or [""]
        for number in range(1, JOBS + 1):
            for value in _EXTRA_LABELS.get(extra, [""]):
                lines += _series(metric, number, f',{extra}="{value}"' if extra else "")
    return [*lines, "# EOF\n"]


def _series(metric: str, number: int, extra: str) -> list[str]:
    start = FIRST + number * 10
    labels = f'slurm_job="{number}",slurm_node="n{number}"{extra}'
    step = 2 * SAMPLE_SECONDS if metric.endswith("_total") else 0
    return [
        f"{metric}{{{labels}}} {1000 + step * index} {start + SAMPLE_SECONDS * index}\n"
        for index in range(RUN_SECONDS // SAMPLE_SECONDS + 1)
    ]


if __name__ == "__main__":
    sys.exit(main())
