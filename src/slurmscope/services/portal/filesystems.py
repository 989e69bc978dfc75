# SPDX-License-Identifier: Apache-2.0
"""Provide to the pages who uses each shared file system most."""

from __future__ import annotations

import time
from collections.abc import Callable

from slurmscope.model.filesystem_use import TopClients
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.reporting.opening import Reporting
from slurmscope.sources.prometheus.settings import PrometheusSettings

INTERVAL_SECONDS = 60.0
WAIT_SECONDS = 10.0
"""How long a page waits for the first answer."""


def make_reading(reporting: Reporting) -> SharedReading | None:
    """Return a reading that queries Prometheus at most once a minute; None without Prometheus."""
    client, settings = reporting.prometheus, reporting.config.of(PrometheusSettings)
    if client is None:
        return None
    from slurmscope.sources.prometheus.top_clients import read_top_clients

    def read() -> TopClients:
        until = time.monotonic() + settings.timeout
        return read_top_clients(client, settings.matchers, cluster_label=settings.cluster_label, until=until)

    return SharedReading("filesystems", read, interval_seconds=INTERVAL_SECONDS)


def find_top_clients(reading: SharedReading | None) -> Callable[[], TopClients | None]:
    """Return a function that gives the last answer and requests a new one."""

    def find() -> TopClients | None:
        if reading is None:
            return None
        reading.request()
        snapshot = reading.wait(0.0)
        if not snapshot.has_value:
            snapshot = reading.wait(time.monotonic() + WAIT_SECONDS)
        top = snapshot.value if isinstance(snapshot.value, TopClients) else TopClients()
        error = reading.last_error
        return top._replace(problems=(*top.problems, error)) if error else top

    return find
