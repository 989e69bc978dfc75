# SPDX-License-Identifier: Apache-2.0
"""A job that sends over Ethernet while its fast network does nothing is named; one that uses it is not.

Two nodes of the lab get a network of their own, with a real link. This machine has no InfiniBand: the counters of the
adapters are files below a movable root.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import SlurmLab
from lab.cgroups import CGROUP_ROOT
from lab.prometheus import run_prometheus
from lab.requirements import find_program
from tests.e2e import traffic
from tests.processes import Exporter, run_slurmscope, serving, until
from tests.requirements import refuse

ADDRESSES = ("192.0.2.1", "192.0.2.2")
RATE = 400e6
WORDS = "sys/class/infiniband/mlx5_0/ports/1/counters"
WORD_BYTES = 4
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: nodes
    static_configs: [{{targets: {addresses}}}]
"""
# Shows an agent one node of this machine: its cgroups, the network of its own, and an InfiniBand adapter.
ONE_NODE = """
root=$1 node=$2 pid=$3
shift 3
mount --rbind /proc "$root/proc"
mount --bind "/proc/$pid/net" "$root/proc/1/net"
for folder in "$root"/sys/fs/cgroup/*; do
    mount --bind "/sys/fs/cgroup/${folder##*/}" "$folder"
    for other in "$folder"/slurm_*; do
        test "$other" = "$folder/slurm_$node" || mount -t tmpfs none "$other"
    done
done
exec "$@"
"""


@contextmanager
def linked_hosts() -> Iterator[tuple[int, int]]:
    """Give a process in each of two networks with a link ``eth0`` between them."""
    with ExitStack() as stack:
        pids = []
        for _ in ADDRESSES:
            holder = stack.enter_context(subprocess.Popen(["unshare", "--net", "sleep", "infinity"]))
            stack.callback(holder.kill)
            pids.append(holder.pid)
        own = Path("/proc/self/ns/net").stat().st_ino
        until(lambda: all(Path(f"/proc/{pid}/ns/net").stat().st_ino != own for pid in pids))
        near, far = pids
        ip("link", "add", "eth0", "netns", str(near), "type", "veth", "peer", "name", "eth0", "netns", str(far))
        for pid, address in zip(pids, ADDRESSES, strict=True):
            ip("address", "add", f"{address}/30", "dev", "eth0", pid=pid)
            ip("link", "set", "eth0", "up", pid=pid)
        yield near, far


def ip(*words: str, pid: int | None = None) -> None:
    prefix = () if pid is None else ("nsenter", f"--target={pid}", "--net")
    subprocess.run([*prefix, find_program("ip", "iproute2"), *words], check=True, timeout=60)


def make_root(root: Path, node: str) -> Path:
    """Make what an agent sees besides processes and cgroups: an Ethernet link that is hardware, and an adapter."""
    for name in ("proc", WORDS, "sys/class/net/eth0/device"):
        (root / name).mkdir(parents=True)
    (root / "sys/class/net/eth0/type").write_text("1\n")
    (root / WORDS).with_name("link_layer").write_text("InfiniBand\n")
    count(root, 0)
    for hierarchy in CGROUP_ROOT.iterdir():
        if (hierarchy / f"slurm_{node}").is_dir():
            (root / "sys/fs/cgroup" / hierarchy.name).mkdir(parents=True)
    if not (root / "sys/fs/cgroup/cpuacct").exists():
        refuse("there are no hierarchies of cgroup v1")
    return root


def count(root: Path, words: int) -> None:
    """Let the adapter have sent and received so much."""
    for name in ("port_rcv_data", "port_xmit_data"):
        new = root / WORDS / f".{name}"
        new.write_text(f"{words}\n")
        new.rename(root / WORDS / name)


