# SPDX-License-Identifier: Apache-2.0
"""Beside pages that the original cluster exporter wrote, nothing is lost: same jobs, same Prometheus."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.prometheus import create_blocks, run_prometheus
from slurmscope.cluster import squeue
from slurmscope.slurm import config
from tests.fakes.compared_pages import compare_values
from tests.fakes.recorded_commands import write_recorded_commands

FOLDER = Path(__file__).parents[1] / "fixtures" / "originals" / "cluster-exporter"
STEP_SECONDS, PAST_SECONDS, FUTURE_SECONDS = 15, 300, 1200
CONFIG = b"ClusterName             = lab\nPrivateData             = none\nSLURM_VERSION           = 22.05.8\n"


def make_history(rates: str, now: int) -> Iterator[str]:
    """Yield counters that grow at these rates, before and after now, in OpenMetrics."""
    declared = ""
    for line in sorted(rates.splitlines()):
        series, _, rate = line.rpartition(" ")
        if (name := series.partition("{")[0]) != declared:
            yield f"# TYPE {name.removesuffix('_total')} counter\n"
            declared = name
        for moment in range(now - PAST_SECONDS, now + FUTURE_SECONDS, STEP_SECONDS):
            yield f"{series} {float(rate) * (moment - now + PAST_SECONDS):.6f} {moment}\n"
    yield "# EOF\n"


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """Write a squeue that lists the jobs of the original's."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    rows = []
    for line in (FOLDER / "jobs.txt").read_text().splitlines():
        job, account, user, state = line.split()
        start = "N/A" if state == "PENDING" else "1790000100"
        names = "\x1f".join((account, user, "debug", "normal", state, "None", "(null)"))
        amounts = "\x1f".join(("1", "1", "cpu=1,mem=100M,node=1,billing=1"))
        rows.append(f"{job}\x1f{job}\x1e{names}\x1e{amounts}\x1e1790000000\x1f{start}\n")
    jobs = "".join(rows).encode()
    answers = {("squeue", squeue.ARGUMENTS_WITH_IDS): jobs, ("scontrol", config.ARGUMENTS): CONFIG}
    write_recorded_commands(folder, answers)
    return folder


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slurmscope", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def check(page: str, url: str, commands: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Make our page as the original made its own, with its flags, and compare the two."""
    flags = ("--collector.disable-defaults", "-promserver", url, f"--slurm.bin-path={commands}", "--slurm.timeout=60s")
    ours = tmp_path / "ours.prom"
    ours.write_text(run("cluster", "--once", *flags).stdout)
    return run("migrate", "check", str(FOLDER / page), "--against", str(ours))


@pytest.mark.parametrize("kind", ["with", "without"])
def test_nothing_is_lost(kind: str, commands: Path, tmp_path: Path) -> None:
    rates = (FOLDER / f"rates-{kind}-target.txt").read_text()
    create_blocks(tmp_path / "prometheus", "".join(make_history(rates, int(time.time()))))
    with run_prometheus(tmp_path / "prometheus", "scrape_configs: []\n") as server:
        done = check(f"page-{kind}-target.prom", server.url, commands, tmp_path)

    assert (0, "Nothing would be lost.") == (done.returncode, done.stdout.strip().rpartition("\n")[2]), done
    _, different = compare_values(
        (FOLDER / f"page-{kind}-target.prom").read_text(), (tmp_path / "ours.prom").read_text()
    )
    # As prometheus_client reads them, all rates of bytes are the same; those of operations were rounded.
    rounded = {"cluster_job_metadata_operations", "cluster_proc_metadata_operations"} if kind == "with" else set()
    assert rounded == {name for name in different if not name.startswith(("cluster_exporter_stage_", "process_"))}


def test_nothing_is_lost_without_prometheus(commands: Path, tmp_path: Path) -> None:
    done = check("page-without-prometheus.prom", "http://127.0.0.1:1", commands, tmp_path)

    assert (0, "Nothing would be lost.") == (done.returncode, done.stdout.strip().rpartition("\n")[2]), done
