# SPDX-License-Identifier: Apache-2.0
"""Read the resource use of this process."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

PROC_SELF = Path("/proc/self")
PROC_STAT = Path("/proc/stat")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnProcess:
    """Hold the resource use of this process."""

    cpu_seconds: float
    resident_bytes: int
    virtual_bytes: int
    start_time_seconds: float
    open_files: int
    open_files_limit: int
    threads: int


def read_own_process() -> OwnProcess | None:
    """Read ``/proc/self``; None where procfs is not mounted."""
    try:
        stat = (PROC_SELF / "stat").read_bytes()
        boot = (PROC_STAT).read_bytes()
        open_files = len(os.listdir(PROC_SELF / "fd"))  # noqa: PTH208 - count only, at every scrape
    except OSError:
        return None
    return parse_own_process(stat, boot, open_files)


def raise_open_files_limit(wanted: int) -> int:
    """Raise the limit of open files as far as this process may; return the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return wanted if soft == resource.RLIM_INFINITY else soft


def parse_own_process(stat: bytes, boot: bytes, open_files: int) -> OwnProcess:
    """Parse the fields after the last parenthesis: the command name may contain any character."""
    fields = stat[stat.rindex(b")") + 2 :].split()
    ticks = os.sysconf("SC_CLK_TCK")
    boot_seconds = next(int(line.split()[1]) for line in boot.splitlines() if line.startswith(b"btime "))
    return OwnProcess(
        cpu_seconds=(int(fields[11]) + int(fields[12])) / ticks,
        resident_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        virtual_bytes=int(fields[20]),
        start_time_seconds=boot_seconds + int(fields[19]) / ticks,
        open_files=open_files,
        open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        threads=int(fields[17]),
    )
