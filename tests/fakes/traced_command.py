# SPDX-License-Identifier: Apache-2.0
"""Run commands under ``slurmscope run`` as users do, and read their reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.processes import PATIENCE_SECONDS

SLURMSCOPE = (sys.executable, "-m", "slurmscope")
OF_A_JOB = ("SLURM_", "SLURMD_", "SLURMSCOPE_", "SAMPLE_RATE")
# Measuring the coverage of the command would be part of what it used, and without buffers some faults are not seen.
OF_TESTS = ("COVERAGE_", "PYTHONUNBUFFERED")


def plain_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return our environment without what a job, an earlier setting or the measurement of coverage left in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith((*OF_A_JOB, *OF_TESTS))}
    return {**kept, "SLURMSCOPE_TRACE_SOCKET": "/nonexistent/trace.sock", **(extra or {})}


def run_traced(
    *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run ``slurmscope run`` to its end."""
    return subprocess.run(
        [*prefix, *SLURMSCOPE, "run", *arguments],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        env=plain_environment(environment),
        check=False,
    )


def report_of(folder: Path, *command: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a command, and return its report as JSON."""
    file = folder / "report.json"
    done = run_traced("--format", "json", "--output", str(file), "--", *command, environment=environment)
    assert b"" == done.stderr
    report: dict[str, Any] = json.loads(file.read_bytes())
    return report


def python(program: str) -> tuple[str, ...]:
    """Return the command that runs a small program."""
    return (sys.executable, "-c", program)
