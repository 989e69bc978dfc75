# SPDX-License-Identifier: Apache-2.0
"""``slurmscope migrate check`` prints what a dashboard would lose, and escapes what it prints."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands.executables import write_fake_commands
from tests.fakes.command_line import run_here

OLD = """\
# TYPE go_goroutines gauge
go_goroutines 7
# TYPE slurm_cpus_total gauge
slurm_cpus_total 8
# TYPE slurm_mem_real gauge
slurm_mem_real 1.6e+10
# TYPE slurm_node_count_per_state gauge
slurm_node_count_per_state{state="mix"} 1
slurm_node_count_per_state{state="\x1b[31mred\\nslurm_x"} 1
# TYPE slurm_scredits_used gauge
slurm_scredits_used{account="physics"} 12
"""
OURS = """\
# TYPE slurm_cpus_total gauge
slurm_cpus_total 8
# TYPE slurm_mem_real gauge
slurm_mem_real 16777216000
# TYPE slurm_node_count_per_state gauge
slurm_node_count_per_state{state="mixed"} 2
"""


@pytest.fixture
def pages(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "old.prom").write_text(OLD, encoding="utf-8")
    (tmp_path / "new.prom").write_text(OURS, encoding="utf-8")
    return str(tmp_path / "old.prom"), str(tmp_path / "new.prom")


def test_losses_come_first_and_corrections_after_them(pages: tuple[str, str]) -> None:
    old, new = pages
    done = run_here("migrate", "check", old, "--against", new)

    assert (1, "") == (done.returncode, done.stderr)
    assert [
        f"Compared 4 metrics of {old} with {new}; 1 of other programs were left out.",
        r"lost       slurm_node_count_per_state has no series for 2 values of state: '\u001b[31mred\nslurm_x', 'mix'",
        "lost       slurm_scredits_used is not served",
        "           docs/migrate/slurm-exporter.md: read from scredits, which is not part of Slurm",
        "corrected  slurm_mem_real is 1.049 times the old value (1 MiB is 1,048,576 bytes, not 1,000,000)",
        "           docs/migrate/slurm-exporter.md: binary units; `-slurm.cli-fallback=false` had megabytes",
        "",
        "2 of 4 metrics would lose something.",
    ] == done.stdout.splitlines()


def test_json_has_every_difference(pages: tuple[str, str]) -> None:
    old, new = pages
    done = run_here("migrate", "check", old, "--against", new, "--format", "json")

    result = json.loads(done.stdout)
    assert (1, False, 4, 1) == (done.returncode, result["lossless"], result["compared"], result["left_out"])
    assert {("label_values", True), ("missing", True), ("value", False)} == {
        (found["kind"], found["is_loss"]) for found in result["differences"]
    }
    assert done.stdout.isascii()


def test_equal_pages_lose_nothing(pages: tuple[str, str]) -> None:
    done = run_here("migrate", "check", pages[0], "--against", pages[0])

    assert (0, "Nothing would be lost.") == (done.returncode, done.stdout.splitlines()[-1])


def test_without_our_page_slurm_is_read_here(tmp_path: Path) -> None:
    commands = tmp_path / "slurm"
    write_fake_commands(simulate(Shape(), now=int(time.time())), commands)
    config = tmp_path / "cluster.toml"
    config.write_text(f'[slurm]\nbin-path = "{commands}"\n', encoding="utf-8")
    page = run_here("cluster", "--once", "--config.file", str(config)).stdout
    old = tmp_path / "old.prom"
    # What does not change from one reading to the next.
    kept = ("slurm_cpus_total", "slurm_user_state_total{", "slurm_mem_real", "slurm_lic_total{")
    old.write_text("".join(f"{line}\n" for line in page.splitlines() if line.startswith(kept)), encoding="utf-8")

    done = run_here("migrate", "check", str(old), "--config.file", str(config))

    assert f"Compared 4 metrics of {old} with slurmscope cluster --once; 0 of other" in done.stdout
    assert (0, "Nothing would be lost.") == (done.returncode, done.stdout.splitlines()[-1])


def test_without_our_page_a_node_is_read_here_twice(tmp_path: Path) -> None:
    old = tmp_path / "old.prom"
    old.write_text('jobs_rss{instance="n1",slurm_job="4"} 5\n', encoding="utf-8")

    done = run_here("migrate", "check", str(old))

    assert [
        f"Compared 1 metrics of {old} with slurmscope node --once; 0 of other programs were left out.",
        "The labels job and instance were left out: Prometheus sets them. See docs/migrate/README.md.",
    ] == done.stdout.splitlines()[:2]


def test_metrics_that_slurmscope_renamed_need_no_reading(tmp_path: Path) -> None:
    old = tmp_path / "pushgateway.prom"
    old.write_text('# TYPE RSS untyped\nRSS{instance="n1",job="4711"} 2048\npush_time_seconds 1\n', encoding="utf-8")

    done = run_here("migrate", "check", str(old))

    assert 1 == done.returncode
    assert [
        f"Compared 1 metrics of {old} with slurmscope; 1 of other programs were left out.",
        "lost       RSS is not served",
        "           docs/migrate/profile-plugin.md: is now `slurm_profile_task_resident_bytes`, bytes; it was KB",
    ] == [line for line in done.stdout.splitlines() if "Prometheus sets them" not in line][:3]


def test_page_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    done = run_here("migrate", "check", str(tmp_path / "none"))

    assert (2, "") == (done.returncode, done.stdout)
    assert 1 == len(done.stderr.splitlines())