def start(lab: SlurmLab, nodes: Sequence[str], command: str) -> int:
    answer = lab.run(
        "sbatch", "--parsable", f"--nodelist={','.join(nodes)}", "--nodes=2", "--ntasks-per-node=1", "--mem=200M",
        "--exclusive", "--output=/dev/null", "--wrap", f"exec srun {command}",
    )  # fmt: skip
    job = int(answer.strip().partition(";")[0])
    lab.wait_state(job, {"RUNNING"})
    return job


@contextmanager
def agents_of(folder: Path, nodes: Sequence[str], pids: Sequence[int]) -> Iterator[list[tuple[Path, Exporter]]]:
    """Run an agent for each node."""
    with ExitStack() as stack:
        agents = []
        for node, pid in zip(nodes, pids, strict=True):
            root = make_root(folder / node, node)
            prefix = ("unshare", "--mount", "sh", "-euc", ONE_NODE, "sh", str(root), node, str(pid))
            agent = stack.enter_context(serving("node", f"--path.rootfs={root}", prefix=prefix))
            agents.append((root, agent))
        yield agents


@pytest.fixture
def networks() -> Iterator[tuple[int, int]]:
    with linked_hosts() as pids:
        yield pids


def find(lab: SlurmLab, url: str, job: int) -> dict[str, Any]:
    """Return the report of a running job."""
    flags = ("--format", "json", "--prometheus.url", url, "--prometheus.scrape-interval", "1s")
    environment = {**lab.environment, "SLURMSCOPE_RULES_MIN_RUN_SECONDS": "5s"}
    done = run_slurmscope("report", str(job), *flags, environment=environment)
    assert 0 == done.returncode, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def findings(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for finding in report["findings"] if finding["rule"] == "network_fallback"]


def test_job_that_falls_back_to_ethernet_is_named(
    slurm_lab: SlurmLab, networks: tuple[int, int], tmp_path: Path
) -> None:
    lab = slurm_lab
    lab.reset()
    nodes = lab.nodes[:2]
    enter = "".join(f"{node}) pid={pid};; " for node, pid in zip(nodes, networks, strict=True))
    job = start(
        lab, nodes,
        f"sh -c 'case $SLURMD_NODENAME in {enter}esac; "
        f"exec nsenter --target=$pid --net python3 {traffic.__file__} {ADDRESSES[1]} {RATE}'",
    )  # fmt: skip
    with (
        agents_of(tmp_path, nodes, networks) as agents,
        run_prometheus(
            tmp_path / "prometheus", CONFIG.format(addresses=json.dumps([agent.addresses[0] for _, agent in agents]))
        ) as prometheus,
    ):
        found: list[dict[str, Any]] = []

        def is_named() -> bool:
            found[:] = findings(find(lab, prometheus.url, job))
            return bool(found)

        until(is_named, 180)
        [finding] = found

    assert "over Ethernet" in finding["explanation"]
    assert 100e6 < finding["numbers"]["ethernet_bytes_per_second"] < RATE
    assert 0 == finding["numbers"]["fast_bytes"]
    lab.run("scancel", str(job))


def test_job_that_uses_its_fast_network_gives_no_finding(
    slurm_lab: SlurmLab, networks: tuple[int, int], tmp_path: Path
) -> None:
    lab = slurm_lab
    lab.reset()
    nodes = lab.nodes[:2]
    job = start(lab, nodes, "sleep 600")
    with (
        agents_of(tmp_path, nodes, networks) as agents,
        run_prometheus(
            tmp_path / "prometheus", CONFIG.format(addresses=json.dumps([agent.addresses[0] for _, agent in agents]))
        ) as prometheus,
    ):
        words = 0

        def has_sent() -> bool:
            nonlocal words
            words += int(RATE / WORD_BYTES)
            for root, _ in agents:
                count(root, words)
            time.sleep(1.0)
            sent = prometheus.query('sum(jobs_network_transmit_bytes_total{transport="infiniband"})')
            return bool(sent) and sent[0].value > 10 * RATE

        until(has_sent, 180)
        report = find(lab, prometheus.url, job)

    assert [] == findings(report)
    lab.run("scancel", str(job))
