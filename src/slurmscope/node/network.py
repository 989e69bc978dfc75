# SPDX-License-Identifier: Apache-2.0
"""Export what a node sent and received, by RDMA adapters and by Ethernet, and what jobs did that were alone on it.

::

    slurm_node_network_receive_bytes_total{slurm_node="n17",device="mlx5_0:1",transport="infiniband"} 912034508
    slurm_node_network_errors_total{slurm_node="n17",device="mlx5_0:1",error="symbol_error"} 0
    slurm_node_tcp_retransmitted_segments_total{slurm_node="n17"} 105
    jobs_network_receive_bytes_total{slurm_job="4711",slurm_node="n17",transport="infiniband"} 804120

The kernel counts per port, not per process, so what happens while several jobs run belongs to none of them. What an
adapter of RoCE transfers by RDMA is not in its Ethernet counters; TCP/IP over InfiniBand counts as InfiniBand, and over
Slingshot both as Slingshot and as Ethernet. A
transport that the node does not have is absent.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Labels, counter
from slurmscope.node.filesystems import KEPT_JOBS, find_only_job
from slurmscope.node.job_metrics import JOB, label_jobs
from slurmscope.node.job_use import JobKey, NodeJobs, Roster
from slurmscope.node.kernel_files import read_bytes, read_number

ETHERNET = "ethernet"
_TRANSPORTS = {b"InfiniBand": "infiniband", b"Ethernet": "roce"}
RDMA = "rdma"
"""Of adapters with another link layer, such as EFA."""
SLINGSHOT = "slingshot"
ERRORS_SECONDS = 60.0
"""Errors are read this often: adapters answer some of these files slowly, and they have many."""

_WORD_BYTES = 4
"""InfiniBand counts words; adapters of EFA count bytes, in other files."""
_DATA_FILES = (
    ("counters/port_rcv_data", "counters/port_xmit_data", _WORD_BYTES),
    ("hw_counters/rx_bytes", "hw_counters/tx_bytes", 1),
)
_ERROR_FILES = (
    "counters/symbol_error", "counters/link_downed", "counters/link_error_recovery", "counters/port_rcv_errors",
    "counters/port_xmit_discards", "counters/local_link_integrity_errors", "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err", "hw_counters/local_ack_timeout_err", "hw_counters/rnr_nak_retry_err",
    "hw_counters/rx_drops", "hw_counters/retrans_timeout_events",
)  # fmt: skip
_SLINGSHOT_FILES = ("hni_sts_rx_ok_octets", "hni_sts_tx_ok_octets")
_SLINGSHOT_ERRORS = (
    "hni_pcs_uncorrected_cw", "hni_llr_rx_replay_event", "hni_llr_tx_replay_event", "pct_sct_timeouts",
    "pct_spt_timeouts",
)  # fmt: skip
_MOST_PORTS = 64
_MOST_DEVICES = 64
_FILE_BYTES = 64
_TABLE_BYTES = 1 << 20
_MOST_COUNT = (1 << 64) - 1
_ETHERNET_TYPE = b"1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """What a port of the node counted since it was started."""

    transport: str
    received_bytes: int
    transmitted_bytes: int
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNetwork:
    """The ports of a node by name, its TCP segments, and bytes (received, transmitted) of jobs by transport."""

    ports: Mapping[str, Port] = field(default_factory=dict)
    sent_segments: int | None = None
    retransmitted_segments: int | None = None
    jobs: Mapping[JobKey, Mapping[str, tuple[int, int]]] = field(default_factory=dict)


class NetworkReader:
    """Read the ports repeatedly, and give what they count to the job that was alone meanwhile. Not thread-safe."""

    def __init__(
        self, sysfs: Path, procfs: Path, roster: Callable[[], Roster], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sysfs = sysfs
        self._procfs = procfs
        self._roster = roster
        self._clock = clock
        self._errors: Mapping[str, Mapping[str, int]] = {}
        self._errors_until = -math.inf
        self._last: tuple[Roster, Mapping[str, Port]] | None = None
        self._jobs: OrderedDict[JobKey, dict[str, tuple[int, int]]] = OrderedDict()

    def read(self) -> NodeNetwork:
        # A job that ends during the reading counts before it, and one that begins counts after it: both ran.
        before = self._roster()
        rdma = {**read_rdma(self._sysfs), **read_slingshot(self._sysfs)}
        if self._clock() >= self._errors_until:
            self._errors = {name: read_errors(self._sysfs, name) for name in rdma}
            self._errors_until = self._clock() + ERRORS_SECONDS
        ports = {name: replace(port, errors=self._errors.get(name, {})) for name, port in rdma.items()}
        ports |= read_ethernet(self._sysfs, self._procfs)
        self._attribute(ports, self._roster())
        self._last = (before, ports)
        segments, again = parse_tcp(read_bytes(self._procfs / "1/net/snmp", _TABLE_BYTES))
        return NodeNetwork(ports=ports, sent_segments=segments, retransmitted_segments=again, jobs={**self._jobs})

    def _attribute(self, ports: Mapping[str, Port], roster: Roster) -> None:
        key = find_only_job(self._last[0], roster) if self._last else None
        if self._last is None or key is None:
            return
        totals = dict(self._jobs.pop(key, {}))
        for name, port in ports.items():
            was = self._last[1].get(name)
            if was is not None:
                received, transmitted = totals.get(port.transport, (0, 0))
                totals[port.transport] = (
                    received + max(0, port.received_bytes - was.received_bytes),
                    transmitted + max(0, port.transmitted_bytes - was.transmitted_bytes),
                )
        self._jobs[key] = totals
        while len(self._jobs) > KEPT_JOBS:
            self._jobs.popitem(last=False)


def read_rdma(sysfs: Path) -> dict[str, Port]:
    """Read the ports of InfiniBand, RoCE, Omni-Path and EFA adapters, without errors."""
    folder = sysfs / "class/infiniband"
    found: dict[str, Port] = {}
    for adapter in _names(folder):
        for number in _names(folder / adapter / "ports"):
            port = _read_port(folder / adapter / "ports" / number)
            if port is not None and len(found) < _MOST_PORTS:
                found[f"{adapter}:{number}"] = port
    return found


def _read_port(folder: Path) -> Port | None:
    for received, transmitted, unit in _DATA_FILES:
        sizes = read_number(folder / received), read_number(folder / transmitted)
        if sizes[0] is not None and sizes[1] is not None:
            layer = read_bytes(folder / "link_layer", _FILE_BYTES).strip()
            transport = _TRANSPORTS.get(layer, RDMA)
            return Port(transport=transport, received_bytes=unit * sizes[0], transmitted_bytes=unit * sizes[1])
    return None


def read_errors(sysfs: Path, port: str) -> dict[str, int]:
    """Read the errors of a port of an RDMA adapter; not every adapter has all of these files."""
    adapter, _, number = port.partition(":")
    if not number:
        errors = {name: _read_telemetry(sysfs, adapter, name) for name in _SLINGSHOT_ERRORS}
    else:
        folder = sysfs / "class/infiniband" / adapter / "ports" / number
        errors = {name.partition("/")[2]: read_number(folder / name) for name in _ERROR_FILES}
    return {name: count for name, count in errors.items() if count is not None}


def read_slingshot(sysfs: Path) -> dict[str, Port]:
    """Read the adapters of Slingshot, without errors; Ethernet over them is in these counters, too."""
    found: dict[str, Port] = {}
    for adapter in _names(sysfs / "class/cxi"):
        received, transmitted = (_read_telemetry(sysfs, adapter, name) for name in _SLINGSHOT_FILES)
        if received is not None and transmitted is not None:
            found[adapter] = Port(transport=SLINGSHOT, received_bytes=received, transmitted_bytes=transmitted)
    return found


def _read_telemetry(sysfs: Path, adapter: str, name: str) -> int | None:
    """Read a counter of a Slingshot adapter: a number, and after an @ when the adapter counted it."""
    text = read_bytes(sysfs / "class/cxi" / adapter / "device/telemetry" / name, _FILE_BYTES)
    number = text.partition(b"@")[0].strip()
    return min(int(number), _MOST_COUNT) if number.isdigit() else None


def read_ethernet(sysfs: Path, procfs: Path) -> dict[str, Port]:
    """Read the network adapters that are hardware: bridges, tunnels and bonds count what passes these once more."""
    found: dict[str, Port] = {}
    for name, port in parse_devices(read_bytes(procfs / "1/net/dev", _TABLE_BYTES)).items():
        folder = sysfs / "class/net" / name
        is_ethernet = (folder / "device").exists() and read_bytes(
            folder / "type", _FILE_BYTES
        ).strip() == _ETHERNET_TYPE
        if is_ethernet and len(found) < _MOST_DEVICES:
            found[name] = port
    return found


def parse_devices(text: bytes) -> dict[str, Port]:
    """Parse ``/proc/net/dev``; a line of another format is left out."""
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(b":")
        words = rest.split()
        if not colon or len(words) < 12 or not all(word.isdigit() for word in words):
            continue
        # Received: bytes, packets, errors, drops, four more; transmitted: the same.
        numbers = [min(int(word), _MOST_COUNT) for word in words[:12]]
        found[name.strip().decode("ascii", "replace")] = Port(
            transport=ETHERNET,
            received_bytes=numbers[0],
            transmitted_bytes=numbers[8],
            errors={
                "receive_errors": numbers[2], "receive_drops": numbers[3],
                "transmit_errors": numbers[10], "transmit_drops": numbers[11],
            },
        )  # fmt: skip
    return found


def parse_tcp(text: bytes) -> tuple[int | None, int | None]:
    """Parse the segments that were sent, and sent again, from ``/proc/net/snmp``: a line of names, one of numbers."""
    lines = [line.split() for line in text.splitlines() if line.startswith(b"Tcp:")]
    if len(lines) != 2:
        return None, None
    counts = dict(zip(*lines, strict=False))
    sent, again = counts.get(b"OutSegs", b""), counts.get(b"RetransSegs", b"")
    return (int(sent), int(again)) if sent.isdigit() and again.isdigit() else (None, None)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())[:_MOST_PORTS]
    except OSError:
        return []


_PORT = ("slurm_node", "device", "transport")
_OF_JOB = (*JOB, "transport")
RECEIVED = counter("slurm_node_network_receive_bytes_total", "Bytes received by a port of the node.", *_PORT)
TRANSMITTED = counter("slurm_node_network_transmit_bytes_total", "Bytes sent by a port of the node.", *_PORT)
ERRORS = counter(
    "slurm_node_network_errors_total", "Errors of a port, by the kernel's name of the error.", *_PORT, "error"
)
SEGMENTS = counter("slurm_node_tcp_sent_segments_total", "TCP segments that the node sent.", "slurm_node")
RETRANSMITTED = counter(
    "slurm_node_tcp_retransmitted_segments_total",
    "TCP segments that the node had to send again; many of them mean a lossy network.",
    "slurm_node",
)
JOB_RECEIVED = counter(
    "jobs_network_receive_bytes_total", "Bytes that the node received while no other job ran on it.", *_OF_JOB
)
JOB_TRANSMITTED = counter(
    "jobs_network_transmit_bytes_total", "Bytes that the node sent while no other job ran on it.", *_OF_JOB
)


def collect(
    options: NoOptions,  # noqa: ARG001 - part of the protocol
    *,
    network: NodeNetwork,
    node_jobs: NodeJobs,
) -> Iterator[Family]:
    """Yield the counters of the node, then those of jobs that run or ended a short time ago."""
    host = node_jobs.host_name
    ports = {(host, name, port.transport): port for name, port in network.ports.items()}
    yield Family(RECEIVED, {labels: port.received_bytes for labels, port in ports.items()})
    yield Family(TRANSMITTED, {labels: port.transmitted_bytes for labels, port in ports.items()})
    yield Family(ERRORS, {(*labels, error): n for labels, port in ports.items() for error, n in port.errors.items()})
    for metric, count in ((SEGMENTS, network.sent_segments), (RETRANSMITTED, network.retransmitted_segments)):
        yield Family(metric, {} if count is None else {(host,): count})
    of_jobs = _bytes_of_jobs(network, node_jobs)
    yield Family(JOB_RECEIVED, {labels: received for labels, (received, _) in of_jobs.items()})
    yield Family(JOB_TRANSMITTED, {labels: transmitted for labels, (_, transmitted) in of_jobs.items()})


def _bytes_of_jobs(network: NodeNetwork, node_jobs: NodeJobs) -> dict[Labels, tuple[int, int]]:
    return {
        (*labels, transport): amounts
        for labels, job in label_jobs(node_jobs).items()
        for transport, amounts in network.jobs.get(job.key, {}).items()
    }


COLLECTOR = Collector(
    name="network",
    role=Role.NODE,
    help="What the node sent and received by RDMA, Slingshot and Ethernet, and jobs that were alone on it.",
    needs=("network", "node_jobs"),
    metrics=(RECEIVED, TRANSMITTED, ERRORS, SEGMENTS, RETRANSMITTED, JOB_RECEIVED, JOB_TRANSMITTED),
    collect=collect,
)
