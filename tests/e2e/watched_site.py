# SPDX-License-Identifier: Apache-2.0
"""Watch a whole site with a real Prometheus: a busy cluster, its jobs, a machine with GPUs, Lustre, the portal, rules.

Jobs, exporter, agents and portal are real. GPUs, energy meter, network, NFS and Lustre are files and pages that these
machines do not have.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from lab import ALICE, SlurmLab
from lab.ports import free_port
from lab.prometheus import Server, run_prometheus
from lab.users import find_user
from tests.e2e.busy_lab import busy_exporter, busy_lab, see_jobs_start_and_end
from tests.fakes.certificates import make_authority, make_identity
from tests.fakes.gpu_node import make_cgroups, with_driver
from tests.fakes.lustre_exporter import READ, STATS, WRITE, FakeLustreExporter, serve_page
from tests.fakes.nvml.library import GIBIBYTE, FakeNvml, build_library
from tests.processes import Exporter, as_user, run_slurmscope, running, serving, until

ROOT = Path(__file__).parents[2]
MOUNTSTATS = ROOT / "tests/fixtures/procfs/mountstats/nfs3-linux-3.10"
GPU_NODE, GPU_JOB = "g1", 900_001
# The series of the cluster have no label cluster; one agent is of another cluster.
CONFIG = """
global: {{scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 2s}}
rule_files: ["{folder}/rules/*.yml"]
scrape_configs:
  - job_name: slurm
    static_configs: [{{targets: ["{exporter}"]}}]
  - job_name: slurm-nodes
    static_configs: [{{targets: ["{agent}"], labels: {{instance: "{node}"}}}}]
  - job_name: gpu-nodes
    scheme: https
    tls_config: {{insecure_skip_verify: true}}
    static_configs: [{{targets: ["{gpu_agent}"], labels: {{instance: g1}}}}]
    relabel_configs: [{{target_label: job, replacement: slurm-nodes}}]
  - job_name: agents-that-are-down
    static_configs:
      - {{targets: ["127.0.0.1:9"], labels: {{instance: g2}}}}
      - {{targets: ["127.0.0.1:9"], labels: {{instance: g3, cluster: other}}}}
    relabel_configs: [{{target_label: job, replacement: slurm-nodes}}]
  - job_name: lustre
    static_configs: [{{targets: ["{lustre}"]}}]
  - job_name: slurmscope-portal
    authorization: {{credentials_file: "{folder}/portal.token"}}
    static_configs: [{{targets: ["{portal}"]}}]
"""
SNMP = "Tcp: OutSegs RetransSegs\nTcp: 4000 3\n"
DEVICES = "Inter-| Receive\n face |bytes\n  eth0: 5000 10 1 2 0 0 0 0 7000 20 3 4 0 0 0 0\n"
# Cores that are at work now and then, without a load that other tests would feel.
BUSY = "exec nice -n 19 timeout 600 sh -c 'while sleep 0.2; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A Prometheus that has everything, and a job that the lab's users run."""

    prometheus: Server
    exporter: str
    job: int


@contextmanager
def watch_site(lab: SlurmLab, folder: Path) -> Iterator[Site]:
    """Run everything until the block ends."""
    with ExitStack() as stack:
        stack.enter_context(busy_lab(lab))
        job = lab.submit(ALICE, "--partition=debug", script=BUSY)
        lab.wait_state(job, {"RUNNING"})
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        lustre = ("--collector.lustre", "--collector.lustre.range=20s", "--prometheus.url", url)
        exporter = stack.enter_context(
            busy_exporter(lab, "--collector.events", "--collector.nodes.partition-map", *lustre)
        )
        agent = stack.enter_context(serving("node", "--node.interval=0s", f"--node.name={lab.nodes[0]}"))
        gpu_agent = stack.enter_context(_gpu_node(folder))
        portal = stack.enter_context(_portal(lab, folder, url))
        config = CONFIG.format(
            folder=folder,
            node=lab.nodes[0],
            exporter=exporter.addresses[0],
            agent=agent.addresses[0],
            gpu_agent=gpu_agent.addresses[0],
            portal=urlsplit(portal.addresses[0]).netloc,
            lustre=stack.enter_context(_lustre(job)),
        )
        _copy_rules(folder)
        prometheus = stack.enter_context(run_prometheus(folder / "prometheus", config, port=port))
        see_jobs_start_and_end(lab, prometheus, further_jobs=1)
        yield Site(prometheus=prometheus, exporter=exporter.addresses[0], job=job)


def _copy_rules(folder: Path) -> None:
    """Copy the rules; those that record once a minute do so all the time."""
    (folder / "rules").mkdir()
    for file in (ROOT / "deploy/rules").glob("*.yml"):
        text = file.read_text(encoding="utf-8").replace("interval: 1m", "interval: 2s")
        (folder / "rules" / file.name).write_text(text, encoding="utf-8")


