# SPDX-License-Identifier: Apache-2.0
"""A file system that hangs hangs nobody who only reads the links of the kernel to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import ALICE, BOB, SlurmLab
from tests.e2e.node_agent import Agent, running_agent
from tests.fakes.hanging_mount import mounted
from tests.processes import until

READ = """
from pathlib import Path
from slurmscope.node.procfs.job_processes import JobProcesses
from slurmscope.node.procfs.reader import ProcessReader
use = JobProcesses(ProcessReader(Path("/proc"))).read([{pid}])
print(use.distinct_files)
"""


def test_path_of_an_open_file_is_only_read_from_its_link(tmp_path: Path) -> None:
    held, log = tmp_path / "held-by-the-job", tmp_path / "calls"
    with held.open("w"):
        argv = ["strace", "-f", "-s", "4096", "-e", "trace=%file", "-o", str(log)]
        argv += [sys.executable, "-c", READ.format(pid=os.getpid())]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)

    assert (0, "") == (done.returncode, done.stderr)
    assert int(done.stdout) >= 1
    named = [line for line in log.read_text("utf-8", "replace").splitlines() if held.name in line]
    assert named
    assert [] == [line for line in named if "readlink" not in line.partition("(")[0]]


@pytest.mark.parametrize("flags", [(), ("--path.cgroup", "no-cgroups")], ids=["cgroups", "processes"])
def test_process_that_hangs_in_the_kernel_leaves_all_other_numbers_fresh(
    clean_lab: SlurmLab, flags: tuple[str, ...]
) -> None:
    folder = clean_lab.folder / "work" / "hanging"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    (folder / "no-cgroups").mkdir(exist_ok=True)
    flags = tuple(str(folder / flag) if flag == "no-cgroups" else flag for flag in flags)
    (mounting := folder / "mount").mkdir(exist_ok=True)
    healthy = clean_lab.submit(BOB, script="while head -c 100000 /dev/zero | cat > /dev/null; do sleep 0.05; done")
    with (
        mounted(mounting) as mount,
        running_agent(clean_lab, "--collector.process_groups", *flags) as agent,
    ):
        if mount is None:
            pytest.skip("this machine cannot mount FUSE")
        hold = f"import os; os.open('{mount.file}', os.O_RDONLY); os.execv('/bin/sleep', ['sleep', '600'])"
        script = f'until [ -e {folder}/go ]; do sleep 0.1; done; python3 -c "{hold}"'
        hostile = clean_lab.submit(ALICE, script=script)
        until(lambda: written(agent, healthy) and written(agent, hostile))
        (folder / "go").touch()
        mount.wait_hanging()
        before = root_seconds(agent), written(agent, healthy)
        until(lambda: root_seconds(agent) > before[0] and written(agent, healthy) > before[1])
        again = written(agent, healthy)
        until(lambda: written(agent, healthy) > again)
        errors = agent.read()["slurmscope_node_read_errors_total"]
        mount.go_on()
        (folder / "go").unlink()
        until(lambda: agent.values("jobs_processes", hostile) and written(agent, hostile))

    assert errors["process_hang",] >= 1


def root_seconds(agent: Agent) -> float:
    return agent.read()["login_user_cpu_seconds_total"]["root",]


def written(agent: Agent, job: int) -> float:
    return sum(agent.values("jobs_io_write_bytes_total", job).values())
