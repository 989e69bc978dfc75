# SPDX-License-Identifier: Apache-2.0
"""Take the screenshots of the documentation from the demo; ``make screenshots`` calls it.

The demo invents its jobs as it starts, so pictures differ from run to run: look at them before you commit them.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
PATIENCE_SECONDS = 300.0
JOBS = {"job": "/jobs?state=OUT_OF_MEMORY", "gpu-job": "/jobs?rule=gpu_stuck"}
"""Lists whose first job is taken, by the name of its picture."""
PAGES = {"jobs": "/jobs?worst=critical", "nodes": "/nodes", "waste": "/waste", "cluster": "/cluster"}


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with _demo() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for name, path in (JOBS | PAGES).items():
            _open(page, address + path, is_first_job=name in JOBS)
            page.screenshot(path=IMAGES / f"{name}.png")
            print(f"docs/images/{name}.png: {page.url.removeprefix(address)}")
        browser.close()


def _open(page: Page, url: str, *, is_first_job: bool) -> None:
    page.goto(url)
    if is_first_job:
        page.locator("main table a[href*='/jobs/']").first.click()
    page.wait_for_load_state("networkidle")


@contextmanager
def _demo() -> Iterator[str]:
    """Run the demo until its jobs are archived, and give its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    argv = [sys.executable, "-m", "slurmscope", "demo", "--port", address.rpartition(":")[2]]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + PATIENCE_SECONDS
            while not _is_filled(address) and process.poll() is None:
                if time.monotonic() > until:
                    raise TimeoutError(f"the demo is not filled after {PATIENCE_SECONDS:.0f} s")
                time.sleep(1)
            yield address
        finally:
            process.terminate()


def _is_filled(address: str) -> bool:
    """Return whether there is a job for each picture, and no page says that jobs are still being read."""
    try:
        return all(
            b"/jobs/" in text.partition(b"<tbody")[2] and b'class="problems"' not in text
            for text in map(_fetch, (address + path for path in JOBS.values()))
        )
    except (urllib.error.URLError, OSError):
        return False


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text: bytes = answer.read()
        return text


if __name__ == "__main__":
    main()
