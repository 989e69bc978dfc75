# SPDX-License-Identifier: Apache-2.0
"""Use known CPU time and memory, and write down what the kernel counted; a job runs ``traced_task.py FILE SECONDS``."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

HELD_BYTES = 64 << 20
WRITTEN_BYTES = 8 << 20
STAY_SECONDS = 3.0
"""Time without work, in which both exporters are scraped."""


def main(file: str, seconds: float) -> None:
    """Hold memory in rank 0, work as many seconds as the rank says, and write one line."""
    rank = int(os.environ["SLURM_PROCID"])
    held = b"x" * (HELD_BYTES if rank == 0 else 1)
    with tempfile.TemporaryFile(dir=Path(file).parent) as stream:
        stream.write(bytes(WRITTEN_BYTES))
        stream.flush()
        os.fsync(stream.fileno())
    while time.process_time() < seconds + rank:
        pass
    time.sleep(STAY_SECONDS if held else 0.0)
    used = resource.getrusage(resource.RUSAGE_SELF)
    counted = dict(line.split(": ") for line in Path("/proc/self/io").read_text("ascii").splitlines())
    cpu_seconds = used.ru_utime + used.ru_stime
    line = f"{os.environ['SLURMD_NODENAME']} {rank} {os.getpid()} {cpu_seconds} {counted['write_bytes']}\n"
    with Path(file).open("a", encoding="utf-8") as lines:
        lines.write(line)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
