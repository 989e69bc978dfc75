# SPDX-License-Identifier: Apache-2.0
"""Check that Prometheus gets as many queries at the same time as ``prometheus.max-queries`` allows."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass, field

import pytest

from slurmscope.http.client.address import parse_address
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reports.make import measure
from tests.fakes.prometheus_server import matrix, read_form, vector
from tests.fakes.reports import START, make_record
from tests.fakes.scripted_server import GENEROUS_SECONDS, scripted_server


@dataclass(slots=True)
class SlowPrometheus:
    """Hold answers back until so many queries are in flight; the first query of a report is sent alone."""

    expected: int
    in_flight: int = 0
    most_in_flight: int = 0
    received: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_reached: threading.Event = field(default_factory=threading.Event)

    def handle(self, connection: socket.socket) -> None:
        query = read_form(connection)
        with self.lock:
            self.received += 1
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            is_first = self.received == 1
            if self.in_flight == self.expected:
                self.is_reached.set()
        if not is_first:
            self.is_reached.wait(GENEROUS_SECONDS)
        with self.lock:
            self.in_flight -= 1
        connection.sendall(matrix() if "query_range" in query.line else vector())


@pytest.mark.parametrize("max_queries", [1, 4, 9])
def test_as_many_queries_are_in_flight_as_configured(max_queries: int) -> None:
    server = SlowPrometheus(expected=max_queries)
    with scripted_server(server.handle) as url:
        settings = PrometheusSettings(url=parse_address(url), max_queries=max_queries)
        series = PrometheusSeries(Prometheus(settings), settings)
        until = time.monotonic() + 2 * GENEROUS_SECONDS
        measure(series, [make_record(1)], now_seconds=START + 10_000.0, until=until)

    assert server.received > max_queries
    assert max_queries == server.most_in_flight
