# SPDX-License-Identifier: Apache-2.0
"""Slurm's own influxdb plugin, as Debian ships it, reaches the agent and reports without any plugin of ours."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import ALICE
from lab.config import LabSettings
from lab.prometheus import run_prometheus
from tests.e2e.profiled_lab import (
    CPU,
    PATIENCE_SECONDS,
    RESIDENT,
    TASKS,
    ProfiledLab,
    check_tasks,
    left,
    reports,
    run_profiled_lab,
    two_steps,
)
from tests.processes import Exporter, run_slurmscope, serving, until, values

SCRAPES = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs: [{{job_name: nodes, static_configs: [{{targets: ["{address}"]}}]}}]
"""


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def port() -> int:
    """Return the port of the agent, which acct_gather.conf names."""
    return free_port()


@pytest.fixture(scope="module")
def profiled(port: int) -> Iterator[ProfiledLab]:
    """Start a cluster of one node with Slurm's influxdb plugin."""
    lines = (
        f"ProfileInfluxDBHost=http://127.0.0.1:{port}", "ProfileInfluxDBDatabase=slurm",
        "ProfileInfluxDBRTPolicy=autogen", "ProfileInfluxDBDefault=none", "",
    )  # fmt: skip
    settings = LabSettings(
        node_count=1,
        extra_lines=("AcctGatherProfileType=acct_gather_profile/influxdb", "JobAcctGatherFrequency=task=2"),
        extra_files={"acct_gather.conf": "\n".join(lines)},
    )
    with run_profiled_lab(lambda _: settings) as running:
        yield running


@pytest.fixture
def work(profiled: ProfiledLab) -> Path:
    """Return an empty folder that jobs may write to."""
    return profiled.empty_work()


@pytest.fixture
def agent(port: int, profiled: ProfiledLab) -> Iterator[Exporter]:
    """Start an agent that accepts writes."""
    with serving("node", "--profile.influxdb-listen-address", f"127.0.0.1:{port}", "--node.grace", "5s") as running:
        yield running


@pytest.mark.usefixtures("work")
def test_tasks_agree_with_the_kernel_and_sstat(profiled: ProfiledLab, agent: Exporter) -> None:
    # The plugin sends when it has 16 KiB, or when a task ends.
    check_tasks(profiled, agent, "--acctg-freq=task=1")
    rejected = values(agent.get()[1], "slurmscope_profile_rejected_total")
    assert {0.0} == {rejected.get((reason,), 0.0) for reason in ("sender", "malformed", "value", "limit")}


def test_report_has_the_samples_beside_what_the_agent_measured(
    profiled: ProfiledLab, work: Path, agent: Exporter, tmp_path: Path
) -> None:
    lab = profiled.lab
    with run_prometheus(tmp_path, SCRAPES.format(address=agent.addresses[0])) as prometheus:
        job = profiled.submit(two_steps(work), "--profile=task", "--acctg-freq=task=1")
        reported = reports(work)
        # Some scrapes of each task before the job ends; a quick machine would end it before the first one.
        seen = f'count_over_time({RESIDENT}{{slurm_job="{job}",step!="batch"}}[10m]) >= 5'
        until(lambda: len(prometheus.query(seen)) == len(TASKS), PATIENCE_SECONDS)
        (work / "end").touch()
        final = reports(work, "final.json")
        lab.wait_state(job, {"COMPLETED"})
        until(lambda: prometheus.query(f'jobs_info{{slurm_job="{job}",has_ended="true"}}'), PATIENCE_SECONDS)
        until(lambda: lab.run("sacct", "-nPXj", str(job), "-o", "State").strip() == "COMPLETED", PATIENCE_SECONDS)
        # The last write comes when a task ends; the agent has its numbers at the next but one scrape at the latest.
        metric = f'{CPU}{{slurm_job="{job}",step="1",task="1"}}'
        until(
            lambda: prometheus.query(f"max_over_time({metric}[10m]) >= {0.9 * final['1', '1']['cpu']}"),
            PATIENCE_SECONDS,
        )
        flags = ("--prometheus.url", prometheus.url, "--prometheus.scrape-interval", "2s")
        forms = {}
        for form, options in {"json": (), "text": ("--full",)}.items():
            done = run_slurmscope("report", str(job), "-f", form, *options, *flags, environment=lab.environment)
            assert (0, "") == (done.returncode, done.stderr)
            forms[form] = done.stdout
    profile = json.loads(forms["json"])["summary"]["profile"]
    tasks = {(task["step"], task["task"]): task for task in profile["tasks"] if task["step"] != "batch"}
    assert {task: pytest.approx(final[task]["cpu"], rel=0.1, abs=0.3) for task in TASKS} == {
        task: found["cpu_seconds"] for task, found in tasks.items()
    }
    for task, report in reported.items():
        assert 0.95 * report["anonymous"] <= tasks[task]["peak_memory_bytes"] <= 1.05 * report["resident"]
    assert {lab.nodes[0]} == {task["node"] for task in profile["tasks"]}
    assert {"batch": 1, "0": 2, "1": 2} == {step["step"]: step["tasks"] for step in profile["steps"]}
    both = {found["quantity"]: (found["sampled"], found["measured"]) for found in profile["comparisons"]}
    # Slurm counts from the first sample of a task, the agent also srun.
    sampled, measured = both["cpu_seconds"]
    assert 0.8 * measured <= sampled <= 1.1 * measured
    assert {"cpu_seconds", "memory_bytes"} <= both.keys()
    assert "Slurm's own samples" in forms["text"]


def test_user_cannot_forge_writes(port: int, agent: Exporter) -> None:
    def forge(user: str) -> str:
        line = "RSS,job=1,step=0,task=0,host=n1 value=1 1700000000\n"
        url = f"http://127.0.0.1:{port}/write?db=slurm&rp=autogen&precision=s"
        argv = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--data-binary", line, url]
        return subprocess.run(argv, user=user, cwd="/", timeout=60, check=True, capture_output=True, text=True).stdout

    assert "403" == forge(ALICE)
    assert 1 == values(agent.get()[1], "slurmscope_profile_rejected_total")[("sender",)]
    assert [] == left(agent)
    assert "204" == forge("root")
    until(lambda: left(agent), PATIENCE_SECONDS)
