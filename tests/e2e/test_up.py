# SPDX-License-Identifier: Apache-2.0
"""A real job becomes visible in one process that records, reports and serves, with the numbers of psutil."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab import ALICE, SlurmLab
from tests.processes import PATIENCE_SECONDS, Exporter, run_slurmscope, running, serving, until

BUSY = "import time\nwhile time.process_time() < 3: pass\ntime.sleep(600)"


def get(up: Exporter, path: str) -> tuple[int, str]:
    """Ask the portal."""
    try:
        with urllib.request.urlopen(f"{up.addresses[0]}{path}", timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def flags_for(lab: SlurmLab, folder: Path) -> list[str]:
    return [
        "--portal.listen-address=127.0.0.1:0",
        f"--archive.url=sqlite:///{folder}/archive.db",
        f"--recorder.file={folder}/recorder.db",
        "--recorder.interval=1s",
        "--reporter.interval=1s",
        f"--slurm.bin-path={lab.bin_path}",
    ]


def spinners(marker: str) -> list[psutil.Process]:
    """Find the busy processes of our job."""
    return [
        process for process in psutil.process_iter(["cmdline"]) if marker in " ".join(process.info["cmdline"] or [])
        and "while" in " ".join(process.info["cmdline"] or [])
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["own collectors", "node agent"])
def test_a_job_with_two_busy_processes_is_shown_with_its_cpu_time(
    clean_lab: SlurmLab, tmp_path: Path, how: str
) -> None:
    lab = clean_lab
    marker = f"marker-{lab.folder.name}-{tmp_path.name}"
    spin = f'python3 -c "{BUSY}" {marker}'
    with ExitStack() as stack:
        flags = flags_for(lab, tmp_path)
        if how == "node agent":
            agent = stack.enter_context(serving("node"))
            flags += ["--no-up.node", f"--up.targets={','.join(lab.nodes)}=http://{agent.addresses[0]}/metrics"]
        up = stack.enter_context(
            running("up", *flags, environment=lab.environment, wait_for="msg=listening address=http")
        )
        job = lab.submit(ALICE, "--cpus-per-task=2", "--mem=200M", script=f"{spin} &\n{spin} &\nwait")
        until(lambda: len(spinners(marker)) == 2)

        def summary() -> Mapping[str, Any]:
            status, text = get(up, f"jobs/{job}/report.json")
            found: Mapping[str, Any] = json.loads(text)["summary"] if status == 200 else {}
            return found

        def used() -> float:
            return float((summary().get("cpu") or {"time": {}})["time"].get("used") or 0.0)

        until(lambda: used() > 5, 120)
        lab.run("scancel", "--signal=STOP", "--full", str(job))
        until(lambda: all(process.status() == psutil.STATUS_STOPPED for process in spinners(marker)))
        spent = sum(sum(process.cpu_times()[:2]) for process in spinners(marker))
        # A report of a running job is kept for some seconds.
        until(lambda: used() == pytest.approx(spent, rel=0.1, abs=0.5), 90)
        # slurmdbd may have got the step before the job.
        until(lambda: summary()["record"]["cpus"] == 2, 90)
        shown = summary()
        assert 1 == shown["cpu"]["time"]["coverage"]["nodes_measured"]
        assert f'href="/jobs/{job}"' in get(up, "jobs")[1]

        # The command reads what this process records.
        same = [flag for flag in flags if flag.startswith(("--archive", "--recorder", "--slurm"))]
        made = run_slurmscope("report", str(job), "-f", "json", *same, environment=lab.environment)
        assert spent == pytest.approx(json.loads(made.stdout)["summary"]["cpu"]["time"]["used"], rel=0.1, abs=0.5)

        lab.run("scancel", "--signal=CONT", "--full", str(job))
        lab.run("scancel", str(job))
        until(lambda: summary().get("record", {}).get("state") == "CANCELLED", 120)
        assert spent <= used() * 1.1

        up.process.send_signal(signal.SIGTERM)
        assert 0 == up.process.wait(PATIENCE_SECONDS)
