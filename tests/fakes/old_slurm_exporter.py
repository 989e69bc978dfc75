# SPDX-License-Identifier: Apache-2.0
"""Make the page of the Slurm exporter that we replace, from the same commands and by the same arithmetic.

Release 1.6.7 in its default mode: decimal megabytes, requested memory per node, and no series for 0.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.fakes.scripted_server import read_request

_JOB = (
    '{"a": "%a", "id": %A, "end_time": "%e", "u": "%u", "state": "%T", "p": "%P", "cpu": %C, "mem": "%m", '
    '"array_id": "%K", "r": "%R"}'
)
_NODE = '{"s": "%T", "mem": %m, "n": "%N", "l": "%O", "p": "%R", "fmem": "%e", "cstate": "%C", "w": %w}'
SQUEUE = ("squeue", "--states=all", "-h", "-r", "-o", _JOB)
# The exporter has %n, the host: one for all nodes of the lab.
SINFO = ("sinfo", "-h", "-N", "-o", _NODE)
_UNITS = {"M": 1e6, "G": 1e9, "T": 1e12}

Samples = Mapping[tuple[tuple[str, str], ...], float]


def render_old_page(run: Callable[..., str]) -> str:
    """Run the two commands, and return the page."""
    jobs = [json.loads(line) for line in run(*SQUEUE).splitlines()]
    rows = [json.loads(line) for line in run(*SINFO).splitlines()]
    families: dict[str, Samples] = {**_job_families(jobs), **_node_families(rows)}
    page = "".join(_render(name, "gauge", samples) for name, samples in families.items())
    page += _render("slurm_job_scrape_duration", "gauge", {(): 12.0})
    return page + _render("job_scrape_errors", "counter", {(): 0.0}) + _render("go_goroutines", "gauge", {(): 9.0})


def serving_page(page: str) -> Callable[[socket.socket], None]:
    """Return a handler that answers every request with the page."""
    body = page.encode()

    def handle(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body))

    return handle


def _job_families(jobs: list[dict[str, Any]]) -> dict[str, Samples]:
    def total(amount: Callable[[dict[str, Any]], float], **labels: str) -> Samples:
        return _sum((tuple((name, job[key]) for name, key in labels.items()), amount(job)) for job in jobs)

    pending = [job for job in jobs if job["state"] == "PENDING"]
    return {
        "slurm_user_state_total": total(lambda _: 1, username="u", state="state"),
        "slurm_user_cpu_alloc": total(lambda job: job["cpu"], username="u", state="state"),
        "slurm_user_mem_alloc": total(_memory, username="u", state="state"),
        "slurm_partition_job_state_total": total(lambda _: 1, partition="p", state="state"),
        "slurm_account_job_state_total": total(lambda _: 1, account="a", state="state"),
        "slurm_account_job_state_cpu_alloc": total(lambda job: job["cpu"], account="a", state="state"),
        "slurm_account_job_state_mem_alloc": total(_memory, account="a", state="state"),
        "slurm_pending_reason_total": _sum(((("reason", job["r"].strip("()")),), 1.0) for job in pending),
    }


def _node_families(rows: list[dict[str, Any]]) -> dict[str, Samples]:
    nodes = {row["n"]: row for row in rows}.values()
    # Allocated, idle, other, total.
    cpus = {row["n"]: [int(part) for part in row["cstate"].split("/")] for row in rows}

    def by(key: str, label: str, amount: Callable[[dict[str, Any]], float], of: Iterable[dict[str, Any]]) -> Samples:
        return _sum((((label, row[key]),), amount(row)) for row in of)

    return {
        "slurm_cpus_total": {(): sum(cpus[row["n"]][3] for row in nodes)},
        "slurm_cpus_idle": {(): sum(cpus[row["n"]][1] for row in nodes)},
        "slurm_mem_real": {(): sum(row["mem"] * 1e6 for row in nodes)},
        "slurm_cpus_per_state": by("s", "state", lambda row: cpus[row["n"]][3], nodes),
        "slurm_node_count_per_state": by("s", "state", lambda _: 1, nodes),
        "slurm_partition_total_cpus": by("p", "partition", lambda row: cpus[row["n"]][3], rows),
        "slurm_partition_real_mem": by("p", "partition", lambda row: row["mem"] * 1e6, rows),
    }


def _memory(job: dict[str, Any]) -> float:
    text = job["mem"]
    return float(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else float(text)


def _sum(samples: Iterable[tuple[tuple[tuple[str, str], ...], float]]) -> Samples:
    sums: Counter[tuple[tuple[str, str], ...]] = Counter()
    for labels, value in samples:
        sums[labels] += value  # type: ignore[assignment]
    return {labels: value for labels, value in sums.items() if value}


def _render(name: str, kind: str, samples: Samples) -> str:
    lines = [f"# TYPE {name} {kind}"]
    for labels, value in samples.items():
        shown = ",".join(f'{label}="{text}"' for label, text in labels)
        lines.append(f"{name}{{{shown}}} {value}" if shown else f"{name} {value}")
    return "\n".join(lines) + "\n"
