# SPDX-License-Identifier: Apache-2.0
"""Be a program of known behaviour: ``python3 resubmission_work.py hold 200 10`` holds 200 MiB for ten seconds."""

import hashlib
import mmap
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

MEBIBYTE = 1 << 20
BLOCK = bytes(MEBIBYTE)


def hold(mebibytes: float, seconds: float) -> None:
    """Hold memory from the beginning to the end."""
    held = bytearray(int(mebibytes) * MEBIBYTE)
    time.sleep(seconds)
    del held


def spike(mebibytes: float, before: float, after: float) -> None:
    """Touch memory for an instant between two pauses."""
    time.sleep(before)
    with mmap.mmap(-1, int(mebibytes) * MEBIBYTE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as touched:
        for offset in range(0, len(touched), mmap.PAGESIZE):
            touched[offset] = 1
    time.sleep(after)


def grow(mebibytes: float, per_second: float) -> None:
    """Take more memory from second to second, up to an amount."""
    held = []
    for _ in range(int(mebibytes / per_second * 4)):
        held.append(bytearray(int(per_second / 4 * MEBIBYTE)))
        time.sleep(0.25)


def spin(threads: float, seconds: float) -> None:
    """Compute in several threads; hashing lets go of Python's lock."""
    end = time.monotonic() + seconds

    def compute() -> None:
        while time.monotonic() < end:
            hashlib.sha256(BLOCK)

    _run_threads(int(threads), compute)


def pinned(threads: float, seconds: float) -> None:
    """Compute in several threads that are all bound to one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    spin(threads, seconds)


def sleepers(threads: float, seconds: float) -> None:
    """Have threads that wait."""
    _run_threads(int(threads), lambda: time.sleep(seconds))


def forks(seconds: float) -> None:
    """Start one short process after the other."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def files(seconds: float) -> None:
    """Write, read and remove small files."""
    end = time.monotonic() + seconds
    folder = Path(tempfile.mkdtemp(dir="."))
    while time.monotonic() < end:
        for number in range(200):
            (folder / str(number)).write_bytes(b"x" * 100)
        for file in folder.iterdir():
            file.read_bytes()
            file.unlink()
    folder.rmdir()


def shared_memory(mebibytes: float, seconds: float) -> None:
    """Keep a file in /dev/shm, which is memory of the job."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        for _ in range(int(mebibytes)):
            file.write(BLOCK)
        file.flush()
        time.sleep(seconds)


def cache(mebibytes: float, seconds: float) -> None:
    """Write a large file and read it again and again: the kernel caches it."""
    end = time.monotonic() + seconds
    with tempfile.NamedTemporaryFile(dir=".") as file:
        for _ in range(int(mebibytes)):
            file.write(BLOCK)
        file.flush()
        os.fsync(file.fileno())
        while time.monotonic() < end:
            file.seek(0)
            while file.read(MEBIBYTE):
                pass
            time.sleep(0.5)


def pipe(mebibytes: float, seconds: float) -> None:
    """Move bytes from /dev/zero through a pipe to /dev/null."""
    with os.popen(f"head -c {int(mebibytes)}M /dev/zero | cat > /dev/null") as moved:
        moved.read()
    time.sleep(seconds)


def one_of(work: str, *arguments: str) -> None:
    """Work in the first task of a step; the others have nothing to do until it has ended."""
    if os.environ.get("SLURM_PROCID") == "0":
        WORK[work](*map(float, arguments))


def _run_threads(count: int, target: Callable[[], None]) -> None:
    threads = [threading.Thread(target=target) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


WORK: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (hold, spike, grow, spin, pinned, sleepers, forks, files, shared_memory, cache, pipe)
}

if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    if name == "one_of":
        one_of(*rest)
    else:
        WORK[name](*map(float, rest))
