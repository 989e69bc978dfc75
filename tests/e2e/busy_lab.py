# SPDX-License-Identifier: Apache-2.0
"""Watch a busy cluster with a real Prometheus: jobs of every kind, limits, licences, a drained node, a reservation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lab import ALICE, BOB, CAROL, SlurmLab
from lab.prometheus import Sample, Server, run_prometheus
from tests.processes import Exporter, serving, until

FEATURE = "fast"
RESERVATION = "works"
# Of one CPU each.
RUNNING_JOBS = 5
# Twenty are held, one depends on another, one wants more GPUs than are free.
PENDING_JOBS = 22
PATIENCE_SECONDS = 60
CONFIG = """
global: {{scrape_interval: 2s, scrape_timeout: 2s}}
scrape_configs:
  - job_name: slurm
    static_configs: [{{targets: ["{address}"]}}]
"""
# What changes slowly is asked for rarely; a test has no time for that.
FAST_FLAGS = ("--slurm.poll-limit=1s", "--slurm.slow-interval=1s")


@contextmanager
def watch_busy_lab(lab: SlurmLab, folder: Path) -> Iterator[Server]:
    """Fill the cluster, scrape the exporter over it, and undo what was set up."""
    with busy_lab(lab), busy_exporter(lab) as exporter:
        config = CONFIG.format(address=exporter.addresses[0])
        with run_prometheus(folder / "prometheus", config) as prometheus:
            see_jobs_start_and_end(lab, prometheus)
            yield prometheus


@contextmanager
def busy_lab(lab: SlurmLab) -> Iterator[None]:
    """Fill the cluster, and undo what was set up."""
    with ExitStack() as stack:
        lab.reset()
        stack.callback(lab.reset)
        _set_up(lab, stack)
        _submit_jobs(lab)
        yield


@contextmanager
def busy_exporter(lab: SlurmLab, *flags: str) -> Iterator[Exporter]:
    """Run the cluster exporter, which polls Slurm all the time."""
    flags = (*FAST_FLAGS, "--slurm.bin-path", str(lab.bin_path), *flags)
    with serving("cluster", *flags, environment=lab.environment) as exporter:
        yield exporter


def numbers(prometheus: Server, expression: str) -> list[Sample]:
    """Ask until there is an answer; what is not a number draws nothing, so it is left out.

    A rate needs two scrapes, and one that a busy machine makes late counts as none.
    """
    found: list[Sample] = []

    def has_numbers() -> bool:
        found[:] = [sample for sample in prometheus.query(expression) if not math.isnan(sample.value)]
        return bool(found)

    until(has_numbers, PATIENCE_SECONDS)
    return found


def _set_up(lab: SlurmLab, stack: ExitStack) -> None:
    """Make everything that a cluster may have or not have, and say how it goes away."""

    def account_limits(cpus: str, memory: str, jobs: str, submits: str) -> None:
        limits = (f"GrpTRES=cpu={cpus},mem={memory}", f"GrpJobs={jobs}", f"GrpSubmit={submits}")
        lab.run("sacctmgr", "-i", "modify", "account", "physics", "set", *limits)

    def qos_limits(cpus: str) -> None:
        lab.run("sacctmgr", "-i", "modify", "qos", "normal", "set", f"GrpTRES=cpu={cpus}")

    def feature(name: str) -> None:
        node = f"nodename={lab.nodes[0]}"
        lab.run("scontrol", "update", node, f"availablefeatures={name}", f"activefeatures={name}")

    stack.callback(account_limits, "-1", "-1", "-1", "-1")
    account_limits("24", "8G", "20", "200")
    stack.callback(qos_limits, "-1")
    qos_limits("30")
    stack.callback(feature, "")
    feature(FEATURE)
    lab.run("scontrol", "update", f"nodename={lab.nodes[1]}", "state=drain", "reason=bad memory")
    name = f"reservationname={RESERVATION}"
    when = ("starttime=now+1hour", "duration=30", "users=root")
    lab.run("scontrol", "create", "reservation", name, *when, f"nodes={lab.nodes[0]}")
    stack.callback(lab.run, "scontrol", "delete", name)


def _submit_jobs(lab: SlurmLab) -> None:
    """Let jobs run and wait for several reasons."""
    long = "sleep 600"
    running = [
        lab.submit(ALICE, "--array=1-3", script=long),
        lab.submit(BOB, "--partition=gpus", "--gres=gpu:a100:1", script=long),
        lab.submit(CAROL, "--licenses=matlab:2", f"--constraint={FEATURE}", script=long),
    ]
    for job in running:
        lab.wait_state(job, {"RUNNING"})
    lab.submit(BOB, "--hold", "--array=1-20", "--partition=debug,long")
    lab.submit(BOB, f"--dependency=afterok:{running[0]}")
    lab.submit(ALICE, "--partition=gpus", "--nodes=2", "--gres=gpu:a100:2")


def see_jobs_start_and_end(lab: SlurmLab, prometheus: Server, *, further_jobs: int = 0) -> None:
    """Let jobs start and end until Prometheus has seen the counts grow: a rate needs two readings.

    What happened before the exporter started is not in its counts.
    """
    starts = 'increase(slurm_job_wait_seconds_count{partition="debug"}[5m]) > 0'
    ends = 'increase(slurm_jobs_ended_total{partition="debug", state="FAILED"}[5m]) > 0'

    def have_grown() -> bool:
        lab.wait_state(lab.submit(ALICE, script="false"), {"FAILED"})
        return bool(prometheus.query(starts) and prometheus.query(ends))

    until(have_grown, PATIENCE_SECONDS)
    # The last one has to be gone from the numbers, too.
    settled = {
        'sum(slurm_jobs{state="PENDING"})': PENDING_JOBS,
        'sum(slurm_jobs{state=~"RUNNING|COMPLETING"})': RUNNING_JOBS + further_jobs,
        'sum(slurm_cpus{state="allocated"})': RUNNING_JOBS + further_jobs,
    }
    until(lambda: all([count] == [s.value for s in prometheus.query(query)] for query, count in settled.items()))
