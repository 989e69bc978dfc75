# SPDX-License-Identifier: Apache-2.0
"""The processes of a job are followed while they come, fork, work and go."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
import pytest

from slurmscope.node.job_use import IoUse, ProcessUse
from slurmscope.node.procfs.job_processes import TICKS_PER_SECOND, JobProcesses
from slurmscope.node.procfs.job_scan import ProcessDetail
from slurmscope.node.procfs.process import Process
from slurmscope.node.procfs.process_totals import NAMES_AN_HOUR
from slurmscope.node.procfs.reader import ProcessReader
from tests.processes import until
from tests.unit.node.proc_tree import FIXTURES, ProcTree, written
from tests.unit.node.script import Script


def use_of(job: JobProcesses, program: Script) -> ProcessUse:
    use = job.read(program.pids())
    assert use is not None
    return use


def test_numbers_agree_with_psutil(script: Callable[[str], Script], reader: ProcessReader, tmp_path: Path) -> None:
    data = tmp_path / "scratch-data"
    program = script(f"""
import threading
files = [open({str(data)!r}, "w") for _ in range(2)] + [open({str(tmp_path / "b")!r}, "w")]
for _ in range(3):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
""")
    program.expect("ready")
    job = JobProcesses(reader, ProcessDetail(switches=True))
    theirs = psutil.Process(program.pid)
    stats = [*Path(f"/proc/{program.pid}/task").glob("*/stat")]
    # The state follows the name in parentheses.
    until(lambda: all(stat.read_text().rpartition(") ")[2].startswith("S") for stat in stats))

    use = use_of(job, program)

    assert 1 == use.processes
    assert {"sleeping": 4} == dict(use.threads_in)
    assert {theirs.name(): 4} == dict(use.threads_of) == dict(use.most_threads_of)
    assert theirs.num_fds() == use.open_files
    assert len({file.path for file in theirs.open_files()}) == use.distinct_files
    assert use.uses_scratch is True
    assert use.worst_file_ratio == theirs.num_fds() / theirs.rlimit(psutil.RLIMIT_NOFILE)[0]
    assert abs(theirs.memory_info().rss - use.resident_bytes) <= 2_000_000
    assert abs(sum(theirs.cpu_times()[:2]) - use.cpu_seconds) <= 0.02
    assert {} == dict(use.threads_on_core)
    # The main thread alone switched at least as often as psutil saw.
    assert use.voluntary_switches is not None
    assert use.voluntary_switches >= theirs.num_ctx_switches().voluntary - 5


def test_waits_for_a_core_agree_with_the_kernel(script: Callable[[str], Script], reader: ProcessReader) -> None:
    program = script("""
import threading

def work():
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass
    time.sleep(600)

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for _ in range(3):
    child(lambda: [threading.Thread(target=work, daemon=True).start() for _ in range(2)] and None)
sys.stdin.readline()
""")
    for _ in range(3):
        program.expect("ready")
    pids = program.pids()
    threads = [thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()]
    until(lambda: all(thread.joinpath("stat").read_text().rpartition(") ")[2][0] == "S" for thread in threads))

    use = JobProcesses(reader, ProcessDetail()).read(pids)

    assert use is not None
    waited = sum(int((thread / "schedstat").read_text().split()[1]) for thread in threads)
    assert waited / 1e9 == use.queue_seconds
    # Six threads with 50 ms of work each share one core: without a word of the kernel, they wait for each other.
    assert use.queue_seconds is not None
    assert use.queue_seconds > 0.1


def test_wait_of_a_sleeping_thread_counts_when_it_runs_again(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    reader = ProcessReader(tmp_path)
    job = JobProcesses(reader)
    queue = tmp_path / "5" / "schedstat"

    def read(state: str, waited: int) -> float | None:
        tree.add(5, 5, ticks=waited, state=state)
        queue.write_text(f"{10_000_000_000} {waited * 1_000_000_000} 7\n")
        use = job.read([5])
        assert use is not None
        return use.queue_seconds

    assert [3.0, 3.0, 9.0] == [read("S", 3), read("S", 5), read("R", 9)]
    reader.close()


def test_waits_that_the_kernel_does_not_count_are_absent(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.add(5, 5, state="R")
    (tmp_path / "5" / "schedstat").write_text("0 0 0\n")
    reader = ProcessReader(tmp_path)

    use = JobProcesses(reader).read([5])

    assert use is not None
    assert use.queue_seconds is None
    reader.close()


def test_new_agent_continues_the_waits(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    for pid in (5, 6):
        tree.add(pid, 5)
        (tmp_path / str(pid) / "schedstat").write_text(f"1 {pid}000000000 1\n")
    reader = ProcessReader(tmp_path)
    first, second = JobProcesses(reader), JobProcesses(reader)
    first.read([5, 6])
    shutil.rmtree(tmp_path / "6")
    first.read([5])

    second.resume(first.keep())
    use = second.read([5])

    assert use is not None
    assert 11.0 == use.queue_seconds
    reader.close()


def test_thread_that_runs_is_on_a_core(script: Callable[[str], Script], reader: ProcessReader) -> None:
    program = script("""
