# SPDX-License-Identifier: Apache-2.0
"""The exporter has the metrics of itself that other exporters have."""

from __future__ import annotations

import resource
from pathlib import Path

from slurmscope.exporter.self_metrics import PROCESS_METRICS, parse_octets, process_families


def test_bytes_of_the_network_are_those_of_ip() -> None:
    netstat = b"TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 7 800 90\n"

    assert (800, 90) == parse_octets(netstat)
    assert (None, None) == parse_octets(b"TcpExt: A\nTcpExt: 1\n")
    assert (None, None) == parse_octets(b"IpExt: InOctets OutOctets\n")


def test_limit_of_memory_and_network_are_those_of_the_kernel() -> None:
    served = {family.metric.name: dict(family.samples) for family in process_families()}

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    wanted = float(18446744073709551615) if limit == resource.RLIM_INFINITY else limit
    assert {(): wanted} == served["process_virtual_memory_max_bytes"]
    has_octets = "InOctets" in Path("/proc/self/net/netstat").read_text()
    assert has_octets == bool(served["process_network_receive_bytes_total"])
    assert {metric.name for metric in PROCESS_METRICS} == set(served)
