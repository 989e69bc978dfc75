# SPDX-License-Identifier: Apache-2.0
"""What tasks do in trials of the detectors; ``detector_work.py FOLDER WORK [NUMBER]``, until the job is cancelled.

Each task writes its PID to ``FOLDER/RANK``.
"""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

STEP_SECONDS = 0.02
MIB = 1 << 20


def main(folder: Path, work: Callable[[Path, float], None], number: float) -> None:
    part = folder / f".{os.environ['SLURM_PROCID']}"
    part.write_text(str(os.getpid()), encoding="utf-8")
    part.rename(folder / os.environ["SLURM_PROCID"])
    while True:
        work(folder, number)


def duty(_folder: Path, share: float) -> None:
    """Use a share of a core."""
    end = time.thread_time() + share * STEP_SECONDS
    while time.thread_time() < end:
        pass
    time.sleep((1 - share) * STEP_SECONDS)


def uneven(folder: Path, share: float) -> None:
    """Use a share of a core, a quarter of that on all tasks but the first."""
    duty(folder, share if os.environ["SLURM_PROCID"] == "0" else share / 4)


def bursts(folder: Path, share: float) -> None:
    """Work for five seconds, and sleep for ten."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        duty(folder, share)
    time.sleep(10)


def sleep(_folder: Path, seconds: float) -> None:
    time.sleep(seconds)


def write(folder: Path, mebibytes: float) -> None:
    """Write a file, as for a checkpoint."""
    with (folder / f"data-{os.getpid()}").open("wb") as file:
        for _ in range(int(mebibytes)):
            file.write(bytes(MIB))
            time.sleep(STEP_SECONDS)


def reread(folder: Path, mebibytes: float) -> None:
    """Read the same file over and over, with a pause."""
    path = folder / f"data-{os.getpid()}"
    if not path.exists():
        write(folder, mebibytes)
    with path.open("rb", buffering=0) as file:
        while file.read(MIB):
            time.sleep(STEP_SECONDS / 4)
    time.sleep(STEP_SECONDS)


def children(_folder: Path, number: float) -> None:
    """Start short programs, one after the other."""
    for _ in itertools.repeat(None, int(number)):
        subprocess.run(["true"], check=True)
        time.sleep(STEP_SECONDS * 5)


WORK = {work.__name__: work for work in (duty, uneven, bursts, sleep, write, reread, children)}

if __name__ == "__main__":
    main(Path(sys.argv[1]), WORK[sys.argv[2]], float(sys.argv[3]))
