# SPDX-License-Identifier: Apache-2.0
"""Behave in a way that is known beforehand, report it, and wait; a job runs ``python3 known_job.py FOLDER``."""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

MIB = 1024 * 1024
RESIDENT = 300 * MIB
WRITTEN = 50 * MIB
FILES = 40
THREADS = 8
BUSY_SECONDS = 3.0


def main(folder: Path) -> None:
    """Keep two cores busy, fill memory, write through a child that ends, open files, start threads, then wait."""
    # Before there is memory to share: Slurm counts shared pages once for every process.
    workers = [multiprocessing.Process(target=spin) for _ in range(2)]
    for worker in workers:
        worker.start()
    memory = bytearray(RESIDENT)
    memory[::4096] = b"x" * len(range(0, RESIDENT, 4096))  # in place: no moment with twice the memory
    files = [tempfile.TemporaryFile(dir=folder) for _ in range(FILES)]  # noqa: SIM115 - they stay open
    code = f"open({str(folder / 'written')!r}, 'wb').write(bytes({WRITTEN}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(THREADS - 1)]
    for thread in threads:
        thread.start()
    for worker in workers:
        worker.join()
    report = {"pid": os.getpid(), "memory": len(memory), "files": len(files), "cpu_seconds": sum(os.times()[:4])}
    (folder / "report.json.part").write_text(json.dumps(report), encoding="utf-8")
    (folder / "report.json.part").rename(folder / "report.json")
    time.sleep(600)


def spin() -> None:
    """Use one core for a fixed amount of its time."""
    while time.process_time() < BUSY_SECONDS:
        pass


if __name__ == "__main__":
    main(Path(sys.argv[1]))
