# SPDX-License-Identifier: Apache-2.0
"""Share one demo among all tests of a session, and one browser among those of a module."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.demo_jobs import DemoJobs, find_jobs, list_jobs
from tests.browser.watching import Watched, watching
from tests.processes import until
from tests.requirements import refuse

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="session")
def demo() -> Iterator[str]:
    """Run the demo as a user does, and give its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    argv = [sys.executable, "-m", "slurmscope", "demo", "--port", str(port)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            _wait_for(f"http://127.0.0.1:{port}", process)
            _wait_until_filled(f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the browser a home of its own, for it leaves files there."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def browser(home: Path) -> Iterator[Browser]:
    """Start the distribution's browser; of a module only, for its event loop keeps other tests from having one."""
    if not CHROMIUM.exists():
        refuse(f"{CHROMIUM} is missing")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=FLAGS, env={**os.environ, "HOME": str(home)}
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def jobs(demo: str) -> DemoJobs:
    return find_jobs(demo)


@pytest.fixture
def window(browser: Browser, demo: str) -> Iterator[Watched]:
    with watching(browser, demo) as watched:
        yield watched


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/healthz", timeout=PATIENCE_SECONDS):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the demo does not answer at {address}; exit code {process.poll()}")


def _wait_until_filled(address: str) -> None:
    """Wait for what the first pages of lists contain; a busy machine has archived only a few jobs when it answers."""
    user = (
        httpx.get(f"{address}/api/v2/me", timeout=PATIENCE_SECONDS, trust_env=False).raise_for_status().json()["name"]
    )
    wanted = {"state=PENDING": 50, "worst=critical": 2, f"user={user}&state=COMPLETED": 20}
    until(lambda: all(len(list_jobs(address, query)) >= count for query, count in wanted.items()), PATIENCE_SECONDS)
