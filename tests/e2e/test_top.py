# SPDX-License-Identifier: Apache-2.0
"""``slurmscope top`` shows of a real job what the kernel counts of its process."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import psutil
import pytest

from lab import ALICE, SlurmLab
from lab.cgroups import has_cgroup_v1
from tests.e2e.node_agent import Agent, running_agent
from tests.processes import run_slurmscope, until

pytestmark = pytest.mark.skipif(not has_cgroup_v1(), reason="this machine has no cgroup v1 controllers")

MIB = 1 << 20
PROGRAM = """
import time
held = b"x" * (150 * 1024 * 1024)
end = time.monotonic() + 300
while time.monotonic() < end:
    pass
"""


@pytest.fixture
def agent(clean_lab: SlurmLab) -> Iterator[Agent]:
    with running_agent(clean_lab) as agent:
        yield agent


def _process(script: str) -> psutil.Process:
    return next(process for process in psutil.process_iter(["cmdline"]) if script in (process.info["cmdline"] or []))


def test_row_of_a_job_has_the_numbers_of_its_process(clean_lab: SlurmLab, agent: Agent) -> None:
    lab = clean_lab
    folder = lab.layout.users / ALICE
    name = f"top-{time.monotonic_ns()}.py"
    (folder / name).write_text(PROGRAM, encoding="utf-8")
    job = lab.submit(ALICE, "--mem=400M", "--time=10", "--job-name=hold", script=f"exec python3 {name}")
    try:
        lab.wait_state(job, {"RUNNING"})
        until(lambda: _holds(name))
        process = _process(name)
        used, began = sum(process.cpu_times()[:2]), time.monotonic()
        place = agent.exporter.addresses[0]
        flags = ("--once", "--interval", "4", "--slurm.bin-path", str(lab.bin_path), "--slurm.timeout", "60s")
        done = run_slurmscope("top", "--node", place, *flags, environment=lab.environment)
        cores = (sum(process.cpu_times()[:2]) - used) / (time.monotonic() - began)
    finally:
        lab.cancel_all()

    assert (0, "") == (done.returncode, done.stderr)
    (row,) = (line for line in done.stdout.splitlines() if line.split()[:1] == [str(job)])
    found = re.fullmatch(
        r" *\d+ labalice +hold +(?P<used>[\d.]+)/1 +[\d.]+ % +(?P<memory>[\d.]+) MiB +(?P<limit>\d+) MiB .*",
        row,
    )
    assert found, done.stdout
    # Other programs compete for the cores, not evenly over time.
    assert cores / 2 < float(found["used"]) < max(2 * cores, 0.2)
    assert 400 == int(found["limit"])
    assert 150 <= float(found["memory"]) < 200


def _holds(script: str) -> bool:
    try:
        return _process(script).memory_info().rss > 150 * MIB
    except StopIteration:
        return False