while True:
    pass
""")
    job = JobProcesses(reader)
    until(lambda: dict(use_of(job, program).threads_in) == {"running": 1})

    [(core, count)] = use_of(job, program).threads_on_core.items()

    assert 1 == count
    assert core in psutil.Process(program.pid).cpu_affinity()


def test_time_of_programs_does_not_fall(script: Callable[[str], Script], reader: ProcessReader) -> None:
    program = script("""
def burn():
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass

pid = child(burn)
os.waitpid(pid, 0)
print("over", flush=True)
sys.stdin.readline()
""")
    job = JobProcesses(reader)
    program.expect("ready")
    before = use_of(job, program)
    program.go_on()
    program.expect("over")
    after = use_of(job, program)

    # The kernel rounds user and system time down to whole ticks, each for itself.
    assert before.cpu_seconds >= 0.3 - 2 / TICKS_PER_SECOND
    assert before.cpu_seconds <= after.cpu_seconds
    assert sum(before.cpu_seconds_of.values()) <= sum(after.cpu_seconds_of.values())


def test_captured_job_is_read_twice() -> None:
    first = ProcessReader(FIXTURES / "first")
    job = JobProcesses(first)
    tasks, stepds = {255, 259, 263, 287, 289}, {248, 275, 276}
    use = job.read(tasks, stepds)
    job._reader = second = ProcessReader(FIXTURES / "second")
    later = job.read(tasks, stepds)
    first.close()
    second.close()

    assert use is not None
    assert later is not None
    assert use.io is not None
    assert later.io is not None
    # Of slurmstepd nothing: nobody ended.
    assert captured_writes("first", tasks) == use.io.write_chars
    assert captured_writes("second", tasks) == later.io.write_chars
    assert 5 == use.processes
    assert {"python3": 2.94 + 2.80, "slurm_script": 0.22, "srun": 0.78} == pytest.approx(dict(use.cpu_seconds_of))
    # The folders of descriptors and threads were not captured.
    assert (None, None) == (use.open_files, use.distinct_files)
    assert {"sleeping": 4, "unknown": 4} == dict(use.threads_in)


def captured_writes(folder: str, pids: set[int]) -> int:
    texts = [(FIXTURES / folder / str(pid) / "io").read_text(encoding="utf-8") for pid in pids]
    return sum(int(amount) for text in texts for amount in re.findall(r"wchar: (\d+)", text))


def test_second_list_keeps_strangers_out(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    for pid in (5, 6):
        tree.add(pid, 5, ticks=100, io=written(10))
    reader = ProcessReader(tmp_path)
    job = JobProcesses(reader)

    use = job.read([5, 6], list_again=lambda: [5])

    assert use is not None
    assert (1, 1.0) == (use.processes, use.cpu_seconds)
    reader.close()


def test_reused_process_id_is_not_the_job(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.add(5, 5, start=10, ticks=100, io=written(10))
    reader = ProcessReader(tmp_path)
    job = JobProcesses(reader)
    job.read([5])
    tree.add(5, 5, start=20, ticks=900, io=written(9000))

    use = job.read([5], list_again=list)

    assert use is not None
    assert (0, 1.0) == (use.processes, use.cpu_seconds)
    assert IoUse(write_chars=10, writes=2) == use.io
    reader.close()


def test_process_that_left_the_job_is_not_followed(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.add(5, 5, ticks=100, io=written(10))
    reader = ProcessReader(tmp_path)
    job = JobProcesses(reader)
    job.read([5])
    tree.add(5, 5, ticks=200, io=written(50))

    use = job.read([])

    assert use is not None
    assert (0, 1.0, 10) == (use.processes, use.cpu_seconds, use.io and use.io.write_chars)
    reader.close()


def test_hidden_processes_are_not_measured_as_none() -> None:
    reader = ProcessReader(FIXTURES / "first")
    job = JobProcesses(reader)

    assert job.read([99999]) is None
    assert job.read([]) is not None
    reader.close()


def test_parts_that_are_switched_off_are_absent(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.add(5, 5, threads=4, io=written(10))
    reader = ProcessReader(tmp_path)

    use = JobProcesses(reader, ProcessDetail(io=False, files=False, threads=False)).read([5])

    assert use is not None
    assert (None, None, None, None) == (use.io, use.open_files, use.voluntary_switches, use.uses_scratch)
    assert {"unknown": 4} == dict(use.threads_in)
    reader.close()


def test_kernel_without_io_accounting_gives_no_zero(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.add(5, 5)
    reader = ProcessReader(tmp_path)
    job = JobProcesses(reader)

    assert [None, None] == [use.io for use in (job.read([5]), job.read([])) if use]
    reader.close()


def test_process_without_io_file_is_left_out_of_the_sum(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.add(5, 5, io=written(10))
    tree.add(6, 5)
    (tmp_path / "6" / "io").touch()
    reader = ProcessReader(tmp_path)

    use = JobProcesses(reader).read([5, 6])

    assert use is not None
    assert IoUse(write_chars=10, writes=2) == use.io
    reader.close()


def test_files_of_a_process_that_sleeps_are_read_again_now_and_then(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.add(5, 5, io=written(10))
    (tmp_path / "5" / "fd").mkdir()
    reader = ProcessReader(tmp_path)
    job = JobProcesses(reader)
    job.read([5])
    (tmp_path / "5" / "fd" / "3").symlink_to("/data/new")

    seen = [use.open_files for use in (job.read([5]) for _ in range(8)) if use]

    assert 1 == seen[-1]
    tree.add(5, 5, io=written(20))
    (tmp_path / "5" / "fd" / "4").symlink_to("/data/newer")
    moved = job.read([5])
    assert moved is not None
    assert (2, 2) == (moved.open_files, moved.distinct_files)
    reader.close()


def test_threads_and_files_of_one_job_are_read_up_to_a_limit(
    script: Callable[[str], Script], reader: ProcessReader, tmp_path: Path
) -> None:
    programs = [
        script(f"""
