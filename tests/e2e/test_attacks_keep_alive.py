# SPDX-License-Identifier: Apache-2.0
"""Attack: one user misuses an exporter over hundreds of connections at once, while others want their page."""

from __future__ import annotations

import base64
import http.client
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import bcrypt
import pytest

from lab.requirements import find_program
from tests.processes import AS_NOBODY, PATIENCE_SECONDS, run_slurmscope, serving, until

FLOOD = Path(__file__).with_name("flood_client.py")
SCRAPES = 10
SCRAPE_TIMEOUT_SECONDS = 10
"""What Prometheus allows by default."""
HEADERS = {
    "X-Prometheus-Scrape-Timeout-Seconds": str(SCRAPE_TIMEOUT_SECONDS),
    "Authorization": "Basic " + base64.b64encode(b"prometheus:secret").decode(),
}


@contextmanager
def flooding(
    address: str, connections: int, *kinds: str, source: str = "127.0.0.2", prefix: Sequence[str] = ()
) -> Iterator[None]:
    """Let another user misuse the exporter, from as many addresses from ``source`` on, until the block ends."""
    client = [sys.executable, str(FLOOD), source, *address.rsplit(":", 1), str(connections), *kinds]
    command = [*prefix, *AS_NOBODY, *client]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flood:
        try:
            assert flood.stdout is not None
            assert "flooding\n" == flood.stdout.readline()
            yield
            assert "'" in flood.communicate("", PATIENCE_SECONDS)[0]  # the flood got responses, too
        finally:
            flood.kill()


def test_new_clients_are_scraped_beside_a_flood_of_new_connections() -> None:
    with serving("node") as exporter:
        waits = []
        with flooding(exporter.addresses[0], 200, "new"):
            for _ in range(20):
                began = time.monotonic()
                scraper = http.client.HTTPConnection(exporter.addresses[0], timeout=PATIENCE_SECONDS)
                with closing(scraper):
                    scraper.request("GET", "/metrics", headers=HEADERS)
                    answer = scraper.getresponse()
                    assert 200 == answer.status
                    assert answer.read().endswith(b"\n")
                waits.append(time.monotonic() - began)

    assert max(waits) < SCRAPE_TIMEOUT_SECONDS


NETWORK = "198.51.100"
SCRAPER = f"""
import http.client, sys, time
scraper = http.client.HTTPConnection(sys.argv[1], timeout={PATIENCE_SECONDS}, source_address=("{NETWORK}.2", 0))
for _ in range({SCRAPES}):
    began = time.monotonic()
    scraper.request("GET", "/metrics", headers={HEADERS})
    answer = scraper.getresponse()
    is_whole = answer.read().endswith(b"\\n")
    print(answer.status, is_whole, time.monotonic() - began < {SCRAPE_TIMEOUT_SECONDS})
    time.sleep(0.05)
"""


@contextmanager
def own_network() -> Iterator[tuple[str, ...]]:
    """Give the prefix of commands in a network of their own, in which every address of NETWORK is this machine's."""
    with subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) as holder:
        try:
            own = Path("/proc/self/ns/net").stat().st_ino
            until(lambda: Path(f"/proc/{holder.pid}/ns/net").stat().st_ino != own)
            prefix = ("nsenter", f"--target={holder.pid}", "--net")
            for words in ("link set lo up", f"route add local {NETWORK}.0/24 dev lo"):
                subprocess.run([*prefix, find_program("ip", "iproute2"), *words.split()], check=True, timeout=60)
            yield prefix
        finally:
            holder.kill()


def test_prometheus_is_served_beside_a_hundred_and_fifty_hostile_nodes(tmp_path: Path) -> None:
    simulated = ("simulate", "--output", str(tmp_path / "slurm"), "--jobs", "3000", "--nodes", "100")
    assert 0 == run_slurmscope(*simulated).returncode
    flags = ["--slurm.bin-path", str(tmp_path / "slurm"), "--web.listen-address", f"{NETWORK}.1:0"]
    with own_network() as prefix, serving("cluster", *flags, prefix=prefix) as exporter:
        until(lambda: len(exporter.addresses) == 2)
        address = exporter.addresses[1]
        with flooding(address, 150, "part", source=f"{NETWORK}.3", prefix=prefix):
            argv = [*prefix, sys.executable, "-c", SCRAPER, address]
            scraped = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)

    assert ["200 True True"] * SCRAPES == scraped.stdout.splitlines()


@pytest.mark.parametrize(
    ("connections", "kinds"),
    [
        (40, ("scrape",)),
        (300, ("scrape",)),
        (300, ("scrape", "unread", "slow", "garbage", "part")),
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
        with closing(scraper), flooding(exporter.addresses[0], connections, *kinds):
            for _ in range(SCRAPES):
                began = time.monotonic()
                scraper.request("GET", "/metrics", headers=HEADERS)
                answer = scraper.getresponse()
                is_whole = answer.read().endswith(b"\n")
                results.append((answer.status, is_whole, time.monotonic() - began < SCRAPE_TIMEOUT_SECONDS))
                time.sleep(0.05)

    assert [(200, True, True)] * SCRAPES == results
