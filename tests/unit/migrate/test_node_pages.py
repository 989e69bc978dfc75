# SPDX-License-Identifier: Apache-2.0
"""Beside pages that the original tools for nodes wrote about one machine, nothing is lost without a reason."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from slurmscope.cluster import squeue
from slurmscope.slurm import config
from tests.fakes.command_line import run_here
from tests.fakes.compared_pages import compare_values
from tests.fakes.original_machine import write_machine
from tests.fakes.recorded_commands import write_recorded_commands

FOLDER = Path(__file__).parents[2] / "fixtures" / "originals"
CONFIG = b"ClusterName             = lab\nPrivateData             = none\nSLURM_VERSION           = 22.05.8\n"


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Write the machine of the originals, and a squeue that lists the jobs that their sacct did, with whole names."""
    write_machine(tmp_path / "machine")
    commands = tmp_path / "slurm"
    commands.mkdir()
    rows = [
        f"physics\x1f{user}\x1fgpus\x1fnormal\x1fRUNNING\x1fNone\x1f(null)\x1e1\x1f{cpus}\x1fcpu={cpus},node=1\x1e1\x1f2\n"
        for user, cpus in (("alice", 8), ("maximiliane.oberhuber", 4), ("alice", 2))
    ]
    answers = {("squeue", squeue.ARGUMENTS): "".join(rows).encode(), ("scontrol", config.ARGUMENTS): CONFIG}
    write_recorded_commands(commands, answers)
    file = tmp_path / "slurmscope.toml"
    file.write_text(
        f'[path]\nrootfs = "{tmp_path}/machine"\n[collector.process_groups]\nenabled = true\n'
        f'[slurm]\nbin-path = "{commands}"\ntimeout = "60s"\n'
    )
    return file


def read_page(tool: str) -> str:
    """Return the page of an original; processes belong to whoever runs the test."""
    owner = pwd.getpwuid(os.getuid()).pw_name
    return (FOLDER / tool / "page.prom").read_text().replace('user="root"', f'user="{owner}"')


def check(tool: str, settings: Path) -> dict[str, Any]:
    page = settings.with_name("old.prom")
    page.write_text(read_page(tool))
    done = run_here("migrate", "check", str(page), "--config.file", str(settings), "--format", "json")
    result: dict[str, Any] = json.loads(done.stdout)
    assert (0, []) == (done.returncode, [found for found in result["differences"] if found["is_loss"]])
    return result


def test_nothing_of_the_jobs_exporter_is_lost(settings: Path) -> None:
    result = check("jobs-exporter", settings)

    assert {
        "jobs_spawned_processes", "jobs_opened_files", "jobs_uses_scratch", "jobs_read_mb", "jobs_write_mb",
        "jobs_write_count", "jobs_rss",
    } == {found["metric"] for found in result["differences"]}  # fmt: skip
    assert 15 == result["compared"]


def test_nothing_of_the_pseudo_exporter_is_lost(settings: Path) -> None:
    result = check("pseudo-exporter", settings)

    assert {"cpu_usage", "ram_usage", "ncpus"} == {found["metric"] for found in result["differences"]}
    assert 3 == result["compared"]


def test_only_documented_values_of_the_jobs_exporter_differ(settings: Path) -> None:
    ours = run_here("node", "--once", "--config.file", str(settings)).stdout
    equal, different = compare_values(read_page("jobs-exporter"), ours, without={"instance"})

    assert {
        # Over a tenth of a second, which one page has not.
        "jobs_cpu_percent", "jobs_cpu_percent_per_core",
        # Every second process was skipped, or its first task alone counted.
        "jobs_opened_files", "jobs_read_mb", "jobs_write_mb", "jobs_write_count", "jobs_rss", "jobs_spawned_processes",
        "jobs_uses_scratch",
    } == different  # fmt: skip
    # User, system and total time of two jobs, on three cores; threads of two programs, reads; jobs of one process.
    assert equal >= 13


def test_values_of_the_pseudo_exporter_are_the_same(settings: Path) -> None:
    ours = run_here("node", "--once", "--config.file", str(settings)).stdout

    # Cores by user are on the page of the other exporter.
    assert (8, {"ncpus"}) == compare_values(read_page("pseudo-exporter"), ours)
