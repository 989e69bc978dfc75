# SPDX-License-Identifier: Apache-2.0
"""What slurmstepd reads to sample a job is not the job's I/O; what its children did is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slurmscope.node.procfs.io_totals import StepdIo
from slurmscope.node.procfs.job_processes import JobProcesses
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stat import NO_IO, IoCounts
from tests.unit.node.script import Script

OWN_READS = 20_000
# A few reads of the child itself, of the interpreter, and those between two files that we read.
TOLERANCE = 2_000

# Like slurmstepd, it has a thread that reads all the time, and a task that it waits for.
STEPD = f"""
import threading

def read():
    with open("/proc/self/stat", "rb", buffering=0) as file:
        for _ in range({OWN_READS}):
            os.pread(file.fileno(), 10, 0)

turns = [threading.Semaphore(0), threading.Semaphore(0)]
done = threading.Semaphore(0)

def sample():
    for turn in turns:
        turn.acquire()
        read()
        done.release()

has_written, writing = os.pipe()
pid = os.fork()
if pid == 0:
    write(5_000_000)
    os.write(writing, b".")
    time.sleep(600)
sampler = threading.Thread(target=sample)
sampler.start()
os.read(has_written, 1)
# Every later read finds the thread.
print("ready", flush=True)
"""


def reads_of(job: JobProcesses, program: Script) -> tuple[int, int]:
    """Return the reads and the bytes written of the job whose slurmstepd is the program."""
    use = job.read(program.pids() - {program.pid}, [program.pid])
    assert use is not None
    assert use.io is not None
    return use.io.reads, use.io.write_chars


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("turns[0].release(); done.acquire(); os.waitpid(pid, 0)", id="thread goes on"),
        pytest.param(
            "[turn.release() for turn in turns]; sampler.join(); os.waitpid(pid, 0)", id="thread ends with the task"
        ),
    ],
)
def test_own_reads_of_slurmstepd_are_not_the_jobs(
    script: Callable[[str], Script], reader: ProcessReader, end: str
) -> None:
    program = script(f"""{STEPD}
sys.stdin.readline()
os.kill(pid, signal.SIGKILL)
{end}
print("over", flush=True)
sys.stdin.readline()
[turn.release() for turn in turns]
""")
    job = JobProcesses(reader)
    program.expect("ready")
    reads_of(job, program)
    program.go_on()
    program.expect("over")
    seen = [reads_of(job, program) for _ in range(3)]
    program.go_on()

    assert all(reads < TOLERANCE for reads, _ in seen)
    assert all(5_000_000 <= written < 5_100_000 for _, written in seen)


def test_running_threads_are_slurmstepds_own() -> None:
    stepd = StepdIo()
    threads = {1: NO_IO._replace(reads=70), 2: NO_IO._replace(reads=25)}
    assert NO_IO._replace(reads=5, writes=3) == stepd.received(NO_IO._replace(reads=100, writes=3), threads)
    assert not stepd.has_lost_thread


def test_ended_thread_stays_slurmstepds_own() -> None:
    stepd = StepdIo()
    stepd.received(NO_IO._replace(reads=95), {1: NO_IO._replace(reads=70), 2: NO_IO._replace(reads=25)})
    received = [stepd.received(NO_IO._replace(reads=110), {1: NO_IO._replace(reads=75)}) for _ in range(2)]
    # 10 are its own, unseen, or of a child: they are received, but it is known that a thread was lost.
    assert [10, 10] == [counts.reads for counts in received]
    assert not stepd.has_lost_thread


def test_loss_of_a_thread_is_known_at_once_and_once() -> None:
    stepd, lost = StepdIo(), []
    for threads in ({1: NO_IO, 2: NO_IO}, {1: NO_IO}, {1: NO_IO}, {}):
        stepd.received(NO_IO, threads)
        lost.append(stepd.has_lost_thread)
    assert [False, True, False, True] == lost


def test_threads_that_were_faster_give_nothing_negative() -> None:
    assert NO_IO == StepdIo().received(IoCounts(1, 1, 1, 1, 1, 1), {1: IoCounts(2, 2, 2, 2, 2, 2)})


def test_task_that_was_seen_before_it_executed_its_program_is_counted(
    script: Callable[[str], Script], reader: ProcessReader
) -> None:
    program = script("""
os.set_inheritable(0, True)
pid = os.fork()
if pid == 0:
    print("forked", flush=True)
    sys.stdin.readline()
    write(5_000_000)
    print("written", flush=True)
    sys.stdin.readline()
    write(2_000_000)
    print("more", flush=True)
    sys.stdin.readline()
    os._exit(0)
os.waitpid(pid, 0)
print("over", flush=True)
sys.stdin.readline()
""")
    job = JobProcesses(reader)
    program.expect("forked")
    (task,) = program.pids() - {program.pid}

    def written(stepds: list[int]) -> int:
        use = job.read(program.pids() - set(stepds), stepds)
        assert use is not None
        assert use.io is not None
        return use.io.write_chars

    assert written([program.pid, task]) < 100_000
    seen = []
    for word in ("written", "more", "over"):
        program.go_on()
        program.expect(word)
        seen += [written([program.pid]) for _ in range(2)]

    expected = [5_000_000, 5_000_000, 7_000_000, 7_000_000, 7_000_000, 7_000_000]
    assert all(amount <= counted < amount + 100_000 for amount, counted in zip(expected, seen, strict=True))
