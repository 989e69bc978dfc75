# SPDX-License-Identifier: Apache-2.0
"""Attack: a job with many of everything, which comes and goes, beside another user's job on a node with the agent."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from lab import ALICE, BOB, SlurmLab
from tests.e2e.node_agent import Agent, running_agent
from tests.processes import until

UNIT = Path(__file__).parents[2] / "deploy" / "slurmscope-node.service"
SCRAPES = 12
SCRAPE_TIMEOUT_SECONDS = 10
HOSTILE = """
import ctypes, os, resource, threading, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
os.chdir(FOLDER)
name = "\\U0001f600" + "x" * 200
while len(os.getcwdb()) < 3500:
    os.makedirs(name, exist_ok=True)
    os.chdir(name)
files = [open("file%d" % number, "w") for number in range(1000)]
held = [os.dup(files[0].fileno()) for _ in range(2000)]
rename = ctypes.CDLL(None).prctl
for _ in range(40):
    if os.fork() == 0:
        rename(15, ("\\U0001f600%d" % os.getpid()).encode(), 0, 0, 0)
        for _ in range(10):
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        time.sleep(3600)
open(READY, "w").close()
while True:
    if os.fork() == 0:
        rename(15, os.urandom(8).hex().encode(), 0, 0, 0)
        files[0].write("x" * 100_000)
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("has_cgroups", [True, False], ids=["cgroups", "processes"])
def test_neighbour_of_a_hostile_job_stays_fresh_and_the_agent_small(clean_lab: SlurmLab, has_cgroups: bool) -> None:
    folder = clean_lab.folder / "work" / f"hostile-{has_cgroups}"
    (folder / "no-cgroups").mkdir(parents=True)
    folder.chmod(0o777)
    attack = HOSTILE.replace("FOLDER", repr(str(folder))).replace("READY", repr(str(folder / "ready")))
    flags = () if has_cgroups else ("--path.cgroup", str(folder / "no-cgroups"))
    healthy = clean_lab.submit(BOB, script="while head -c 100000 /dev/zero | cat > /dev/null; do sleep 0.05; done")
    with running_agent(clean_lab, "--collector.process_groups", "--collector.gpus", *flags) as agent:
        until(lambda: written(agent, healthy))
        hostile = clean_lab.submit(ALICE, "--mem=0", script=f"exec python3 - <<'END'\n{attack}\nEND")
        until((folder / "ready").exists)
        amounts, seconds = [], []
        for _ in range(SCRAPES):
            time.sleep(0.5)
            began = time.monotonic()
            amounts.append(written(agent, healthy))
            seconds.append(time.monotonic() - began)
        assert agent.values("jobs_info", hostile)
        peak_bytes = peak_of(agent.exporter.process.pid)

    assert max(seconds) < SCRAPE_TIMEOUT_SECONDS
    # A scrape may show what the one before it has read, but nothing older.
    assert all(now > two_before for two_before, now in zip(amounts, amounts[2:], strict=False))
    assert peak_bytes < memory_max()


def written(agent: Agent, job: int) -> float:
    return sum(agent.values("jobs_io_write_bytes_total", job).values())


def peak_of(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def memory_max() -> int:
    found = re.search(r"(?m)^MemoryMax=(\d+)M$", UNIT.read_text())
    assert found
    return int(found[1]) << 20
