# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus finds the nodes of a real Slurm, as they come and go, and keeps them while slurmctld is down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import SlurmLab
from lab.prometheus import Server, run_prometheus
from tests.processes import Exporter, serving, until

# All nodes of the lab are this machine, so the exporter itself is scraped for each of them.
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: all
  http_sd_configs: [{{url: "http://{address}/sd/nodes?port={port}", refresh_interval: 1s}}]
  relabel_configs: &labels
  - {{source_labels: [__meta_slurm_node], target_label: node}}
  - {{source_labels: [__meta_slurm_partitions], target_label: partitions}}
- job_name: usable
  http_sd_configs: [{{url: "http://{address}/sd/nodes?usable=true&port={port}", refresh_interval: 1s}}]
  relabel_configs: *labels
- job_name: file
  file_sd_configs: [{{files: ["{file}"], refresh_interval: 1s}}]
  relabel_configs: *labels
"""


@dataclass(frozen=True)
class Discovered:
    """Hold the cluster, its exporter and the Prometheus that uses it."""

    lab: SlurmLab
    exporter: Exporter
    prometheus: Server
    file: Path

    def nodes(self, job: str) -> set[str]:
        """Return the nodes that Prometheus tries to scrape now."""
        return {sample.labels["node"] for sample in self.prometheus.query(f'up{{job="{job}"}}')}

    def listed(self) -> dict[str, set[str]]:
        """Return the partitions of each node, as sinfo prints them."""
        rows = (line.split() for line in self.lab.run("sinfo", "-h", "-N", "-a", "-o", "%N %R").splitlines())
        found: dict[str, set[str]] = {}
        for node, partition in rows:
            found.setdefault(node, set()).add(partition)
        return found


@pytest.fixture
def discovered(clean_lab: SlurmLab, tmp_path: Path) -> Iterator[Discovered]:
    """Run exporter and Prometheus on a cluster."""
    file = tmp_path / "nodes.json"
    slurm = ("--slurm.bin-path", str(clean_lab.bin_path), "--slurm.poll-limit", "1s", "--slurm.timeout", "2s")
    # The port of the exporter is known only when it runs: the file gets that of another exporter.
    with serving("cluster", *slurm, environment=clean_lab.environment) as exporter:
        address = str(exporter.addresses[0])
        port = address.rpartition(":")[2]
        sd = ("--sd.file", str(file), "--sd.file-filter", f"port={port}")
        config = CONFIG.format(address=address, port=port, file=file)
        with (
            serving("cluster", *slurm, *sd, environment=clean_lab.environment),
            run_prometheus(tmp_path / "prometheus", config) as prometheus,
        ):
            yield Discovered(clean_lab, exporter, prometheus, file)


def test_prometheus_scrapes_the_nodes_of_slurm_as_they_come_and_go(discovered: Discovered) -> None:
    nodes = discovered.listed()
    first = min(nodes)
    for job in ("all", "usable", "file"):
        until(lambda job=job: nodes.keys() == discovered.nodes(job))  # type: ignore[misc]
    until(lambda: {1.0} == {sample.value for sample in discovered.prometheus.query("up")})
    partitions = {
        sample.labels["node"]: set(sample.labels["partitions"].strip(",").split(","))
        for sample in discovered.prometheus.query('up{job="all"}')
    }
    assert nodes == partitions

    discovered.lab.run("scontrol", "update", f"nodename={first}", "state=drain", "reason=test")
    until(lambda: nodes.keys() - {first} == discovered.nodes("usable"))
    assert nodes.keys() == discovered.nodes("all")
    discovered.lab.run("scontrol", "update", f"nodename={first}", "state=resume")
    until(lambda: nodes.keys() == discovered.nodes("usable"))


ADDED = """
NodeName=added NodeHostname=localhost NodeAddr=127.0.0.1 Port=1 CPUs=1 Feature=new State=UNKNOWN
PartitionName=added Nodes=added
"""


def test_targets_stay_while_the_controller_is_down(discovered: Discovered) -> None:
    lab, nodes = discovered.lab, discovered.listed()
    for job in ("all", "file"):
        until(lambda job=job: nodes.keys() == discovered.nodes(job))  # type: ignore[misc]
    status, before = discovered.exporter.get("/sd/nodes")
    written = discovered.file.read_bytes()
    config = lab.layout.slurm_conf.read_text(encoding="utf-8")
    assert 200 == status
    lab.kill_controller()
    try:
        until(lambda: {(): 0} == discovered.exporter.values("slurm_up"))
        for _ in range(3):
            assert (200, before) == discovered.exporter.get("/sd/nodes")
        assert nodes.keys() == {group["labels"]["__meta_slurm_node"] for group in json.loads(before)}
        assert written == discovered.file.read_bytes()
        assert nodes.keys() == discovered.nodes("all") == discovered.nodes("file")

        lab.layout.slurm_conf.write_text(config + ADDED, encoding="utf-8")
        lab.start_controller()
        until(lambda: {*nodes, "added"} == discovered.nodes("all") == discovered.nodes("file"))
        _, found = discovered.exporter.get("/sd/nodes?feature=new&partition=added")
        assert ["added"] == [group["labels"]["__meta_slurm_node"] for group in json.loads(found)]
    finally:
        lab.kill_controller()
        lab.layout.slurm_conf.write_text(config, encoding="utf-8")
        lab.start_controller()
    until(lambda: nodes.keys() == discovered.nodes("all") == discovered.nodes("file"))
