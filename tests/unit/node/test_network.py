# SPDX-License-Identifier: Apache-2.0
"""Ports of the node are read as the kernel counts them, and added to the job that is alone on it."""

from __future__ import annotations

from pathlib import Path

import psutil
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.exporter.collector import NoOptions
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs, Roster
from slurmscope.node.network import COLLECTOR, NetworkReader, Port, collect, parse_devices, parse_tcp, read_ethernet

SNMP = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm MaxConn InSegs OutSegs RetransSegs InErrs
Tcp: 1 -1 500 400 3 0
Udp: InDatagrams
Udp: 9
"""
DEVICES = """Inter-|   Receive                            |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 999 9 0 0 0 0 0 0 999 9 0 0 0 0 0 0
  eth0: {received} 10 1 2 0 0 0 0 {sent} 20 3 4 0 0 0 0
 bond0: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0
   ib0: 8 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0
"""
ALONE = Roster(begun=1, running=1, last=JobKey(7), alone=JobKey(7))
SHARED = Roster(begun=2, running=2, last=JobKey(8))


class Machine:
    """A node with one adapter each of InfiniBand, RoCE and EFA, and one of Ethernet."""

    def __init__(self, root: Path) -> None:
        self.sysfs, self.procfs = root / "sys", root / "proc"
        self.roster, self.now = ALONE, 0.0
        for name, kind in (("eth0", "1"), ("ib0", "32")):
            self.write(f"sys/class/net/{name}/type", kind)
            (self.sysfs / "class/net" / name / "device").mkdir()
        self.write("sys/class/net/bond0/type", "1")
        self.adapter("mlx5_0", "InfiniBand", "counters/port_{}_data", 100, 200)
        self.adapter("mlx5_1", "Ethernet", "counters/port_{}_data", 1, 2)
        self.adapter("efa_0", "Unspecified", "hw_counters/{}_bytes", 30, 40)
        self.write("sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "5")
        self.write("sys/class/infiniband/mlx5_2/ports/1/counters/port_rcv_data", "")
        self.ethernet(1000, 2000)
        self.write("proc/1/net/snmp", SNMP)
        self.reader = NetworkReader(self.sysfs, self.procfs, lambda: self.roster, lambda: self.now)

    def write(self, name: str, text: str) -> None:
        file = self.sysfs.parent / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n", encoding="ascii")

    def adapter(self, name: str, layer: str, file: str, received: int, sent: int) -> None:
        port = f"sys/class/infiniband/{name}/ports/1"
        first, second = ("rcv", "xmit") if "port" in file else ("rx", "tx")
        self.write(f"{port}/{file.format(first)}", str(received))
        self.write(f"{port}/{file.format(second)}", str(sent))
        self.write(f"{port}/link_layer", layer)

    def ethernet(self, received: int, sent: int) -> None:
        self.write("proc/1/net/dev", DEVICES.format(received=received, sent=sent))


def test_ports_are_counted_in_bytes_by_transport(tmp_path: Path) -> None:
    ports = Machine(tmp_path).reader.read().ports

    assert {
        # InfiniBand counts words of four bytes.
        "mlx5_0:1": ("infiniband", 400, 800, {"symbol_error": 5}),
        "mlx5_1:1": ("roce", 4, 8, {}),
        "efa_0:1": ("rdma", 30, 40, {}),
        "eth0": (
            "ethernet",
            1000,
            2000,
            {"receive_errors": 1, "receive_drops": 2, "transmit_errors": 3, "transmit_drops": 4},
        ),
    } == {
        name: (port.transport, port.received_bytes, port.transmitted_bytes, port.errors) for name, port in ports.items()
    }


def test_slingshot_adapter_counts_bytes_and_errors_with_the_time_of_the_count(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    telemetry = "sys/class/cxi/cxi0/device/telemetry"
    machine.write(f"{telemetry}/hni_sts_rx_ok_octets", "7000000@1675489372.701036980")
    machine.write(f"{telemetry}/hni_sts_tx_ok_octets", "300@1675489372.701036981")
    machine.write(f"{telemetry}/hni_pcs_uncorrected_cw", "90049@1675489372.701036982")
    machine.write(f"{telemetry}/pct_sct_timeouts", "unknown")
    (machine.sysfs / "class/cxi/cxi1").mkdir()
    ports = machine.reader.read().ports
    machine.write(f"{telemetry}/hni_sts_tx_ok_octets", "500@1675489373.701036981")

    assert "cxi1" not in ports
    assert (
        Port(
            transport="slingshot",
            received_bytes=7_000_000,
            transmitted_bytes=300,
            errors={"hni_pcs_uncorrected_cw": 90049},
        )
        == ports["cxi0"]
    )
    assert (0, 200) == machine.reader.read().jobs[JobKey(7)]["slingshot"]


def test_only_job_of_a_node_has_what_was_transferred_meanwhile(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert {} == machine.reader.read().jobs
    machine.adapter("mlx5_0", "InfiniBand", "counters/port_{}_data", 110, 220)
    machine.ethernet(1500, 1000)  # a counter that fell counts from there on
    used = machine.reader.read().jobs

    assert {"infiniband": (40, 80), "ethernet": (500, 0), "roce": (0, 0), "rdma": (0, 0)} == used[JobKey(7)]

    machine.ethernet(9_000_000, 9_000_000)
    machine.roster = SHARED
    assert used == machine.reader.read().jobs
    assert used == machine.reader.read().jobs


def test_errors_are_read_once_a_minute(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.reader.read()
    machine.write("sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "6")

    machine.now = 59.0
    assert {"symbol_error": 5} == machine.reader.read().ports["mlx5_0:1"].errors
    machine.now = 60.0
    assert {"symbol_error": 6} == machine.reader.read().ports["mlx5_0:1"].errors


def test_machine_without_network_has_nothing(tmp_path: Path) -> None:
    found = NetworkReader(tmp_path, tmp_path, lambda: ALONE).read()

    assert ({}, None, None, {}) == (found.ports, found.sent_segments, found.retransmitted_segments, found.jobs)


def test_metrics_are_of_the_node_and_of_its_only_job(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.reader.read()
    machine.ethernet(1500, 2700)
    jobs = NodeJobs(jobs=(JobUse(key=JobKey(7)),), host_name="n1")

    found = {
        family.metric.name: dict(family.samples)
        for family in collect(NoOptions(), network=machine.reader.read(), node_jobs=jobs)
    }

    assert {metric.name for metric in COLLECTOR.metrics} == found.keys()
    assert 1500 == found["slurm_node_network_receive_bytes_total"]["n1", "eth0", "ethernet"]
    assert 800 == found["slurm_node_network_transmit_bytes_total"]["n1", "mlx5_0:1", "infiniband"]
    assert 5 == found["slurm_node_network_errors_total"]["n1", "mlx5_0:1", "infiniband", "symbol_error"]
    assert {("n1",): 400} == found["slurm_node_tcp_sent_segments_total"]
    assert {("n1",): 3} == found["slurm_node_tcp_retransmitted_segments_total"]
    assert 500 == found["jobs_network_receive_bytes_total"]["7", "n1", "ethernet"]
    assert 700 == found["jobs_network_transmit_bytes_total"]["7", "n1", "ethernet"]


def test_bytes_of_this_machine_lie_between_those_of_psutil() -> None:
    before = psutil.net_io_counters(pernic=True)
    ours = read_ethernet(Path("/sys"), Path("/proc"))
    after = psutil.net_io_counters(pernic=True)

    for name, port in ours.items():
        assert before[name].bytes_recv <= port.received_bytes <= after[name].bytes_recv
        assert before[name].bytes_sent <= port.transmitted_bytes <= after[name].bytes_sent


@given(st.binary(max_size=400))
def test_any_text_is_parsed(text: bytes) -> None:
    parse_devices(text)
    parse_tcp(b"Tcp: OutSegs RetransSegs\nTcp: " + text)
