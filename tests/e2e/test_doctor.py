# SPDX-License-Identifier: Apache-2.0
"""The doctor finds causes that only a real Prometheus or a real Slurm can have."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lab import SlurmLab
from lab.config import LabSettings
from lab.prometheus import Server, run_prometheus
from tests.fakes.scripted_server import scripted_server
from tests.fakes.slurm_scripts import make_commands
from tests.processes import run_slurmscope, until
from tests.requirements import refuse

CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
- job_name: slurm-nodes
  static_configs: [{{targets: ["{address}", "127.0.0.1:1"]}}]
- job_name: slurm
  static_configs: [{{targets: ["{address}"]}}]
"""
SETTINGS = LabSettings(node_count=1, has_accounting=False)
RULES = Path(__file__).parents[2] / "deploy" / "rules" / "slurmscope.yml"
PAGE = b"""# TYPE slurm_nodes gauge
slurm_nodes{base_state="idle"} 2
# TYPE jobs_cpu_seconds_total counter
jobs_cpu_seconds_total{slurm_job="7",slurm_node="n1",mode="user"} 1
"""


def _serve_page(connection: socket.socket) -> None:
    connection.recv(65536)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(PAGE)}\r\n\r\n"
    connection.sendall(head.encode() + PAGE)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a Prometheus that scrapes the agent of n1."""
    with scripted_server(_serve_page) as url:
        config = CONFIG.format(address=url.removeprefix("http://"))
        with run_prometheus(tmp_path_factory.mktemp("doctor") / "prometheus", config) as server:
            until(lambda: server.query("jobs_cpu_seconds_total"))
            yield server


def examine(
    folder: Path,
    prometheus: Server,
    squeue: str,
    *more: str,
    nodes: str = "n1 n2",
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Run the doctor of the portal in a cluster of these nodes; return its lines, with their advice, by check."""
    commands = make_commands(folder / "bin", {"squeue": squeue, "sinfo": f"printf '%s\\n' {nodes}"})
    flags = ("--slurm.bin-path", str(commands), "--archive.url", str(folder / "archive.db"), *more)
    done = run_slurmscope("doctor", "portal", *flags, "--prometheus.url", prometheus.url, environment=environment)
    lines = done.stdout.replace("\n        ", " | ").splitlines()
    return {
        line.split("  ", 1)[1].strip().partition(":")[0]: line for line in lines if re.match("(ok|note|failed) ", line)
    }


def test_node_that_runs_jobs_and_is_not_scraped_is_named(prometheus: Server, tmp_path: Path) -> None:
    shown = examine(tmp_path, prometheus, "printf '1-02:03:04 n[1-2]\\n0:05 n9\\nINVALID n8\\n'")["measured nodes"]

    assert shown.startswith("failed  measured nodes: jobs run on n2, which Prometheus does not know | ")
    assert "--node.name" in shown
    assert "/targets" in shown


def test_every_node_that_runs_jobs_is_scraped(prometheus: Server, tmp_path: Path) -> None:
    shown = examine(tmp_path, prometheus, "echo 5:03 n1")

    assert "ok      measured nodes: Prometheus knows every node that runs jobs" == shown["measured nodes"]
    assert "ok      Prometheus clock: the clocks of this host and of Prometheus agree" == shown["Prometheus clock"]


def shifted_clock(folder: Path, seconds: int) -> dict[str, str]:
    """Return variables of a process whose clock is wrong: Python imports this module before anything else."""
    (folder / "sitecustomize.py").write_text(f"import time\nreal = time.time\ntime.time = lambda: real() + {seconds}\n")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


@pytest.mark.parametrize(("shift", "words"), [(600, "ahead of"), (-600, "behind")])
def test_clock_that_differs_from_that_of_prometheus_is_reported(
    prometheus: Server, tmp_path: Path, shift: int, words: str
) -> None:
    shown = examine(tmp_path, prometheus, "echo 5:03 n1", environment=shifted_clock(tmp_path, shift))[
        "Prometheus clock"
    ]

    # The time that a query takes on a busy machine may be taken off.
    start = f"failed  Prometheus clock: the clock of this host is (5[89][0-9]|600) s {words} that of Prometheus"
    assert re.match(start, shown)
    assert "synchronize the clocks" in shown


