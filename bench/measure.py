# SPDX-License-Identifier: Apache-2.0
"""Measure a running exporter, and functions of this process, by the CPU they take.

CPU seconds instead of wall time, and the minimum of several rounds: the machine may be busy with other things. Every
limit is a ratio measured in the same run: to another way of doing the same thing, or to a reference, a fixed piece of
plain Python (:func:`reference_seconds`). On a quiet core of 2.8 GHz one reference takes about 32 ms.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROUNDS = 3
REFERENCE_ROUNDS = 9
PATIENCE_SECONDS = 120
LISTENING = re.compile(rb"address=(127\.0\.0\.1:\d+)")


@contextmanager
def running_exporter(
    *flags: str,
    role: str = "cluster",
    prefix: Sequence[str] = (),
    program: Sequence[str] = (sys.executable, "-m", "slurmscope"),
) -> Iterator[tuple[int, str]]:
    """Run an exporter on a free port, by another command if there is one; give its process id and address."""
    argv = [*prefix, *program, role, "--web.listen-address", "127.0.0.1:0", *flags]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            found = next((match for line in process.stderr if (match := LISTENING.search(line))), None)
            if found is None:
                raise RuntimeError(f"{' '.join(argv)} ended before it listened")
            yield process.pid, found[1].decode()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def scrape(address: str, query: str = "") -> bytes:
    """Fetch a page as Prometheus does, compressed."""
    request = urllib.request.Request(f"http://{address}/metrics{query}", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        page: bytes = answer.read()
    return page


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU seconds of a process, without its children; the kernel counts them in hundredths."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes_of(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def least_seconds(*variants: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Return each variant's least CPU seconds; by turns, so that a busy machine slows all alike.

    The garbage collector rests meanwhile, as in timeit: what it costs depends on what else this process holds.
    """
    least = [float("inf")] * len(variants)
    for _ in range(rounds):
        for index, variant in enumerate(variants):
            gc.collect()
            gc.disable()
            started = time.process_time()
            variant()
            least[index] = min(least[index], time.process_time() - started)
            gc.enable()
    return least


def reference_seconds(rounds: int = REFERENCE_ROUNDS) -> float:
    """Return the CPU seconds of one reference on this machine now.

    The median, not the minimum: a short piece of work finds a quiet moment more easily than a long one.
    """
    return statistics.median(least_seconds(_reference, rounds=1)[0] for _ in range(rounds))


def _reference() -> int:
    """Split and add up 30,000 rows of text, the work that parsers do."""
    rows = b"".join(b"physics\x1fuser%d\x1fRUNNING\x1e%d\x1e%d\n" % (n % 500, n % 64, n) for n in range(30_000))
    sums: dict[tuple[str, ...], int] = {}
    for row in rows.split(b"\n")[:-1]:
        names, cpus, _ = row.split(b"\x1e")
        key = tuple(names.decode().split("\x1f"))
        sums[key] = sums.get(key, 0) + int(cpus)
    return len(sums)


def judge(what: str, figure: str, target: str, *, is_met: bool) -> bool:
    """Print a figure with its target, and return whether it is met."""
    print(f"{what}: {figure} (target: {target}{'' if is_met else ', MISSED'})")
    return is_met


def judge_ratio(what: str, figure: str, ratio: float, limit: float, of: str) -> bool:
    """Print a figure as a ratio to something measured in the same run, and return whether it is within its limit."""
    return judge(what, f"{figure}, {ratio:.3g} of {of}", f"at most {limit:g}", is_met=ratio <= limit)


def judge_seconds(what: str, seconds: float, limit: float, reference: float) -> bool:
    """Print seconds as a number of references, and return whether they are within their limit."""
    figure = f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
    ratio = seconds / reference
    target = f"at most {limit:g} references, one takes {reference * 1000:.0f} ms now"
    return judge(what, f"{figure}, {ratio:.2f} references", target, is_met=ratio <= limit)
