# SPDX-License-Identifier: Apache-2.0
"""The doctor of the portal ends with 1 when something is missing, and says what to do."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from pathlib import Path

from slurmscope import __version__
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.engine import Database
from slurmscope.archive.settings import ArchiveSettings
from tests.processes import run_slurmscope


def examine(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run it as a process of its own: it sets up logging for the whole of it."""
    flags = ("--slurm.bin-path", str(folder), "--archive.url", str(folder / "archive.db"))
    return run_slurmscope("doctor", "portal", *flags, *more)


def test_what_is_missing_is_counted_and_ends_with_1(tmp_path: Path) -> None:
    done = examine(tmp_path)

    assert 1 == done.returncode
    assert "failed  accounting: sacct was not found" in done.stdout
    assert "3 of 7 checks failed; see above.\n" == done.stdout.splitlines(keepends=True)[-1]


def test_healthy_portal_ends_with_0(tmp_path: Path) -> None:
    scripts = {
        "scontrol": "echo 'PrivateData = none'",
        "sacctmgr": "case $2 in configuration) echo 'PrivateData = none';; esac",
        "sdiag": 'echo "sdiag output at now ($(date +%s))"',
    }
    for name in ("sacct", "sacctmgr", "scontrol", "sdiag"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{scripts.get(name, '')}\n")
        (tmp_path / name).chmod(0o755)
    database = Database(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))
    Checkpoints(database).write_checkpoint("accounting read until: lab", str(int(time.time())))
    database.close()

    done = examine(tmp_path)

    assert (0, "All checks passed.") == (done.returncode, done.stdout.splitlines()[-1]), done.stdout


def test_json_has_every_check_and_the_versions_for_a_bug_report(tmp_path: Path) -> None:
    text, done = examine(tmp_path), examine(tmp_path, "--json")

    result = json.loads(done.stdout)
    shown = [line for line in text.stdout.splitlines() if line.startswith(("ok ", "note ", "failed "))]
    assert 1 == done.returncode
    assert ("portal", False, __version__) == (result["role"], result["healthy"], result["slurmscope_version"])
    assert (platform.python_version(), platform.release()) == (result["python_version"], result["kernel"])
    # What is free on the disk may be another number the second time.
    described = [f"{check['status']:6}  {check['name']}: {check['message']}" for check in result["checks"]]
    assert [line for line in shown if " disk:" not in line] == [line for line in described if " disk:" not in line]
    assert all(check["advice"] for check in result["checks"] if not check["ok"])


def test_json_of_an_exporter_ends_with_1_when_a_command_is_missing(tmp_path: Path) -> None:
    done = run_slurmscope("doctor", "cluster", "--json", "--slurm.bin-path", str(tmp_path))

    result = json.loads(done.stdout)
    assert (1, "cluster", False) == (done.returncode, result["role"], result["healthy"])
    assert "reading jobs" in {check["name"] for check in result["checks"] if not check["ok"]}