def test_label_that_the_scrape_job_does_not_add_is_named(prometheus: Server, tmp_path: Path) -> None:
    shown = examine(tmp_path, prometheus, "echo 5:03 n1", "--prometheus.matchers", "cluster=alpha")["labels"]

    assert shown.startswith("failed  labels: ")
    assert "cluster=alpha" in shown


def test_prometheus_that_scrapes_too_rarely_is_reported(prometheus: Server, tmp_path: Path) -> None:
    # It scrapes once a second.
    until(lambda: len(prometheus.query("jobs_cpu_seconds_total offset 1s")) == 2)
    shown = examine(tmp_path, prometheus, "echo 5:03 n1", "--prometheus.scrape-interval", "200ms")["scrape interval"]

    assert shown.startswith("failed  scrape interval: 0 of 2 series of jobs have two samples within 0.8 seconds")


def test_measured_node_that_slurm_calls_otherwise_is_named(prometheus: Server, tmp_path: Path) -> None:
    shown = examine(tmp_path, prometheus, "echo 5:03 c1", nodes="c1 c2")["node names"]

    assert shown.startswith("failed  node names: ")
    assert "n1" in shown


def test_agent_that_prometheus_cannot_scrape_is_named(prometheus: Server, tmp_path: Path) -> None:
    until(lambda: len(prometheus.query('up{job="slurm-nodes"}')) == 2)

    shown = examine(tmp_path, prometheus, "echo 5:03 n1")

    assert shown["agents"].startswith("failed  agents: 1 of 2 targets of slurm-nodes are down: 127.0.0.1:1 | ")
    assert "ok      cluster exporter: all 1 targets of slurm are up" == shown["cluster exporter"]


def test_rules_that_are_not_loaded_are_noted(prometheus: Server, tmp_path: Path) -> None:
    shown = examine(tmp_path, prometheus, "echo 5:03 n1")["rules"]
    assert shown.startswith("note    rules: are not loaded")
    assert "rule_files" in shown

    with scripted_server(_serve_page) as url:
        config = f"rule_files: [{RULES}]\n{CONFIG.format(address=url.removeprefix('http://'))}"
        config = config.replace("scrape_interval: 1s", "scrape_interval: 1s, evaluation_interval: 1s")
        with run_prometheus(tmp_path / "prometheus", config) as server:
            until(lambda: server.query("instance:slurm_nodes:sum"))
            (tmp_path / "second").mkdir()
            assert "ok      rules: are evaluated" == examine(tmp_path / "second", server, "echo 5:03 n1")["rules"]


