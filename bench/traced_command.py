# SPDX-License-Identifier: Apache-2.0
"""Measure what ``slurmscope run`` adds to a command of 50 busy processes, at the default sample rate.

The command's CPU time is that of the report; what ``slurmscope run`` took itself is the rest of what the kernel
charged, its start included. Beside it, the same command is sampled once by psutil, as the older wrapper script did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

PROCESSES = 50
WORK_SECONDS = 1.0
"""CPU time of each process."""
CPU_TARGET = 0.01
MEMORY_TARGET_BYTES = 25_000_000

COMMAND = f"""
import os, time
for _ in range({PROCESSES}):
    if not os.fork():
        while time.process_time() < {WORK_SECONDS}: pass
        os._exit(0)
for _ in range({PROCESSES}):
    os.wait()
"""


def main() -> int:
    """Print the figures and return 1 when a target is missed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        options = ("--quiet", "--format", "json", "--output", str(file))
        process = subprocess.Popen(
            [sys.executable, "-m", "slurmscope", "run", *options, "--", sys.executable, "-S", "-c", COMMAND]
        )
        time.sleep(2)
        psutil_seconds = _sample_with_psutil(process.pid)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        report = json.loads(file.read_bytes())
    command_seconds, processes = report["summary"]["cpu"]["time"]["used"], report["run"]["peak_processes"]
    own_seconds = usage.ru_utime + usage.ru_stime - command_seconds
    ratio = own_seconds / command_seconds
    # That of the largest process: those of the command are smaller than we are.
    resident_bytes = usage.ru_maxrss * 1024
    figures = f"{own_seconds:.2f} s of CPU beside {command_seconds:.1f} s of {processes} processes: {ratio:.2%}"
    print(f"run: {figures} (limit {CPU_TARGET:.0%}); one sample by psutil {psutil_seconds * 1000:.0f} ms")
    print(f"run: {resident_bytes / 1e6:.1f} MB resident (limit {MEMORY_TARGET_BYTES / 1e6:.0f} MB)")
    return 0 if ratio < CPU_TARGET and resident_bytes < MEMORY_TARGET_BYTES else 1


def _sample_with_psutil(pid: int) -> float:
    started = time.process_time()
    for process in psutil.Process(pid).children(recursive=True):
        process.cpu_times(), process.num_threads(), process.memory_info(), process.io_counters()
    return time.process_time() - started


if __name__ == "__main__":
    sys.exit(main())
