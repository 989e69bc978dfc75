# SPDX-License-Identifier: Apache-2.0
"""The doctor of the portal ends with 1 when something is missing, and says what to do."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from slurmscope.store.archive.checkpoints import Checkpoints
from slurmscope.store.archive.engine import Database
from slurmscope.store.archive.settings import ArchiveSettings
from tests.processes import run_slurmscope


def examine(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it as a process of its own: it sets up logging for the whole of it."""
    flags = ("--slurm.bin-path", str(folder), "--archive.url", str(folder / "archive.db"))
    return run_slurmscope("doctor", "portal", *flags)


def test_what_is_missing_is_counted_and_ends_with_1(tmp_path: Path) -> None:
    done = examine(tmp_path)

    assert 1 == done.returncode
    assert "missing  archive: there is none to read" in done.stdout
    assert "3 of 5 are missing.\n" == done.stdout.splitlines(keepends=True)[-1]


def test_healthy_portal_ends_with_0(tmp_path: Path) -> None:
    for name in ("sacct", "sacctmgr"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    database = Database(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))
    Checkpoints(database).write_checkpoint("accounting read until", str(int(time.time())))
    database.close()

    done = examine(tmp_path)

    assert (0, "Nothing is missing.") == (done.returncode, done.stdout.splitlines()[-1]), done.stdout
