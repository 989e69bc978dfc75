# SPDX-License-Identifier: Apache-2.0
"""Inject faults into the responses of simulated commands."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from slurmscope.simulator.commands.listing import CommandResult, encode

FOLDER = "faults"


# A fault that delays longer would outlive any test that waits for it.
MAX_DELAY_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Describe a fault: wait first, then print only some bytes, add a message, exit with another code."""

    delay_seconds: float = 0.0
    exit_code: int | None = None
    stderr: str = ""
    keep_bytes: int | None = None

    def apply(self, answer: CommandResult) -> CommandResult:
        """Return the answer as the fault leaves it; the delay is up to the caller."""
        code, out, complaints = answer
        return (
            code if self.exit_code is None else self.exit_code,
            out if self.keep_bytes is None else out[: self.keep_bytes],
            complaints + encode(self.stderr),
        )


def write_fault(directory: Path, command: str, fault: Fault | None) -> None:
    """Set the fault of a fake command, or clear it with None; the next call sees it."""
    path = directory / FOLDER / command
    if fault is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(mode=0o700, exist_ok=True)
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(asdict(fault)), encoding="utf-8")
    aside.replace(path)


def read_fault(directory: str, command: str) -> Fault | None:
    """Read the fault of a fake command, if it has one."""
    path = os.path.join(directory, FOLDER, command)  # noqa: PTH118 - without pathlib: see call.py
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            values = json.load(file)
    except FileNotFoundError:
        return None
    fault = Fault(**values)
    return Fault(**{**values, "delay_seconds": min(fault.delay_seconds, MAX_DELAY_SECONDS)})
