# SPDX-License-Identifier: Apache-2.0
"""The doctor finds causes that only a real Prometheus or a real Slurm can have."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lab import SlurmLab
from lab.prometheus import Server, run_prometheus
from tests.fakes.scripted_server import scripted_server
from tests.fakes.slurm_scripts import make_commands
from tests.processes import run_slurmscope, until

CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
- job_name: agent
  static_configs: [{{targets: ["{address}"]}}]
"""
PAGE = b'# TYPE jobs_cpu_seconds_total counter\njobs_cpu_seconds_total{slurm_job="7",slurm_node="n1",mode="user"} 1\n'


def _serve_page(connection: socket.socket) -> None:
    connection.recv(65536)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(PAGE)}\r\n\r\n"
    connection.sendall(head.encode() + PAGE)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a Prometheus that scrapes the agent of n1."""
    with scripted_server(_serve_page) as url:
        config = CONFIG.format(address=url.removeprefix("http://"))
        with run_prometheus(tmp_path_factory.mktemp("doctor") / "prometheus", config) as server:
            until(lambda: server.query("jobs_cpu_seconds_total"))
            yield server


def examine(
    folder: Path, prometheus: Server, squeue: str, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Run the doctor of the portal in a cluster of n1 and n2; return its lines, with their advice, by check."""
    commands = make_commands(folder / "bin", {"squeue": squeue, "sinfo": "printf 'n1\\nn2\\n'"})
    flags = ("--slurm.bin-path", str(commands), "--archive.url", str(folder / "archive.db"))
    done = run_slurmscope("doctor", "portal", *flags, "--prometheus.url", prometheus.url, environment=environment)
    lines = done.stdout.replace("\n        ", " | ").splitlines()
    return {line.split("  ", 1)[1].strip().partition(":")[0]: line for line in lines if ":" in line}


def test_node_that_runs_jobs_and_is_not_scraped_is_named(prometheus: Server, tmp_path: Path) -> None:
    shown = examine(tmp_path, prometheus, "printf '1-02:03:04 n[1-2]\\n0:05 n9\\nINVALID n8\\n'")["measured nodes"]

    assert shown.startswith("failed  measured nodes: jobs run on n2, which Prometheus does not know | ")
    assert "--node.name" in shown
    assert "/targets" in shown


def test_every_node_that_runs_jobs_is_scraped(prometheus: Server, tmp_path: Path) -> None:
    shown = examine(tmp_path, prometheus, "echo 5:03 n1")

    assert "ok      measured nodes: Prometheus knows every node that runs jobs" == shown["measured nodes"]
    assert "ok      Prometheus clock: the clocks of this host and of Prometheus agree" == shown["Prometheus clock"]


@pytest.mark.parametrize(("shift", "words"), [(600, "ahead of"), (-600, "behind")])
def test_clock_that_differs_from_that_of_prometheus_is_reported(
    prometheus: Server, tmp_path: Path, shift: int, words: str
) -> None:
    # A process whose clock is wrong: Python imports this module before anything else.
    (tmp_path / "sitecustomize.py").write_text(f"import time\nreal = time.time\ntime.time = lambda: real() + {shift}\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    shown = examine(tmp_path, prometheus, "echo 5:03 n1", {"PYTHONPATH": path})["Prometheus clock"]

    # The time that a query takes on a busy machine may be taken off.
    start = f"failed  Prometheus clock: the clock of this host is (5[89][0-9]|600) s {words} that of Prometheus"
    assert re.match(start, shown)
    assert "synchronize the clocks" in shown


def test_agent_whose_name_slurm_does_not_know_is_reported(clean_lab: SlurmLab) -> None:
    environment = {**clean_lab.environment, "PATH": f"{clean_lab.bin_path}:{os.environ['PATH']}"}
    node = clean_lab.nodes[0]

    right = run_slurmscope("doctor", "node", "--node.name", node, environment=environment)
    wrong = run_slurmscope("doctor", "node", "--node.name", "wrong", environment=environment)

    assert f"ok      node name: Slurm knows this node as {node}" in right.stdout
    assert "failed  node name: Slurm does not know a node wrong" in wrong.stdout
    assert "set node.name to the NodeName of this host" in wrong.stdout


def test_each_failure_is_printed_once(tmp_path: Path) -> None:
    done = run_slurmscope("doctor", "cluster", "--slurm.bin-path", str(tmp_path))
    logged = run_slurmscope("doctor", "cluster", "--slurm.bin-path", str(tmp_path), "--log.level=error")

    assert ("", 1) == (done.stderr, done.stdout.count("squeue was not found"))
    assert "squeue was not found" in logged.stderr
