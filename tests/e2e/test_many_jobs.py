# SPDX-License-Identifier: Apache-2.0
"""Forty real jobs of every kind: our numbers are those of Slurm's own commands, metric by metric."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lab import ALICE, BOB, CAROL, SlurmLab
from lab.prometheus import run_prometheus
from slurmscope.core.tres import parse_tres
from tests.processes import run_slurmscope, serving, until, values

# What real users have called jobs, and worse.
HOSTILE_NAMES = (
    "x\n999|fake|root|RUNNING",
    "a|b",
    'quo"te',
    "back\\slash",
    "\x1b[31mred",
    "naïve",
    "n" * 1000,
    "$(id)",
    "'",
)

Row = dict[str, str]
Counts = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def crowded_lab(slurm_lab: SlurmLab) -> SlurmLab:
    """Give the cluster with forty jobs and more, settled."""
    lab = slurm_lab
    lab.reset()
    overdue = lab.submit(ALICE, script="sleep 600")
    lab.wait_state(overdue, {"RUNNING"})
    lab.run("scontrol", "update", f"JobId={overdue}", "EndTime=now+1")
    ended = {
        overdue: "TIMEOUT",
        lab.submit(ALICE, script="true"): "COMPLETED",
        lab.submit(BOB, script="exit 3"): "FAILED",
        lab.submit(BOB, "--mem=60M", script="exec python3 -c 'x = bytearray(400_000_000)'"): "OUT_OF_MEMORY",
    }
    cancelled = lab.submit(CAROL, "--hold")
    lab.run("scancel", str(cancelled))
    running = [
        lab.submit(ALICE, "--ntasks=2", "--mem-per-cpu=100M", script="sleep 600"),
        lab.submit(ALICE, "--nodes=2", "--ntasks-per-node=1", "--mem=150M", script="sleep 600"),
        lab.submit(BOB, "--partition=gpus", "--gpus=1", "--mem=100M", script="sleep 600"),
        lab.submit(BOB, "--partition=gpus", "--gpus-per-node=1", "--mem=100M", script="sleep 600"),
        lab.submit(CAROL, "--account=chemistry", "--mem=100M", script="sleep 600"),
    ]
    # Before one waits for all nodes: whoever used less until now goes first, and keeps nodes for himself.
    for job in running:
        lab.wait_state(job, {"RUNNING"}, timeout=240)
    for job, state in {**ended, cancelled: "CANCELLED"}.items():
        lab.wait_state(job, {state}, timeout=240)
    lab.submit(ALICE, "--array=1-12", "--hold")
    lab.submit(BOB, "--array=0-20:2%3", "--hold", "--mem-per-cpu=50M", "--ntasks=4")
    lab.submit(BOB, "--partition=debug,long", "--hold")
    lab.submit(CAROL, f"--dependency=afterok:{running[0]}")
    lab.submit(CAROL, "--nodes=4", "--exclusive", "--mem=3900M")
    lab.submit(ALICE, "--hold", ":", "--hold")
    for name in HOSTILE_NAMES:
        lab.submit(CAROL, "--hold", f"--job-name={name}")
    # The scheduler has considered all of them, so that their reasons stay.
    lab.wait_for(lambda: "None" not in lab.run("squeue", "--noheader", "--states=PENDING", "--format=%r").split())
    return lab


@pytest.fixture(scope="module")
def page(crowded_lab: SlurmLab) -> str:
    done = run_slurmscope(
        "cluster", "--once", "--collector.job_info", "--slurm.bin-path", str(crowded_lab.bin_path),
        environment=crowded_lab.environment,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def rows(crowded_lab: SlurmLab) -> list[Row]:
    """Ask squeue in its other way, by letters, and scontrol for what letters do not tell."""
    columns = {"account": "%a", "user": "%u", "partition": "%P", "qos": "%q", "state": "%T", "reason": "%r",
               "nodes": "%D", "cpus": "%C", "array": "%F_%K"}  # fmt: skip
    text = crowded_lab.run(
        "squeue", "--noheader", "--all", "--array", "--states=all", "--format=" + "~".join(columns.values())
    )
    return [dict(zip(columns, line.split("~"), strict=True)) for line in text.splitlines()]


def count(rows: list[Row], *columns: str, quantity: str = "") -> Counts:
    counts: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        counts[tuple(row[column] for column in columns)] += int(row[quantity]) if quantity else 1
    return dict(counts)


def by_partition(rows: list[Row]) -> list[Row]:
    return [{**row, "partition": name} for row in rows for name in row["partition"].split(",")]


def alive(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["state"] in ("RUNNING", "PENDING")]


def test_there_are_more_than_forty_jobs_in_many_states(rows: list[Row]) -> None:
    assert len(rows) >= 40
    seen = {row["state"] for row in rows}
    assert {"RUNNING", "PENDING", "COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY", "TIMEOUT"} <= seen


@pytest.mark.parametrize("view", ["account", "user", "qos"])
def test_jobs_nodes_and_cpus_by_view(page: str, rows: list[Row], view: str) -> None:
    assert count(rows, view, "state") == values(page, f"slurm_{view}_jobs")
    assert count(alive(rows), view, "state", quantity="nodes") == values(page, f"slurm_{view}_job_nodes")
    assert count(alive(rows), view, "state", quantity="cpus") == values(page, f"slurm_{view}_job_cpus")


def test_jobs_by_partition_and_in_all(page: str, rows: list[Row]) -> None:
    assert count(by_partition(rows), "partition", "state") == values(page, "slurm_partition_jobs")
    assert count(rows, "state") == values(page, "slurm_jobs")
    assert count(alive(rows), "state", quantity="cpus") == values(page, "slurm_job_cpus")


def test_kept_names(page: str, rows: list[Row]) -> None:
    assert count(rows, "user", "state") == values(page, "slurm_user_state_total")
    assert count(rows, "user", "state", quantity="cpus") == values(page, "slurm_user_cpu_alloc")
    assert count(rows, "account", "state") == values(page, "slurm_account_job_state_total")
    assert count(by_partition(rows), "partition", "state") == values(page, "slurm_partition_job_state_total")
    running = [row for row in rows if row["state"] == "RUNNING"]
    assert count(running, "account", quantity="cpus") == values(page, "slurm_account_cpu_alloc")
    on_gpus = [row for row in running if row["partition"] == "gpus"]
    assert count(on_gpus, "user", quantity="cpus") == values(page, "ncpus")
    pending = [row for row in rows if row["state"] == "PENDING"]
    assert count(pending, "reason") == values(page, "slurm_pending_reason_total")


def test_reasons_and_held_jobs(page: str, rows: list[Row]) -> None:
    pending = [row for row in by_partition(rows) if row["state"] == "PENDING"]
    assert count(pending, "partition", "reason") == values(page, "slurm_partition_pending_jobs")
    held = [{**row, "by": "user"} for row in pending if row["reason"] == "JobHeldUser"]
    assert count(held, "partition", "by") == values(page, "slurm_partition_held_jobs")


def test_memory_and_gpus_are_those_of_the_allocations(page: str, crowded_lab: SlurmLab) -> None:
    """Slurm's record of each running job is the oracle: its TRES line in ``scontrol show job``."""
    memory: Counter[tuple[str, ...]] = Counter()
    gpus: Counter[tuple[str, ...]] = Counter()
    for line in crowded_lab.run("scontrol", "--oneliner", "show", "job").splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if fields.get("JobState") != "RUNNING":
            continue
        user = fields["UserId"].split("(")[0]
        tres = parse_tres(fields["TRES"])
        memory[user, "RUNNING"] += tres.memory_bytes or 0
        gpus[user, "RUNNING"] += sum(gres.count for gres in tres.gres if gres.name == "gpu")

    served = values(page, "slurm_user_job_memory_bytes")
    assert dict(memory) == {labels: value for labels, value in served.items() if labels[1] == "RUNNING"}
    served_gpus: Counter[tuple[str, ...]] = Counter()
    for labels, value in values(page, "slurm_user_job_gres").items():
        served_gpus[labels[:2]] += int(value)
    assert {labels: n for labels, n in gpus.items() if n} == dict(served_gpus)
    # By hand: two CPUs of 100 MB, and two nodes of 150 MB each.
    assert (2 * 100 + 2 * 150) * 2**20 == memory[ALICE, "RUNNING"]