def in_own_mounts(script: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Change mounts for one run of the doctor only."""
    if os.geteuid():
        refuse("mounts are changed by root")
    argv = [sys.executable, "-m", "slurmscope", "doctor", *flags]
    shell = ["unshare", "--mount", "sh", "-ec", f'{script}; exec "$@"', "sh", *argv]
    return subprocess.run(shell, capture_output=True, text=True, timeout=120, check=False)


def test_full_disk_is_the_cause_to_begin_with(tmp_path: Path) -> None:
    fill = f"mount -t tmpfs -o size=4m tmpfs {tmp_path}; ! cat /dev/zero >{tmp_path}/all 2>/dev/null"

    done = in_own_mounts(fill, "portal", "--archive.url", f"{tmp_path}/archive.db", "--slurm.bin-path", str(tmp_path))

    assert f"failed  disk: 0 B free in {tmp_path}\n        make room" in done.stdout
    assert "\nBegin with disk; other failures may follow from it: " in done.stdout


def test_cgroups_that_are_not_mounted_are_the_cause_to_begin_with() -> None:
    done = in_own_mounts("umount -R -l /sys/fs/cgroup", "node")

    assert "failed  cgroup mount: no cgroup file system with the controllers of jobs is mounted" in done.stdout
    assert "\nBegin with cgroup mount; " in done.stdout
    assert "failed  layout: " in done.stdout


def test_agent_without_capabilities_is_reported() -> None:
    argv = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-m", "slurmscope", "doctor", "node"]

    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)

    assert "failed  capabilities: not present\n        I/O, open files and accounts" in done.stdout


def test_clock_that_differs_from_that_of_the_controller_is_reported(clean_lab: SlurmLab, tmp_path: Path) -> None:
    environment = {**clean_lab.environment, **shifted_clock(tmp_path, 600)}

    done = run_slurmscope("doctor", "cluster", "--slurm.bin-path", str(clean_lab.bin_path), environment=environment)

    assert re.search(
        r"failed  clock: the clock of this host is (5[89][0-9]|600) s ahead of the controller's", done.stdout
    )


def test_slurmdbd_that_does_not_answer_is_reported(clean_lab: SlurmLab, tmp_path: Path) -> None:
    conf = Path(clean_lab.environment["SLURM_CONF"]).read_text(encoding="utf-8")
    assert "accounting_storage/slurmdbd" in conf
    # Nobody listens on port 1.
    lines = [line for line in conf.splitlines() if not line.startswith("AccountingStoragePort")]
    (tmp_path / "slurm.conf").write_text("\n".join([*lines, "AccountingStoragePort=1"]) + "\n", encoding="utf-8")
    environment = {**clean_lab.environment, "SLURM_CONF": str(tmp_path / "slurm.conf")}

    done = run_slurmscope(
        "doctor",
        "portal",
        *("--slurm.bin-path", str(clean_lab.bin_path), "--archive.url", str(tmp_path / "archive.db")),
        environment=environment,
    )

    assert "failed  accounting: " in done.stdout, done.stdout


def test_accounting_that_is_off_is_named() -> None:
    # Not below pytest's folder: daemons of other users have to enter it.
    with (
        tempfile.TemporaryDirectory(prefix="lab-") as folder,
        SlurmLab(Path(folder), LabSettings(node_count=1, has_accounting=False)) as lab,
    ):
        flags = ("--slurm.bin-path", str(lab.bin_path))
        portal = run_slurmscope(
            "doctor", "portal", *flags, "--archive.url", f"{folder}/archive.db", environment=lab.environment
        )
        off = ("--no-collector.completions",)
        cluster = run_slurmscope("doctor", "cluster", *flags, *off, environment=lab.environment)

    words = "accounting storage: slurm.conf has no AccountingStorageType: Slurm keeps nothing about ended jobs"
    assert f"failed  {words}" in portal.stdout
    assert "Begin with accounting storage; " in portal.stdout
    # A site that disabled what needs accounting has no fault.
    assert f"note    {words}" in cluster.stdout


def test_python_that_was_built_without_modules_is_named(tmp_path: Path) -> None:
    # As after ./configure && make without the headers of SQLite.
    (tmp_path / "_sqlite3.py").write_text("raise ImportError('No module named _sqlite3')\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))

    done = run_slurmscope("doctor", "portal", environment={"PYTHONPATH": path})

    assert 1 == done.returncode
    assert re.search(
        r"failed  python: Python 3\.\d+\.\d+ at \S+ has no module sqlite3\n        this Python was", done.stdout
    )


@pytest.mark.parametrize("version", ["(2, 7, 18)", "(3, 6, 8)", "(3, 10, 12)"])
def test_clone_run_with_an_older_python_says_which_is_needed(version: str) -> None:
    code = (
        f"import sys; sys.version_info = {version}; import runpy; runpy.run_module('slurmscope', run_name='__main__')"
    )
    argv = [sys.executable, "-c", code]

    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert (1, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert "slurmscope: Python 3.11 or later is needed, and this is " in done.stderr


def test_agent_whose_name_slurm_does_not_know_is_reported(clean_lab: SlurmLab) -> None:
    environment = {**clean_lab.environment, "PATH": f"{clean_lab.bin_path}:{os.environ['PATH']}"}
    node = clean_lab.nodes[0]

    right = run_slurmscope("doctor", "node", "--node.name", node, environment=environment)
    wrong = run_slurmscope("doctor", "node", "--node.name", "wrong", environment=environment)

    assert f"ok      node name: Slurm knows this node as {node}" in right.stdout
    assert "failed  node name: Slurm does not know a node wrong" in wrong.stdout
    assert "set node.name to the NodeName of this host" in wrong.stdout


def test_each_failure_is_printed_once(tmp_path: Path) -> None:
    done = run_slurmscope("doctor", "cluster", "--slurm.bin-path", str(tmp_path))
    logged = run_slurmscope("doctor", "cluster", "--slurm.bin-path", str(tmp_path), "--log.level=error")

    assert ("", 1) == (done.stderr, done.stdout.count("squeue was not found"))
    assert "squeue was not found" in logged.stderr