import threading
files = [open("{tmp_path}/{name}%d" % number, "w") for number in range(5)]
for _ in range(5):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
""")
        for name in "ab"
    ]
    for program in programs:
        program.expect("ready")
    pids = [program.pid for program in programs]

    def read(thread_limit: int, target_limit: int) -> ProcessUse:
        detail = ProcessDetail(thread_limit=thread_limit, target_limit=target_limit)
        use = JobProcesses(reader, detail).read(pids)
        assert use is not None
        return use

    full, capped = read(1000, 1000), read(8, 9)

    assert (12, 10) == (sum(full.threads_in.values()), full.distinct_files)
    # Those of the first process are looked at, and two threads and a few files of the second.
    assert (None, 4) == (full.threads_in.get("unknown"), capped.threads_in["unknown"])
    assert 0 < (capped.distinct_files or 0) < 10
    # What is counted without a look at each is still whole.
    assert full.open_files == capped.open_files
    assert dict(full.threads_of) == dict(capped.threads_of)


def count_descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_files_of_some_processes_stay_open_until_they_end_or_the_job_does(script: Callable[[str], Script]) -> None:
    body = """
pids = [child(lambda: time.sleep(600)) for _ in range(3)]
print("ready", flush=True)
sys.stdin.readline()
os.kill(pids[0], 9)
os.waitpid(pids[0], 0)
print("ended", flush=True)
sys.stdin.readline()
"""
    reader = ProcessReader(Path("/proc"), most_kept=3)
    before = count_descriptors()
    program, other = script(body), script(body)
    program.expect("ready")
    other.expect("ready")
    pipes = count_descriptors() - before
    job, next_job = JobProcesses(reader), JobProcesses(reader)
    for _ in range(3):
        job.read(program.pids())
        next_job.read(other.pids())

    assert 3 * 3 == count_descriptors() - before - pipes  # of four processes of the first job, none of the other
    program.go_on()
    program.expect("ended")
    job.read(program.pids())
    next_job.read(other.pids())
    assert 3 * 3 == count_descriptors() - before - pipes  # the room of the one that ended is used again
    job.release()
    next_job.release()
    assert 0 == count_descriptors() - before - pipes
    use = job.read(program.pids())
    assert use is not None
    assert 3 == use.processes
    job.release()
    reader.close()


def test_open_files_of_a_process_whose_files_stay_open_are_counted_anew(script: Callable[[str], Script]) -> None:
    program = script("""
