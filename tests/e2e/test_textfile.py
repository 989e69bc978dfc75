# SPDX-License-Identifier: Apache-2.0
"""Check page files with a real node_exporter as reader, and with a kill at every system call of a write."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab.prometheus import run_node_exporter
from slurmscope.exporter.outputs import remove_stale_parts, write_textfile
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands.executables import write_fake_commands
from tests.processes import running, until, values
from tests.requirements import require_program

WRITER = """
import sys
from pathlib import Path
from slurmscope.core.errors import OutputError
from slurmscope.exporter.outputs import write_textfile
try:
    write_textfile(Path(sys.argv[1]), [b"new 2\\n" * 1000] * 3)
except OutputError as error:
    sys.exit(str(error).removeprefix(sys.argv[1] + " "))
"""
RENAMES = "rename,renameat,renameat2"
OLD, NEW = b"old 1\n" * 3000, b"new 2\n" * 3000


def read_samples(page: bytes) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if not sample.labels
    }


def test_node_exporter_reads_whole_pages_while_they_are_replaced(tmp_path: Path) -> None:
    page = tmp_path / "slurm.prom"
    (tmp_path / ".slurm.prom.0123456789abcdef.part").write_bytes(b"half a li")  # left by an earlier life
    write_textfile(page, [b"first 0\n", b"last 0\n"])
    is_over = threading.Event()

    def write() -> None:
        turn = 0
        while not is_over.wait(0.001):
            turn += 1
            filling = b"# filling\n" * 20_000
            write_textfile(page, [b"first %d\n" % turn, filling, b"last %d\n" % turn])

    with run_node_exporter(tmp_path) as exporter:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            scrapes = [read_samples(exporter.get("/metrics")) for _ in range(40)]
        finally:
            is_over.set()
            writer.join(60)
    assert {0.0} == {scrape["node_textfile_scrape_error"] for scrape in scrapes}
    assert [scrape["first"] for scrape in scrapes] == [scrape["last"] for scrape in scrapes]
    assert len({scrape["first"] for scrape in scrapes}) > 1


def test_cluster_and_node_share_the_folder_of_a_node_exporter(tmp_path: Path) -> None:
    folder, commands = tmp_path / "textfiles", tmp_path / "slurm"
    folder.mkdir()
    write_fake_commands(simulate(Shape(), now=int(time.time())), commands)
    cluster = (
        "cluster",
        "--slurm.bin-path",
        str(commands),
        "--output.textfile",
        str(folder / "slurm.prom"),
        "--interval=1s",
        "--slurm.poll-limit=1s",
    )
    node = ("node", "--output.textfile", str(folder / "jobs.prom"))

    with running(*cluster), running(*node), run_node_exporter(folder) as exporter:
        until(lambda: 2 == len(list(folder.glob("*.prom"))))
        # On a busy machine a collector may need more than one interval.
        until(lambda: values(exporter.get("/metrics").decode(), "slurm_user_state_total"))
        page = exporter.get("/metrics").decode()
        log = (folder / "node_exporter.log").read_text(encoding="utf-8")

    assert [] == [line for line in log.splitlines() if "level=error" in line]
    assert {(): 0.0} == values(page, "node_textfile_scrape_error")
    # Both are there whole, and the process metrics are those of node_exporter alone.
    assert values(page, "slurm_user_state_total")
    assert {"cluster", "node"} <= {value for labels in values(page, "slurmscope_build_info") for value in labels}
    assert 1 == len(values(page, "process_resident_memory_bytes"))


def write_traced(page: Path, calls: str, fault: str) -> subprocess.CompletedProcess[str]:
    """Replace the page in a process whose system calls go wrong as strace is told."""
    argv = [require_program("strace"), "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:{fault}"]
    argv += [sys.executable, "-B", "-c", WRITER, str(page)]
    page.write_bytes(OLD)
    # Without our environment the writer makes no calls of its own, say for coverage.
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin"})


@pytest.mark.parametrize(("calls", "times"), [("write", 3), ("fchmod", 1), ("fsync", 2), (RENAMES, 1)])
def test_kill_at_any_call_leaves_the_old_or_the_new_page(tmp_path: Path, calls: str, times: int) -> None:
    page = tmp_path / "slurm.prom"
    for turn in range(1, times + 1):
        ended = write_traced(page, calls, f"signal=KILL:when={turn}")
        assert -signal.SIGKILL == ended.returncode, ended.stderr
        # The kill comes as the call is entered, so only the second fsync, that of the folder, is after the rename.
        is_after_rename = (calls, turn) == ("fsync", 2)
        assert (NEW if is_after_rename else OLD) == page.read_bytes()
        assert (0 if is_after_rename else 1) == remove_stale_parts(page)
    assert [page] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("calls", "fault", "told"),
    [
        (
            "write",
            "error=EDQUOT:when=2",
            "cannot be written: Disk quota exceeded; free some space, the next write tries again",
        ),
        ("write", "error=EIO:when=3", "cannot be written: Input/output error"),
        ("fchmod", "error=EPERM", "cannot be written: Operation not permitted"),
        (
            "fsync",
            "error=ENOSPC:when=1",
            "cannot be written: No space left on device; free some space, the next write tries again",
        ),
        (RENAMES, "error=EROFS", "cannot be replaced: Read-only file system"),
        ("fsync", "error=EIO:when=2", "is written, but may not survive a power failure: Input/output error"),
        ("fsync", "error=EINVAL:when=2", ""),
    ],
)
def test_fault_of_any_call_is_told_and_leaves_no_part(tmp_path: Path, calls: str, fault: str, told: str) -> None:
    page = tmp_path / "slurm.prom"
    ended = write_traced(page, calls, fault)
    assert (bool(told), told) == (ended.returncode != 0, ended.stderr.strip())
    # Only what goes wrong with the folder comes too late to keep the old page.
    assert (OLD if told.startswith("cannot") else NEW) == page.read_bytes()
    assert [page] == list(tmp_path.iterdir())
