# SPDX-License-Identifier: Apache-2.0
"""Whole pages, compared with golden files that were read by people: ``make golden`` rewrites them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands.executables import write_fake_commands
from tests.fixtures.cgroup.make import unpack
from tests.processes import run_slurmscope

NOW = 1_794_732_000
# What differs from run to run: our own cost, ages, and what is counted from now on.
VOLATILE = re.compile(
    r"(?:# (?:HELP|TYPE) )?(?:slurmscope_|process_|slurm_\w*scrape|slurm_partition_oldest_pending_age"
    r"|slurm_completions|slurm_job_run|slurm_jobs_ended|slurm_ended)"
)
# Users of the captured machines: pages must not depend on who has an account where the tests run.
PASSWD = """\
root:x:0:0:root:/root:/bin/bash
labalice:x:1001:1001::/home/labalice:/bin/sh
guest:x:4242:4242::/home/guest:/bin/sh
"""

CheckGolden = Callable[[str, str], None]


def stable(page: str) -> str:
    return "".join(line for line in page.splitlines(keepends=True) if not VOLATILE.match(line))


def test_cluster_page_of_a_simulated_cluster(tmp_path: Path, check_golden: CheckGolden) -> None:
    shape = Shape(jobs=60, nodes=8, users=5, accounts=3, partitions=2, gpus=8)
    write_fake_commands(simulate(shape, now=NOW), tmp_path)

    done = run_slurmscope("cluster", "--once", "--collector.job_info", "--slurm.bin-path", str(tmp_path))

    assert 0 == done.returncode, done.stderr
    check_golden("cluster.prom", stable(done.stdout))


def as_hybrid(cgroups: Path) -> None:
    (cgroups / "unified").mkdir()
    (cgroups / "unified" / "cgroup.controllers").write_text("\n")


def in_other_slice(cgroups: Path) -> None:
    (cgroups / "system.slice").rename(cgroups / "hpc.slice")


def with_sluid(cgroups: Path) -> None:
    for job in list(cgroups.rglob("job_1")):
        job.rename(job.with_name("sEKNKTV3WPV500"))


def without_memory(cgroups: Path) -> None:
    for file in list(cgroups.rglob("memory.*")):
        if file.is_file():
            file.unlink()


def with_unreadable_cpu(cgroups: Path) -> None:
    for file in list(cgroups.rglob("cpu.stat")):
        if "job_" in str(file):
            file.unlink()
            file.mkdir()


def with_inherited_limit(cgroups: Path) -> None:
    for file in list(cgroups.rglob("job_1/memory.max")):
        file.write_text("max\n")
        (file.parent.parent / "memory.max").write_text("1073741824\n")


def unchanged(cgroups: Path) -> None:
    """Leave the machine as it was captured: two slurmd, each with the same job."""


@pytest.mark.parametrize(
    ("name", "capture", "change"),
    [
        ("node-v1", "v1-slurm-22.05", unchanged),
        ("node-v2-two-slurmd", "v2-slurm-22.05", unchanged),
        ("node-hybrid", "v1-slurm-22.05", as_hybrid),
        ("node-v2-other-slice", "v2-slurm-22.05", in_other_slice),
        ("node-v2-sluid", "v2-slurm-22.05", with_sluid),
        ("node-v2-inherited-limit", "v2-slurm-22.05", with_inherited_limit),
        ("node-v2-without-memory", "v2-slurm-22.05", without_memory),
        ("node-v2-unreadable-cpu", "v2-slurm-22.05", with_unreadable_cpu),
    ],
)
def test_node_page_of_a_captured_machine(
    tmp_path: Path, check_golden: CheckGolden, name: str, capture: str, change: Callable[[Path], None]
) -> None:
    unpack(capture, tmp_path)
    change(tmp_path / "sys" / "fs" / "cgroup")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text(PASSWD)

    done = run_slurmscope("node", "--once", "--collector.job_use.steps", "--path.rootfs", str(tmp_path))

    assert 0 == done.returncode, done.stderr
    check_golden(f"{name}.prom", stable(done.stdout))
    shutil.rmtree(tmp_path)
