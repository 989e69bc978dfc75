# SPDX-License-Identifier: Apache-2.0
"""Traced tasks of a real job are in its report, with the CPU time that the kernel and Slurm counted."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

import slurmscope
from lab import ALICE, SlurmLab
from lab.prometheus import run_prometheus
from slurmscope.jobs.charts import AGENTS, TRACED
from tests.e2e import traced_task
from tests.processes import run_slurmscope, serving, until

SCRAPES = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs: [{{job_name: nodes, static_configs: [{{targets: ["{address}"]}}]}}]
"""
BUSY_SECONDS = 4
KERNEL_TOLERANCE_SECONDS = 0.5
"""Start and end of the interpreter, which the task's own line does not contain."""


@dataclass(frozen=True, kw_only=True)
class TracedJob:
    """Hold a job of four tasks that has ended: one line of each task, what Slurm counted, and its report."""

    tasks: dict[tuple[str, str, str], float]
    """CPU seconds by node, rank and PID, as each task read them from the kernel."""
    written: dict[str, float]
    """Bytes that each rank sent to storage, as the kernel counted them."""
    total_cpu_seconds: float
    document: dict[str, Any]
    text: str

    @property
    def processes(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        """Return the traced processes of the report by node, rank and PID."""
        found = self.document["summary"]["traces"]["processes"]
        return {(process["node"], process["rank"], process["pid"]): process for process in found}


@pytest.fixture(scope="module")
def traced_job(slurm_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracedJob]:
    """Run four tasks on two nodes under slurmscope run, through the socket of the agent."""
    lab = slurm_lab
    if not lab.layout.uses_cgroups:
        pytest.skip("without cgroups nothing says on which of the nodes of this machine a process is")
    lab.reset()
    folder = lab.folder / "work" / "traced"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    shutil.copy(traced_task.__file__, folder / "task.py")
    # Not from this checkout, which may be closed to the users of the lab.
    for package in (slurmscope, click):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, folder / "lib" / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    with tempfile.TemporaryDirectory(prefix="t") as short:
        Path(short).chmod(0o755)
        socket = f"{short}/trace.sock"
        task = f"python3 {folder}/task.py {folder}/lines {BUSY_SECONDS}"
        traced = f"python3 -m slurmscope run --quiet --sample-rate 1 --trace.socket {socket} -- {task}"
        with (
            serving("node", "--trace.socket", socket) as agent,
            run_prometheus(
                tmp_path_factory.mktemp("prometheus"), SCRAPES.format(address=agent.addresses[0])
            ) as prometheus,
        ):
            job = lab.submit(
                ALICE, "-N2", "--ntasks-per-node=2",
                script=f"export PYTHONPATH={folder}/lib\nsrun {traced}\n",
            )  # fmt: skip
            lab.wait_state(job, {"COMPLETED"}, timeout=240)
            until(lambda: prometheus.query(f'jobs_info{{slurm_job="{job}",has_ended="true"}}'))
            flags = ("--prometheus.url", prometheus.url, "--prometheus.scrape-interval", "1s")
            yield read_job(lab, job, folder / "lines", flags)


def read_job(lab: SlurmLab, job: int, lines: Path, flags: tuple[str, ...]) -> TracedJob:
    def sacct(field: str, step: str = "") -> str:
        return lab.run(
            "sacct", "-n", "-P", "-X" if not step else "--noheader", "-j", f"{job}{step}", f"--format={field}"
        )

    until(lambda: sacct("State").strip() == "COMPLETED")

    def report(*arguments: str) -> str:
        done = run_slurmscope("report", str(job), *arguments, *flags, environment=lab.environment)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout

    rows = [line.split() for line in lines.read_text("utf-8").splitlines()]
    return TracedJob(
        tasks={(node, rank, pid): float(seconds) for node, rank, pid, seconds, _ in rows},
        written={rank: float(written) for _, rank, _, _, written in rows},
        total_cpu_seconds=_seconds(sacct("TotalCPU", ".0").split()[0]),
        document=json.loads(report("--format", "json")),
        text=report("--full"),
    )


def _seconds(text: str) -> float:
    """Parse [hours:]minutes:seconds of sacct."""
    total = 0.0
    for part in text.split(":"):
        total = 60 * total + float(part)
    return total


def test_each_task_is_a_process_with_the_cpu_time_of_the_kernel(traced_job: TracedJob) -> None:
    processes = traced_job.processes
    assert 4 == len(traced_job.tasks)
    assert {node for node, _, _ in traced_job.tasks} == {process["node"] for process in processes.values()}
    assert traced_job.tasks == pytest.approx(
        {key: process["cpu_seconds"] for key, process in processes.items()}, abs=KERNEL_TOLERANCE_SECONDS
    )
    assert {("python3", "0")} == {(process["command"], process["step"]) for process in processes.values()}


def test_sum_is_the_cpu_time_that_slurm_counted(traced_job: TracedJob) -> None:
    traced = sum(process["cpu_seconds"] for process in traced_job.processes.values())
    # Slurm also counts the four processes that trace.
    assert 0.7 * traced_job.total_cpu_seconds <= traced <= 1.02 * traced_job.total_cpu_seconds
    assert traced == pytest.approx(traced_job.document["summary"]["cpu"]["time"]["used"], rel=0.3)
    assert [] == [
        found for found in traced_job.document["summary"]["traces"]["differences"] if found["quantity"] == "cpu_seconds"
    ]


def test_memory_and_written_bytes_are_those_of_the_tasks(traced_job: TracedJob) -> None:
    by_rank = {rank: process for (_, rank, _), process in traced_job.processes.items()}
    held = traced_task.HELD_BYTES
    assert held <= by_rank["0"]["peak_memory_bytes"] <= held + (40 << 20)
    assert all(by_rank[rank]["peak_memory_bytes"] < held for rank in "123")
    written = {rank: process["write_bytes"] for rank, process in by_rank.items()}
    # The line that a task writes in the end comes after its own reading.
    assert traced_job.written == pytest.approx(written, abs=1 << 16)
    assert {1} == {process["peak_threads"] for process in by_rank.values()}


def test_report_shows_processes_and_their_curves(traced_job: TracedJob) -> None:
    assert "Traced processes" in traced_job.text
    charts = {chart["name"]: [line["label"] for line in chart["lines"]] for chart in traced_job.document["charts"]}
    names = {f"rank {rank}: python3 on {node}" for node, rank, _ in traced_job.tasks}
    for name in ("traced_cpu", "traced_memory", "traced_threads", "traced_write"):
        assert names <= set(charts[name])
    assert [TRACED, AGENTS] == charts["traced_cpu_node"]
