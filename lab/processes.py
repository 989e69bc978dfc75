# SPDX-License-Identifier: Apache-2.0
"""Start daemons, and end them by process id without ever hitting a stranger.

A process id alone is not an identity, the kernel reuses it; together with the start time from /proc it is one.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.waiting import wait_until

PROC = Path("/proc")
TERM_SECONDS = 10.0
KILL_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Identify one process for good."""

    pid: int
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        """Tell whether the process still runs; a zombie does not.

        A killed process is a zombie while its other threads are still ending, and until then its sockets listen.
        """
        fields = _stat_fields(self.pid)
        if fields is None or int(fields[19]) != self.start_ticks:
            return False
        state, thread_count = fields[0], int(fields[17])
        return state not in ("Z", "X") or thread_count > 1

    def send(self, number: signal.Signals) -> None:
        """Send a signal, or nothing when the process is gone."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """Describe a daemon well enough to start it again."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    log_file: Path
    process: Process | None = None

    @property
    def is_alive(self) -> bool:
        """Tell whether the daemon runs."""
        return self.process is not None and self.process.is_alive

    def log_tail(self, length: int = 2000) -> str:
        """Give the end of what the daemon wrote."""
        with contextlib.suppress(OSError):
            return self.log_file.read_bytes()[-length:].decode(errors="replace")
        return ""


def spawn(argv: Iterable[str], environment: Mapping[str, str], log_file: Path) -> subprocess.Popen[bytes]:
    """Start a program in its own session, its output appended to a file."""
    with log_file.open("ab") as log:
        return subprocess.Popen(
            list(argv),
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def identify(pid: int) -> Process:
    """Pin down a process that runs now."""
    fields = _stat_fields(pid)
    if fields is None:
        raise LabError(f"process {pid} is gone")
    return Process(pid=pid, start_ticks=int(fields[19]))


def end_processes(processes: Iterable[Process]) -> None:
    """Ask processes to end, then force those that did not; wait until all are gone."""
    remaining = [process for process in processes if process.is_alive]
    for process in remaining:
        process.send(signal.SIGTERM)
        # A stopped process receives its SIGTERM only when it goes on.
        process.send(signal.SIGCONT)
    with contextlib.suppress(LabError):
        _wait_gone(remaining, TERM_SECONDS)
    kill_processes(remaining)


def kill_processes(processes: Iterable[Process]) -> None:
    """Kill processes and wait until they are gone."""
    remaining = [process for process in processes if process.is_alive]
    for process in remaining:
        process.send(signal.SIGKILL)
    _wait_gone(remaining, KILL_SECONDS)


def find_marked(marker: str) -> Iterator[Process]:
    """Find the processes that were started with this NAME=value in their environment, and all their descendants."""
    wanted = marker.encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            if wanted in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found.add(pid)
        if fields := _stat_fields(pid):
            parents[pid] = int(fields[1])
    for pid in parents:
        if found & _line_of(pid, parents):
            with contextlib.suppress(LabError):
                yield identify(pid)


def _wait_gone(processes: Iterable[Process], timeout_seconds: float) -> None:
    waiting = list(processes)
    names = ", ".join(str(process.pid) for process in waiting)
    wait_until(
        lambda: not any(process.is_alive for process in waiting),
        f"the end of process {names}",
        timeout_seconds=timeout_seconds,
    )


def _line_of(pid: int, parents: Mapping[int, int]) -> set[int]:
    """Give a process and its ancestors; the visited set also bounds the loop, should ids be reused meanwhile."""
    line: set[int] = set()
    while pid not in line and pid in parents:
        line.add(pid)
        pid = parents[pid]
    return line


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def _stat_fields(pid: int) -> list[str] | None:
    """Give the fields after the command name, which may hold blanks and brackets: state 0, threads 17, start 19."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
