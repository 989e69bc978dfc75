# SPDX-License-Identifier: Apache-2.0
"""What real programs wrote is counted once, whoever waits for whom."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmscope.node.procfs.job_processes import JobProcesses
from slurmscope.node.procfs.reader import ProcessReader
from tests.processes import until
from tests.unit.node.script import Script

MEGABYTE = 1_000_000
# What an interpreter writes besides, for all processes of a test together.
TOLERANCE_BYTES = 100_000


def written_by(job: JobProcesses, program: Script) -> int:
    use = job.read(program.pids())
    assert use is not None
    assert use.io is not None
    return use.io.write_chars


@pytest.mark.parametrize(
    ("name", "setup", "after"),
    [
        ("waited for", "", "os.waitpid(pid, 0)"),
        ("ignored", "signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "time.sleep(0.1)"),
        ("left a zombie", "", "time.sleep(0.1)"),
    ],
)
def test_child_that_wrote_50_megabytes_is_counted_once(
    script: Callable[[str], Script], reader: ProcessReader, name: str, setup: str, after: str
) -> None:
    program = script(f"""
{setup}
pid = child(lambda: write(50_000_000))
{after.replace("time.sleep(0.1)", "time.sleep(1)")}
print("over", flush=True)
sys.stdin.readline()
try:
    os.waitpid(pid, 0)
except ChildProcessError:
    pass
print("waited", flush=True)
sys.stdin.readline()
""")
    job = JobProcesses(reader)
    program.expect("ready")
    seen = [written_by(job, program)]
    program.go_on()
    program.expect("over")
    seen += [written_by(job, program) for _ in range(3)]
    program.go_on()
    program.expect("waited")
    seen += [written_by(job, program) for _ in range(3)]

    assert sorted(seen) == seen
    assert all(50 * MEGABYTE <= amount <= 50 * MEGABYTE + TOLERANCE_BYTES for amount in seen)


@pytest.mark.parametrize("middle_waits", [True, False])
def test_two_levels_below_are_counted_once(
    script: Callable[[str], Script], reader: ProcessReader, middle_waits: bool
) -> None:
    program = script(f"""
def middle():
    if not {middle_waits}:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        write(30_000_000)
        print("ready", flush=True)
        sys.stdin.readline()
        os._exit(0)
    write(20_000_000)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass

pid = os.fork()
if pid == 0:
    middle()
    os._exit(0)
write(10_000_000)
os.waitpid(pid, 0)
print("over", flush=True)
sys.stdin.readline()
""")
    job = JobProcesses(reader)
    program.expect("ready")
    until(lambda: written_by(job, program) >= 60 * MEGABYTE)
    program.go_on()
    program.expect("over")
    seen = [written_by(job, program) for _ in range(3)]

    assert sorted(seen) == seen
    assert all(60 * MEGABYTE <= amount <= 60 * MEGABYTE + TOLERANCE_BYTES for amount in seen)


def test_child_that_was_never_seen_is_counted_where_its_parent_waits(
    script: Callable[[str], Script], reader: ProcessReader
) -> None:
    program = script("""
print("before", flush=True)
sys.stdin.readline()
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        write(4_000_000)
        os._exit(0)
    os.waitpid(pid, 0)
print("over", flush=True)
sys.stdin.readline()
""")
    job = JobProcesses(reader)
    program.expect("before")
    before = written_by(job, program)
    program.go_on()
    program.expect("over")

    assert 0 <= written_by(job, program) - before - 20 * MEGABYTE <= TOLERANCE_BYTES


def test_stepd_holds_the_io_of_its_tasks_and_is_no_process_of_the_job(
    script: Callable[[str], Script], reader: ProcessReader
) -> None:
    program = script("""
write(3_000_000)
pid = child(lambda: write(5_000_000))
os.waitpid(pid, 0)
print("over", flush=True)
sys.stdin.readline()
""")
    job = JobProcesses(reader)
    program.expect("ready")
    during = job.read(program.pids() - {program.pid}, {program.pid})
    program.go_on()
    program.expect("over")
    after = job.read((), {program.pid})

    assert during is not None
    assert after is not None
    assert (1, 0) == (during.processes, after.processes)
    assert during.io is not None
    assert after.io is not None
    assert 0 <= during.io.write_chars - 5 * MEGABYTE <= TOLERANCE_BYTES
    assert 0 <= after.io.write_chars - 5 * MEGABYTE <= TOLERANCE_BYTES


TRANSFERS = {
    "device": "copy('/dev/zero', '/dev/null')",
    "tmpfs": "copy('/dev/zero', memory); copy(memory, '/dev/null')",
    "pipe": "through_a_pipe()",
    "file": "copy('/dev/zero', disk); copy(disk, '/dev/null')",
}


@pytest.mark.parametrize("where", list(TRANSFERS))
def test_only_bytes_of_files_count_as_storage(
    script: Callable[[str], Script], reader: ProcessReader, tmp_path: Path, where: str
) -> None:
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True).stdout
    if where == "file" and kind.strip() in ("tmpfs", "ramfs"):
        pytest.skip("temporary files are in memory here")
    program = script(f"""
memory, disk = "/dev/shm/slurmscope-test-%d" % os.getpid(), {str(tmp_path / "disk")!r}

def copy(source, target):
    with open(source, "rb", buffering=0) as reading, open(target, "wb", buffering=0) as writing:
        for _ in range(5):
            writing.write(reading.read(1_000_000))
        if target == disk:
            os.fsync(writing.fileno())
            os.posix_fadvise(writing.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

def through_a_pipe():
    reading, writing = os.pipe()
    for _ in range(100):
        os.write(writing, bytes(50_000))
        os.read(reading, 50_000)

{TRANSFERS[where]}
if os.path.exists(memory):
    os.unlink(memory)
print("over", flush=True)
sys.stdin.readline()
""")
    program.expect("over")
    use = JobProcesses(reader).read(program.pids())

    assert use is not None
    assert use.io is not None
    assert min(use.io.read_chars, use.io.write_chars) >= 5 * MEGABYTE
    # The interpreter may come from the disk too.
    assert (use.io.write_bytes >= 5 * MEGABYTE) == (where == "file")
    assert where != "file" or use.io.read_bytes >= 4 * MEGABYTE


@pytest.mark.parametrize(("is_waited_for", "kept"), [(True, 5 * MEGABYTE), (False, 0)])
def test_restarted_agent_counts_ended_children_that_their_parent_waited_for(
    script: Callable[[str], Script], reader: ProcessReader, is_waited_for: bool, kept: int
) -> None:
    """Others are lost with the agent that saw them, unless the next one is told of them."""
    program = script(f"""
if not {is_waited_for}:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
pid = child(lambda: write(5_000_000))
try:
    os.waitpid(pid, 0)
except ChildProcessError:
    pass
print("over", flush=True)
sys.stdin.readline()
""")
    first_agent = JobProcesses(reader)
    program.expect("ready")
    written_by(first_agent, program)
    program.go_on()
    program.expect("over")
    before = [written_by(first_agent, program) for _ in range(3)][-1]
    after = written_by(JobProcesses(reader), program)
    told = JobProcesses(reader)
    told.resume(first_agent.keep())

    assert before <= written_by(told, program) < before + TOLERANCE_BYTES
    assert 5 * MEGABYTE <= before < 5 * MEGABYTE + TOLERANCE_BYTES
    assert kept <= after < kept + TOLERANCE_BYTES