files = []
while sys.stdin.readline():
    files.append(open("/dev/null"))
    write(100)
    print("opened", flush=True)
""")
    reader = ProcessReader(Path("/proc"), most_kept=1)
    job = JobProcesses(reader)
    counts = []
    for _ in range(4):
        program.go_on()
        program.expect("opened")
        use = job.read([program.pid])
        assert use is not None
        counts.append((len([*Path(f"/proc/{program.pid}/fd").iterdir()]), use.open_files))

    assert [here for here, _ in counts] == [ours for _, ours in counts]
    assert 3 == counts[-1][0] - counts[0][0]
    job.release()
    reader.close()


def ran_seconds(pids: Iterable[int]) -> float:
    """Return what the kernel counts as CPU time, to the nanosecond."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9


def has_slept(pids: Iterable[int]) -> bool:
    before = ran_seconds(pids)
    time.sleep(0.2)
    return ran_seconds(pids) == before


class CountingReader(ProcessReader):
    """Count the processes that are read."""

    opened = 0

    def keep(self, process: Process) -> bool:
        self.opened += 1
        return super().keep(process)


def test_processes_of_a_job_without_cpu_time_are_read_again_only_now_and_then(script: Callable[[str], Script]) -> None:
    program = script("""
for _ in range(2):
    child(lambda: time.sleep(600))
print("ready", flush=True)
while sys.stdin.readline():
    write(3_000_000)
    print("written", flush=True)
""")
    program.expect("ready")
    reader = CountingReader(Path("/proc"), most_kept=10)
    now = 0.0
    job = JobProcesses(reader, clock=lambda: now)
    pids = program.pids()
    until(lambda: has_slept(pids))

    def read() -> ProcessUse | None:
        seconds = ran_seconds(pids)
        return job.go_on_sleeping() if job.has_slept(seconds) else job.read(pids, cpu_seconds=seconds)

    uses = [read() for _ in range(20)]
    read_processes = reader.opened
    program.go_on()
    program.expect("written")
    moved = read()

    assert read_processes <= 4 * len(pids)
    assert 1 == len({(use.io, use.cpu_seconds, use.open_files) for use in uses if use})
    assert uses[-1] is not None
    assert moved is not None
    assert uses[-1].io is not None
    assert moved.io is not None
    assert 3_000_000 <= moved.io.write_chars - uses[-1].io.write_chars < 3_001_000
    os.kill(program.pid, signal.SIGSTOP)
    until(lambda: (use := read()) is not None and use.threads_in.get("stopped") == 1)
    now += 30.0
    read()
    now += 45.0
    held = read()
    assert held is not None
    assert [(program.pid, 75.0)] == [(one.pid, one.seconds) for one in held.held]
    job.release()
    reader.close()


def test_job_that_renames_its_processes_endlessly_makes_a_bounded_number_of_series(tmp_path: Path) -> None:
    tree, now = ProcTree(tmp_path / "proc"), 1000.0
    job = JobProcesses(ProcessReader(tree.root), clock=lambda: now)
    seen: set[str] = set()
    for number in range(100):
        now += 15.0
        tree.add(9, 1, command="steady", threads=3)
        for pid in range(10, 20):
            tree.add(pid, 1, command=f"x{number}-{pid}", threads=2)
        use = job.read(range(9, 20))
        assert use is not None
        assert 23 == sum(use.threads_of.values())
        assert use.threads_of.keys() == use.most_threads_of.keys()
        assert 3 == use.threads_of["steady"]
        seen.update(use.threads_of)

    # At once, and in 25 minutes; and "other".
    assert len(seen) <= NAMES_AN_HOUR + NAMES_AN_HOUR * 25 / 60 + 1
    now += 3600.0
    tree.add(10, 1, command="late", threads=2)
    use = job.read([10])
    assert use is not None
    assert {"late": 2} == use.threads_of