@contextmanager
def _lustre(job: int) -> Iterator[str]:
    lustre = FakeLustreExporter()
    for text in (str(job), "cp.0", "unknown"):
        lustre.grow(READ, text, "work-OST0000", 60e6)
        lustre.grow(WRITE, text, "work-OST0000", 40e6)
        lustre.grow(STATS, text, "work-MDT0000", 300.0, "open")
    with serve_page(lustre) as address:
        yield address


@contextmanager
def _portal(lab: SlurmLab, folder: Path, prometheus_url: str) -> Iterator[Exporter]:
    """Run a portal that archives the jobs of the lab; Prometheus signs in with a token."""
    archive = ("--archive.url", str(folder / "archive.db"))
    flags = (
        *("--portal.listen-address", "127.0.0.1:0", "--portal.mode", "proxy", "--portal.proxy-peers", "192.0.2.1"),
        *("--slurm.bin-path", str(lab.bin_path), "--prometheus.url", prometheus_url),
    )
    with running("portal", *flags, *archive, environment=lab.environment, wait_for="msg=listening") as portal:
        until((folder / "archive.db").exists)
        done = run_slurmscope("token", "create", "--name", "prometheus", "--role", "support", *archive)
        assert 0 == done.returncode, done.stderr
        (folder / "portal.token").write_text(done.stdout, encoding="utf-8")
        yield portal


@contextmanager
def _gpu_node(folder: Path) -> Iterator[Exporter]:
    """Run an agent with TLS on a simulated machine: its job holds one of eight GPUs, several of which have problems."""
    driver = FakeNvml(library=build_library(folder), folder=folder)
    alice = find_user(ALICE)
    with subprocess.Popen([*as_user(alice.uid, alice.gid), "sleep", "600"]) as process:
        try:
            driver.play("eight")
            driver.take_back("process")
            driver.say(f"process 1 {process.pid} {GIBIBYTE}")
            # Bandwidth of memory and PCIe; nanoseconds of a power cap; an error.
            driver.say("gpm 1 10 30", "gpm 1 20 100", "gpm 1 21 100", "field 1 74 3000000000", "xid 1 79")
            # Uncorrected errors, rows that could not be replaced, a reset that the driver asks for; a lost GPU.
            driver.say("field 2 4 2", "field 2 144 1", "field 2 145 1", "field 2 230 1", "code nvmlDeviceGetUUID@7 15")
            root = _machine(folder / "machine", process.pid)
            identity = make_identity(folder, "agent", make_authority(folder, "authority"), "DNS:g1")
            web = folder / "web.yml"
            web.write_text(f"tls_server_config: {{cert_file: {identity.cert}, key_file: {identity.key}}}\n")
            flags = (
                "--node.interval=0s",
                f"--node.name={GPU_NODE}",
                "--path.rootfs",
                str(root),
                "--path.cgroup=/cgroup",
            )
            tls = ("--web.config.file", str(web))
            with serving("node", *flags, *tls, prefix=with_driver(folder)) as agent:
                yield agent
        finally:
            process.kill()


def _machine(root: Path, pid: int) -> Path:
    """Make the files of a machine with one job, InfiniBand, NFS, and a meter that counts a joule each second."""
    cgroup = {
        "cgroup.procs": "",
        "cgroup.events": "populated 1\nfrozen 0\n",
        "cpu.stat": "usage_usec 3393402\nuser_usec 1350391\nsystem_usec 2043011\n"
        "nr_periods 9\nnr_throttled 2\nthrottled_usec 500\n",
        "cpuset.cpus": "0-3\n",
        "cpuset.cpus.effective": "0-3\n",
        "memory.current": "77312000\n",
    }
    files = {
        "proc/1/mountstats": MOUNTSTATS.read_text(encoding="utf-8"),
        "proc/1/net/dev": DEVICES,
        "proc/1/net/snmp": SNMP,
        "sys/class/net/eth0/type": "1\n",
        "sys/class/net/eth0/device/vendor": "\n",
        "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
        "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "100\n",
        "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "200\n",
    }
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for name in ("self", "stat", "meminfo", "uptime", "driver", "sys", "mounts", str(pid)):
        (root / "proc" / name).symlink_to(f"/proc/{name}")
    (root / "etc").mkdir()
    (root / "etc/passwd").symlink_to("/etc/passwd")
    meter = root / "sys/cray/pm_counters"
    meter.mkdir(parents=True)
    (meter / "energy").symlink_to("/proc/uptime")
    made = make_cgroups(root / "cgroup", [pid], cgroup) / "system.slice/slurmstepd.scope/job_1"
    made.rename(made.with_name(f"job_{GPU_JOB}"))
    return root
