# SPDX-License-Identifier: Apache-2.0
"""Keep two cores busy and hold some memory for a while; a job runs ``python3 half_idle_job.py FILE SECONDS MIB``.

What it really used goes into the file: seconds of CPU and of the clock.
"""

import json
import multiprocessing
import os
import sys
import time
from pathlib import Path


def main(file: Path, seconds: float, mebibytes: int) -> None:
    """Work, hold, and tell."""
    began = time.time()
    # Before there is memory to share: nobody shall count it twice.
    workers = [multiprocessing.Process(target=spin, args=(seconds,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    memory = bytearray(mebibytes << 20)
    memory[::4096] = b"x" * len(range(0, len(memory), 4096))
    for worker in workers:
        worker.join()
    told = {"cpu_seconds": sum(os.times()[:4]), "seconds": time.time() - began, "memory": len(memory)}
    part = file.with_suffix(".part")
    part.write_text(json.dumps(told), encoding="utf-8")
    part.rename(file)


def spin(seconds: float) -> None:
    """Work until the clock says so."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
