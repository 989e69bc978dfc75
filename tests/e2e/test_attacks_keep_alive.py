# SPDX-License-Identifier: Apache-2.0
"""Attack: one client misuses an exporter over hundreds of connections at once, while others want their page."""

from __future__ import annotations

import base64
import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import bcrypt
import pytest

from tests.processes import PATIENCE_SECONDS, Exporter, run_slurmscope, serving

FLOOD = Path(__file__).with_name("flood_client.py")
SCRAPES = 10
SCRAPE_TIMEOUT_SECONDS = 10
"""What Prometheus allows by default."""
HEADERS = {
    "X-Prometheus-Scrape-Timeout-Seconds": str(SCRAPE_TIMEOUT_SECONDS),
    "Authorization": "Basic " + base64.b64encode(b"prometheus:secret").decode(),
}


@contextmanager
def flooding(exporter: Exporter, connections: int, *kinds: str) -> Iterator[None]:
    """Let another address of the loopback misuse the exporter until the block ends."""
    host, port = exporter.addresses[0].rsplit(":", 1)
    command = [sys.executable, str(FLOOD), "127.0.0.2", host, port, str(connections), *kinds]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flood:
        try:
            assert flood.stdout is not None
            assert "flooding\n" == flood.stdout.readline()
            yield
            assert "'" in flood.communicate("", PATIENCE_SECONDS)[0]  # the flood got responses, too
        finally:
            flood.kill()


@pytest.mark.parametrize(
    ("connections", "kinds"),
    [
        (40, ("scrape",)),
        (300, ("scrape",)),
        (300, ("scrape", "unread", "slow", "garbage")),
        (200, ("guess", "scrape", "slow")),
    ],
)
def test_other_clients_are_scraped_beside_a_hostile_one(
    tmp_path: Path, connections: int, kinds: tuple[str, ...]
) -> None:
    simulated = ("simulate", "--output", str(tmp_path / "slurm"), "--jobs", "3000", "--nodes", "100")
    assert 0 == run_slurmscope(*simulated).returncode
    flags = ["--slurm.bin-path", str(tmp_path / "slurm")]
    if "guess" in kinds:
        users = {name: bcrypt.hashpw(b"secret", bcrypt.gensalt(cost)) for name, cost in (("prometheus", 4), ("a", 12))}
        lines = "".join(f"  {name}: {digest.decode()}\n" for name, digest in users.items())
        (tmp_path / "web.yml").write_text(f"basic_auth_users:\n{lines}")
        flags += ["--web.config.file", str(tmp_path / "web.yml")]
    with serving("cluster", *flags) as exporter:
        assert 200 == exporter.get(headers=HEADERS)[0]
        # Prometheus keeps its connection, too.
        scraper = http.client.HTTPConnection(exporter.addresses[0], timeout=PATIENCE_SECONDS)
        results = []
        with closing(scraper), flooding(exporter, connections, *kinds):
            for _ in range(SCRAPES):
                began = time.monotonic()
                scraper.request("GET", "/metrics", headers=HEADERS)
                answer = scraper.getresponse()
                is_whole = answer.read().endswith(b"\n")
                results.append((answer.status, is_whole, time.monotonic() - began < SCRAPE_TIMEOUT_SECONDS))
                time.sleep(0.05)

    assert [(200, True, True)] * SCRAPES == results
