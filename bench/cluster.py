# SPDX-License-Identifier: Apache-2.0
"""Measure the cluster exporter at 100,000 jobs on 10,000 nodes, of 500 users in 80 accounts.

A real exporter process runs fake Slurm commands that report a simulated cluster. Its CPU time is counted from the
first byte that a command prints to the last byte of the compressed page; that of the commands is not. The queue
is a hard one: 40,000 of its rows differ, where a queue full of arrays has a few hundred.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.measure import cpu_seconds_of, judge, judge_ratio, least_seconds, resident_bytes_of, running_exporter, scrape
from slurmscope.cli.roles import find_role
from slurmscope.cluster import jobs as jobs_collector
from slurmscope.cluster import squeue
from slurmscope.cluster.squeue import Jobs
from slurmscope.exporter.collector import Role, declared_readings
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.commands.executables import COMMANDS, answer, write_fake_commands

SHAPE = Shape(jobs=100_000, nodes=10_000, users=500, accounts=80, partitions=12, gpus=8_000)

# Ratios to one pass over the same queue as JSON lines, as an older exporter makes it, in the same run.
PAGE_LIMIT = 1.0
SUMS_LIMIT = 0.5
MEMORY_TARGET_BYTES = 150_000_000
CACHED_LIMIT = 0.01  # of making the page
RATIO_TARGET = 5  # where 40,000 of 100,000 rows differ
ARRAYS_RATIO_TARGET = 10  # where 4,000 do
GROWTH_TARGET = 0.25
REQUESTS_LIMIT = 7

SCRAPES = 10
CACHED_SCRAPES = 200
POLL_SECONDS = 0.3
REST_SECONDS = 1.0  # a reading that took longer than its interval rests as long as it worked
COMMAND_RUNS = re.compile(r'^slurmscope_commands_total\{command="(\w+)"\} (\d+)$', re.MULTILINE)

# Requests that slurmctld counted in tests/e2e/test_scale.py; the others go to slurmdbd.
REQUESTS = {
    "jobs": 2, "nodes": 2, "controllers": 1, "diag": 1, "licenses": 1, "reservations": 1, "limits": 1, "shares": 1,
    "config": 1,
}  # fmt: skip

# Runs the fake command once and repeats its output from then on, so that the simulation costs nothing.
REPEATING = """\
#!/bin/sh
answer="{folder}/answers/{name}-$(printf '%s ' "$@" | cksum | tr -d ' ')"
[ -e "$answer" ] || {{ "{folder}/asked/{name}" "$@" > "$answer.$$" && mv "$answer.$$" "$answer"; }}
exec cat "$answer"
"""


def main() -> int:
    """Print every figure with its target and return 1 when one is missed."""
    cluster = simulate(SHAPE, now=int(time.time()))
    with tempfile.TemporaryDirectory() as folder:
        write_fake_commands(cluster, Path(folder) / "requested")
        _repeat_answers(Path(folder))
        json_seconds = _json_seconds(cluster)
        is_met = [*_measure_page(folder, json_seconds), _measure_sums(folder, json_seconds)]
    is_met += [*_compare_with_json(cluster), _measure_growth(cluster), _count_calls()]
    return 0 if all(is_met) else 1


def _repeat_answers(folder: Path) -> None:
    (folder / "answers").mkdir()
    for name in COMMANDS:
        script = folder / name
        script.write_text(REPEATING.format(folder=folder, name=name), encoding="utf-8")
        script.chmod(0o755)


@contextmanager
def _exporter(folder: str, *flags: str) -> Iterator[tuple[int, str]]:
    """Run an exporter that reads everything anew for every scrape."""
    intervals = (f"--slurm.poll-limit={POLL_SECONDS}", f"--slurm.slow-interval={POLL_SECONDS}")
    asking = ("--slurm.bin-path", folder, "--slurm.timeout=60", *intervals)
    with running_exporter(*asking, *flags) as exporter:
        yield exporter


def _json_seconds(cluster: SimulatedCluster) -> float:
    lines = b"".join(_json_line(row) for row in _squeue_answer(cluster).decode().split("\n")[:-1])
    return least_seconds(partial(_add_up_json, lines))[0]


def _measure_page(folder: str, json_seconds: float) -> Iterator[bool]:
    """Scrape everything that is on by default, and measure memory and commands as well."""
    with _exporter(folder) as (pid, address):
        page = scrape(address)
        least = _scrape_again(pid, address)
        resident_bytes = resident_bytes_of(pid)
    text = gzip.decompress(page).decode()
    samples = sum(not line.startswith("#") for line in text.splitlines())
    print(f"page: {samples} samples, {len(text) / 1e6:.1f} MB, {len(page) / 1e6:.2f} MB compressed")
    runs = COMMAND_RUNS.findall(text)
    print(f"commands when all is due: {sum(int(count) for _, count in runs)} ({' '.join(f'{n}:{c}' for n, c in runs)})")
    yield _judge_page("page of everything that is on by default", least, json_seconds, PAGE_LIMIT)
    yield _measure_cached_page(folder, least)
    yield judge(
        f"memory after {SCRAPES + 1} pages",
        f"{resident_bytes / 1e6:.0f} MB resident",
        f"at most {MEMORY_TARGET_BYTES / 1e6:.0f} MB",
        is_met=resident_bytes <= MEMORY_TARGET_BYTES,
    )


def _measure_sums(folder: str, json_seconds: float) -> bool:
    """Scrape jobs and nodes without a series for each node."""
    with _exporter(folder, "--no-collector.nodes.per-node") as (pid, address):
        least = _scrape_again(pid, address, "?collect[]=jobs&collect[]=nodes")
    return _judge_page("page of sums over jobs and nodes", least, json_seconds, SUMS_LIMIT)


def _scrape_again(pid: int, address: str, query: str = "") -> float:
    """Return the minimum of the CPU seconds of a scrape."""
    seconds = []
    for _ in range(SCRAPES):
        time.sleep(REST_SECONDS)
        before = cpu_seconds_of(pid)
        scrape(address, query)
        seconds.append(cpu_seconds_of(pid) - before)
    return min(seconds)


def _judge_page(what: str, seconds: float, json_seconds: float, limit: float) -> bool:
    of = f"the queue alone as JSON lines, {json_seconds:.2f} s"
    return judge_ratio(what, f"{seconds:.2f} s of CPU", seconds / json_seconds, limit, of)


def _measure_cached_page(folder: str, page_seconds: float) -> bool:
    """Scrape a page that is already made."""
    with running_exporter("--slurm.bin-path", folder, "--slurm.poll-limit=1h", "--slurm.timeout=60") as (pid, address):
        scrape(address)
        before = cpu_seconds_of(pid)
        for _ in range(CACHED_SCRAPES):
            scrape(address)
        each = (cpu_seconds_of(pid) - before) / CACHED_SCRAPES
    figure = f"{each * 1000:.2f} ms of CPU"
    return judge_ratio("one more scrape of the cached page", figure, each / page_seconds, CACHED_LIMIT, "making it")


def _compare_with_json(cluster: SimulatedCluster) -> Iterator[bool]:
    """Add the same jobs up from one JSON object per line, as an older exporter does."""
    answer = _squeue_answer(cluster)
    arrays = b"".join(row + b"\n" for row in _distinct_rows(answer)[:4_000]) * 25
    for what, rows, target in (("", answer, RATIO_TARGET), (", mostly arrays", arrays, ARRAYS_RATIO_TARGET)):
        lines = b"".join(_json_line(row) for row in rows.decode().split("\n")[:-1])
        ours, theirs = least_seconds(partial(_add_up, rows), partial(_add_up_json, lines), rounds=5)
        figures = f"JSON lines {theirs:.2f} s, slurmscope {ours:.2f} s, ratio {theirs / ours:.1f}"
        yield judge(f"sums of 100,000 jobs{what}", figures, f"at least {target}", is_met=theirs >= target * ours)


def _measure_growth(cluster: SimulatedCluster) -> bool:
    """Parse ten times the jobs, once as more of the same rows and once as rows of their own."""
    rows = _distinct_rows(_squeue_answer(cluster))
    few, more = (b"".join(row + b"\n" for row in rows[:count]) for count in (4_000, 40_000))
    base, same, other = least_seconds(lambda: _parse(few), lambda: _parse(few * 10), lambda: _parse(more), rounds=10)
    share = (same - base) / (other - base)
    figures = f"more of the same rows {same / base:.1f} times the CPU, other rows {other / base:.1f} times"
    target = f"a row like another at most {GROWTH_TARGET} of the cost of a new one, here {share:.2f}"
    return judge("ten times the jobs", figures, target, is_met=share <= GROWTH_TARGET)


def _count_calls() -> bool:
    """Count the requests to slurmctld with default intervals when Prometheus scrapes every 30 or 60 seconds."""
    role = find_role(Role.CLUSTER.value)
    own = (reading for feature in role.features for reading in feature.readings)
    declared = declared_readings(role.collectors, *own)
    each = {
        pause: sum(count * min(1, pause / max(pause, declared[name].every_seconds)) for name, count in REQUESTS.items())
        for pause in (30, 60)
    }
    figures = ", ".join(f"{count:.1f} for a scrape every {pause} s" for pause, count in each.items())
    is_met = max(each.values()) <= REQUESTS_LIMIT
    return judge("requests to slurmctld", figures, f"at most {REQUESTS_LIMIT}", is_met=is_met)


def _squeue_answer(cluster: SimulatedCluster) -> bytes:
    code, rows, complaint = answer(cluster, "squeue", squeue.ARGUMENTS)
    assert (code, complaint) == (0, b"")
    return rows


def _distinct_rows(answer: bytes) -> list[bytes]:
    return list(dict.fromkeys(answer.split(b"\n")[:-1]))


def _parse(answer: bytes) -> Jobs:
    return squeue.parse_jobs(answer, taken_at_seconds=0.0, window=squeue.StartWindow(0, 0))


def _add_up(answer: bytes) -> int:
    return sum(1 for _ in jobs_collector.collect(jobs_collector.JobsOptions(), jobs=_parse(answer)))


def _json_line(row: str) -> bytes:
    """Write a row as the older exporter lets squeue print it."""
    names, amounts, times = row.split(squeue.PART)
    account, user, partition, _, state, reason, feature = names.split(squeue.SEPARATOR)
    _, cpus, tres = amounts.split(squeue.SEPARATOR)
    memory = next((part[4:] for part in tres.split(",") if part.startswith("mem=")), "0")
    fields = {
        "a": account, "id": 4_000_000, "end_time": times.partition(squeue.SEPARATOR)[2], "u": user, "state": state,
        "p": partition, "cpu": int(cpus), "mem": memory, "array_id": "N/A", "r": reason, "f": feature,
    }  # fmt: skip
    return json.dumps(fields).encode() + b"\n"


def _add_up_json(lines: bytes) -> int:
    """Count jobs, CPUs and memory by user, account and partition, and pending jobs by reason."""
    jobs, cpus, memory = ({by: Counter[tuple[str, str]]() for by in "uap"} for _ in range(3))
    reasons: Counter[str] = Counter()
    for line in lines.split(b"\n")[:-1]:
        job = json.loads(line)
        amount = int(float(job["mem"].rstrip("KMGT")))
        for by in "uap":
            key = (job[by], job["state"])
            jobs[by][key] += 1
            cpus[by][key] += job["cpu"]
            memory[by][key] += amount
        if job["state"] == "PENDING":
            reasons[job["r"]] += 1
    return len(reasons)


if __name__ == "__main__":
    sys.exit(main())
