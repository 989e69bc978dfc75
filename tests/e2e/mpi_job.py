# SPDX-License-Identifier: Apache-2.0
"""Meet the other tasks of an MPI job at barriers, until a file appears; ``mpi_job.py FOLDER [SECONDS]``.

Each task writes its PID to ``FOLDER/RANK``. With seconds of work between barriers, it adds to ``FOLDER/RANK.work`` how
long each piece took. MPICH is called directly: nothing is compiled.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

WORLD = 0x44000000
STATUS_IGNORE = 1
PAUSE_SECONDS = 0.02


def main(folder: Path, work_seconds: float) -> None:
    mpi = ctypes.CDLL("libmpich.so.12")
    mpi.MPI_Init(None, None)
    rank = ctypes.c_int()
    mpi.MPI_Comm_rank(WORLD, ctypes.byref(rank))
    part = folder / f".{rank.value}"
    part.write_text(str(os.getpid()), encoding="utf-8")
    part.rename(folder / str(rank.value))
    with (folder / f"{rank.value}.work").open("w", encoding="ascii", buffering=1) as pieces:
        while not (folder / "end").exists():
            if work_seconds:
                pieces.write(f"{work(work_seconds)}\n")
            meet(mpi)
    os._exit(0)  # the others may have seen the file later


def work(seconds: float) -> float:
    """Use so much CPU time, and return how long that took."""
    began, end = time.monotonic(), time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return time.monotonic() - began


def meet(mpi: ctypes.CDLL) -> None:
    """Wait for all tasks, without using the cores that other tests need."""
    request, is_done = ctypes.c_int(), ctypes.c_int(0)
    mpi.MPI_Ibarrier(WORLD, ctypes.byref(request))
    while not is_done.value:
        time.sleep(PAUSE_SECONDS)
        mpi.MPI_Test(ctypes.byref(request), ctypes.byref(is_done), ctypes.c_void_p(STATUS_IGNORE))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float((sys.argv[2:] or ["0"])[0]))
