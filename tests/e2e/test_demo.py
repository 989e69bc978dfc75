# SPDX-License-Identifier: Apache-2.0
"""Run ``slurmscope demo`` as somebody does who wants to see what this is."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.processes import PATIENCE_SECONDS, run_slurmscope, until

SHOWN = re.compile(r"running at (http://127\.0\.0\.1:\d+/)")


@dataclass
class Shown:
    """Reach a running demo."""

    process: subprocess.Popen[str]
    folder: Path
    lines: list[str] = field(default_factory=list)

    def get(self, path: str) -> str:
        found = SHOWN.search(self.lines[0])
        assert found
        with urllib.request.urlopen(found[1] + path, timeout=PATIENCE_SECONDS) as answer:
            text: str = answer.read().decode()
        return text


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Shown]:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    argv = [sys.executable, "-m", "slurmscope", "demo", "--port", str(port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as process:
        demo = Shown(process, tmp_path)
        reader = threading.Thread(target=lambda: demo.lines.extend(process.stdout or ()), daemon=True)
        reader.start()
        try:
            until(lambda: demo.lines or process.poll() is not None, 120)
            yield demo
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE_SECONDS)
            reader.join(PATIENCE_SECONDS)


def test_the_first_page_is_full_and_nothing_is_left_behind(shown: Shown) -> None:
    page = shown.get("")
    links = set(re.findall(r'href="/jobs/(\d[\d_+]*)"', page))
    assert len(links) >= 10

    # Jobs that failed at once have no curves.
    reports = [json.loads(shown.get(f"jobs/{link}/report.json")) for link in sorted(links)[:10]]
    assert any(report["charts"] and report["summary"]["coverage"]["is_good"] for report in reports)
    assert "<tr" in shown.get("jobs?worst=critical")
    assert "slurmscope_recorder_samples_total" in shown.get("metrics")

    assert any(shown.folder.iterdir())
    shown.process.send_signal(signal.SIGINT)
    assert 0 == shown.process.wait(PATIENCE_SECONDS)
    assert [] == list(shown.folder.iterdir())


def test_running_jobs_are_read_from_what_was_recorded(shown: Shown) -> None:
    """The oracle is the demo itself before its recorder is filled: then the same curves are computed."""

    def recorded() -> float:
        found = re.search(r"^slurmscope_recorder_samples_total (\S+)$", shown.get("metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    page = shown.get("jobs?state=RUNNING")
    job = re.findall(r'href="/jobs/(\d+)"', page)[-1]
    before = json.loads(shown.get(f"jobs/{job}/report.json"))["summary"]["cpu"]["time"]["ratio"]
    until(lambda: recorded() > 20_000, 120)
    after = json.loads(shown.get(f"jobs/{job}/report.json"))["summary"]["cpu"]["time"]["ratio"]
    assert before == pytest.approx(after, abs=0.1)

    shown.process.send_signal(signal.SIGTERM)
    assert 0 == shown.process.wait(PATIENCE_SECONDS)


def test_a_port_that_is_taken_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = run_slurmscope("demo", "--port", str(listener.getsockname()[1]))
    assert 2 == ended.returncode
    assert "choose another port with --port" in ended.stderr


def test_an_interruption_while_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "slurmscope", "demo"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=environment) as process:
        until(lambda: any(tmp_path.glob("*/archive.db")))
        process.send_signal(signal.SIGINT)
        assert 0 == process.wait(PATIENCE_SECONDS)
    assert [] == list(tmp_path.iterdir())
