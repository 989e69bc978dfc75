# SPDX-License-Identifier: Apache-2.0
"""Attack: one client scrapes over hundreds of kept connections at once, while others want their page."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import PATIENCE_SECONDS, Exporter, run_slurmscope, serving

FLOOD = Path(__file__).with_name("flood_client.py")
SCRAPES = 20


@contextmanager
def flooding(exporter: Exporter, connections: int) -> Iterator[None]:
    """Let another address of the loopback flood the exporter until the block ends."""
    host, port = exporter.addresses[0].rsplit(":", 1)
    command = [sys.executable, str(FLOOD), "127.0.0.2", host, port, str(connections)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flood:
        try:
            assert flood.stdout is not None
            assert "flooding\n" == flood.stdout.readline()
            yield
            shown, _ = flood.communicate("", PATIENCE_SECONDS)
            assert "'200'" in shown  # the flood was served, too
        finally:
            flood.kill()


@pytest.mark.parametrize("connections", [40, 300])
def test_other_clients_are_scraped_beside_a_flood(tmp_path: Path, connections: int) -> None:
    simulated = ("simulate", "--output", str(tmp_path / "slurm"), "--jobs", "3000", "--nodes", "100")
    assert 0 == run_slurmscope(*simulated).returncode
    with serving("cluster", "--slurm.bin-path", str(tmp_path / "slurm")) as exporter:
        assert 200 == exporter.get()[0]
        statuses = []
        with flooding(exporter, connections):
            for _ in range(SCRAPES):
                statuses.append(exporter.get(headers={"X-Prometheus-Scrape-Timeout-Seconds": "10"})[0])
                time.sleep(0.05)

    assert [200] * SCRAPES == statuses