def test_every_hostile_name_is_one_job(page: str) -> None:
    infos = values(page, "slurm_job_info")

    names = [labels[10] for labels in infos if labels[4] == CAROL]

    assert len(HOSTILE_NAMES) == sum(name in names for name in HOSTILE_NAMES)
    assert {"999"}.isdisjoint({labels[0] for labels in infos})


def test_no_row_was_odd(page: str) -> None:
    assert {(): 0} == values(page, "slurm_job_unreadable_rows")
    assert {("rows",): 0, ("gres",): 0} == values(page, "slurm_nodes_unreadable")


def test_prometheus_scrapes_the_whole_page_without_a_warning(crowded_lab: SlurmLab, tmp_path: Path) -> None:
    flags = ("--collector.job_info", "--slurm.bin-path", str(crowded_lab.bin_path))
    with serving("cluster", *flags, environment=crowded_lab.environment) as exporter:
        config = f"""
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs: [{{job_name: slurm, static_configs: [{{targets: ["{exporter.addresses[0]}"]}}]}}]
"""
        with run_prometheus(tmp_path / "prometheus", config) as prometheus:
            until(lambda: prometheus.query("slurm_jobs"))
            # A scrape that a busy machine makes late is an error until the next one.
            until(lambda: [("up", "")] == [(target.health, target.last_error) for target in prometheus.targets()])
            dropped = prometheus.query("sum(slurmscope_series_dropped_total)")
        logs = "".join(path.read_text(errors="replace") for path in (tmp_path / "prometheus").rglob("*.log"))
    assert [] == dropped
    warnings = [line for line in logs.splitlines() if "level=warn" in line or "level=error" in line]
    assert [] == [line for line in warnings if "Received SIGTERM" not in line]
