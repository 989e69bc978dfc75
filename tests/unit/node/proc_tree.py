# SPDX-License-Identifier: Apache-2.0
"""Write a small procfs, and make samples of processes by hand."""

from __future__ import annotations

from pathlib import Path

from slurmscope.node.procfs.stat import IoCounts, ProcessSample

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "procfs" / "linux-6.1"


def sample(
    pid: int,
    parent: int = 1,
    *,
    start: int = 100,
    command: str = "work",
    ticks: int = 0,
    faults: int = 50,
    child_faults: int = 0,
    state: str = "S",
) -> ProcessSample:
    """Make what a process would show."""
    return ProcessSample(
        pid=pid,
        parent_id=parent,
        group_id=pid,
        session_id=pid,
        start_ticks=start,
        state=state,
        command=command,
        threads=1,
        user_ticks=ticks,
        system_ticks=0,
        minor_faults=faults,
        major_faults=0,
        child_minor_faults=child_faults,
        resident_pages=10,
        processor=0,
        uid=1000,
        text=b"",
    )


def written(amount: int) -> IoCounts:
    """Return the I/O of a process that wrote so much, in two writes."""
    return IoCounts(0, amount, 0, 2 if amount else 0, 0, 0)


class ProcTree:
    """Write the files that the kernel would show."""

    def __init__(self, root: Path, *, uptime_seconds: float = 1000.0, memory_kilobytes: int = 4_000_000) -> None:
        self.root = root
        (root / "1").mkdir(parents=True)
        (root / "uptime").write_text(f"{uptime_seconds:.2f} 1.00\n")
        (root / "meminfo").write_text(f"MemTotal:       {memory_kilobytes} kB\nMemFree:  1 kB\n")

    def add(
        self,
        pid: int,
        group: int,
        *,
        command: str = "work",
        ticks: int = 0,
        pages: int = 0,
        start: int = 0,
        threads: int = 1,
        parent: int = 1,
        io: IoCounts | None = None,
        state: str = "S",
    ) -> None:
        """Write a process, or write it anew."""
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        middle = f"{state} {parent} {group} {group} 0 -1 0 5 0 0 0 {ticks} 0 0 0 20 0 {threads} 0 {start} 4096 {pages}"
        (folder / "stat").write_text(f"{pid} ({command}) {middle} {'0 ' * 30}\n")
        if io is not None:
            names = ("rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes")
            (folder / "io").write_text("".join(f"{name}: {value}\n" for name, value in zip(names, io, strict=True)))

    def remove(self, pid: int) -> None:
        """End a process."""
        for file in (self.root / str(pid)).iterdir():
            file.unlink()
        (self.root / str(pid)).rmdir()
