# SPDX-License-Identifier: Apache-2.0
"""Process groups of this machine are those of ps, and no process can lead us astray."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.processes import Exporter, serving, until, values

PATIENCE_SECONDS = 60
# The call of the older tool.
PS = ("ps", "-e", "--no-header", "-o", "pid:8,pgid:8,user:16,comm:16,pcpu:5,pmem:5")
PS_LINE = re.compile(r" *(\d+) +(\d+) (\S+) +(.*?) +([\d.]+) +([\d.]+) *")
NAMELESS_UID = 54321
# With fewer groups than are shown of one user, however many the others on this machine have.
HOSTILE_UID, LARGE_UID = 54322, 54323

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: other users and namespaces are made")


@dataclass
class PsGroup:
    """What ps shows of one process group, summed up as the older tool did."""

    user: str = ""
    command: str = ""
    cpu: float = 0.0
    memory: float = 0.0
    has_leader: bool = False
    pids: frozenset[int] = frozenset()


def ask_ps() -> dict[int, PsGroup]:
    listed = subprocess.run(PS, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True).stdout
    groups: dict[int, PsGroup] = defaultdict(PsGroup)
    for line in listed.split("\n")[:-1]:
        match = PS_LINE.fullmatch(line)
        assert match, line
        pid, pgid, user, command, cpu, memory = match.groups()
        group = groups[int(pgid)]
        if not group.pids or pid == pgid:
            group.user, group.command = user, command
        group.cpu += float(cpu)
        group.memory += float(memory)
        group.has_leader |= pid == pgid
        group.pids |= {int(pid)}
    return groups


@contextmanager
def running_python(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program in a group of its own and wait for its first line."""
    argv = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline()
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that other users can reach, as pytest's own is not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def agent(*flags: str) -> Iterator[Exporter]:
    with serving("node", "--node.interval=0", "--collector.process_groups", *flags) as exporter:
        exporter.get()
        until(lambda: ("root",) in exporter.values("login_user_processes"))
        yield exporter


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: names are compared for all users")
def test_groups_agree_with_ps() -> None:
    busy = "import os, sys\nprint(1, flush=True)\nos.fork()\nos.fork()\nwhile True: pass"
    large = (
        f"import os, time\nos.setuid({LARGE_UID})\nx = bytearray(600_000_000)\nprint(1, flush=True)\ntime.sleep(600)"
    )
    with running_python(busy) as first, running_python(large) as second, agent() as exporter:
        until(lambda: ask_ps()[first.pid].cpu > 5)
        time.sleep(3)
        started = time.time()
        before, page, after = ask_ps(), exporter.get()[1], ask_ps()
        took_seconds = time.time() - started
        cpu, memory = values(page, "cpu_usage"), values(page, "ram_usage")
        # Of a user with more groups than are shown, those with the least CPU time are one without a number.
        ours = {int(pgid): (user, command) for user, pgid, command in cpu if pgid}
        merged = {user for user, pgid, _ in cpu if not pgid}
        assert cpu.keys() == memory.keys()
        same = {pgid for pgid in before if before[pgid].pids == after[pgid].pids}
        stable = same & ours.keys()
        assert {first.pid, second.pid} <= stable
        assert {before[pgid].user for pgid in same - stable} <= merged
        for pgid in stable:
            slack = allowance(before[pgid].pids, started, took_seconds)
            check(before[pgid].cpu, cpu[*key(ours, pgid)], after[pgid].cpu, slack)
            check(before[pgid].memory, memory[*key(ours, pgid)], after[pgid].memory, slack)
            # ps marks zombies, and writes a question mark for all that is not plain.
            if not re.search(r"defunct|\?", before[pgid].command):
                assert (before[pgid].user, before[pgid].command.strip()) == (ours[pgid][0], ours[pgid][1].strip())
        assert before[second.pid].memory > 1


def key(ours: dict[int, tuple[str, str]], pgid: int) -> tuple[str, str, str]:
    user, command = ours[pgid]
    return user, str(pgid), command


def check(before: float, ours: float, after: float, slack: float) -> None:
    assert min(before, after) - slack <= ours <= max(before, after) + slack


def allowance(pids: frozenset[int], now: float, took_seconds: float) -> float:
    """Allow one step of what ps shows for each process, and what it can do from the first to the last look."""
    slack = 0.001
    for pid in pids:
        try:
            process = psutil.Process(pid)
            age_seconds = max(0.01, now - process.create_time())
            slack += 0.1 + 100 * took_seconds * min(process.num_threads(), os.cpu_count() or 1) / age_seconds
        except psutil.NoSuchProcess:
            slack += 100.0
    return slack


HOSTILE_NAMES = (b'a"b\\', b"x\ny", "ü)( (".encode(), b"\xff\xfe\x1b[2J", b"} 1\ncpu_usage 5", b"1 (a) S 1 1 1", b" ")


@needs_root
def test_no_name_of_a_command_spoils_the_page() -> None:
    code = f"""
        import ctypes, os, sys, time
        names = [bytes.fromhex(name) for name in sys.argv[1:]]
        os.setuid({HOSTILE_UID})
        for name in names:
            if os.fork() == 0:
                os.setpgid(0, 0)
                ctypes.CDLL(None).prctl(15, ctypes.c_char_p(name), 0, 0, 0)
                time.sleep(600)
        time.sleep(0.5)
        print(1, flush=True)
        time.sleep(600)
    """
    with running_python(code, *(name.hex() for name in HOSTILE_NAMES)) as process, agent() as exporter:
        children = psutil.Process(process.pid).children()
        try:
            page = exporter.get()[1]
            shown = {pgid: command for _, pgid, command in values(page, "cpu_usage")}
            assert len(HOSTILE_NAMES) == len(children)
            for child, name in zip(children, HOSTILE_NAMES, strict=True):
                expected = name[:15].decode("utf-8", "replace")
                command = shown[str(child.pid)]
                assert len(expected) == len(command)
                assert all(ours in (theirs, "?") for ours, theirs in zip(command, expected, strict=True))
            assert 1 == exporter.values("slurmscope_collector_success")["process_groups",]
        finally:
            for child in children:
                child.kill()


@needs_root
def test_user_without_name_is_a_number() -> None:
    code = f"import os, time\nos.setuid({NAMELESS_UID})\nprint(1, flush=True)\ntime.sleep(600)"
    with running_python(code) as process, agent() as exporter:
        users = {user for user, pgid, _ in exporter.values("cpu_usage") if pgid == str(process.pid)}

        assert {str(NAMELESS_UID)} == users
        assert 1 == exporter.values("login_user_processes")[str(NAMELESS_UID),]


@needs_root
def test_total_of_a_user_stays_when_processes_end() -> None:
    code = f"""
        import os, time
        os.setuid({NAMELESS_UID})
        until = time.process_time() + 0.5
        while time.process_time() < until:
            pass
        print(1, flush=True)
        time.sleep(600)
    """
    user = (str(NAMELESS_UID),)
    with agent() as exporter:
        with running_python(code):
            during = exporter.values("login_user_cpu_seconds_total")[user]
        after = exporter.values("login_user_cpu_seconds_total")[user]
        with running_python(code):
            again = exporter.values("login_user_cpu_seconds_total")[user]

    # The kernel shows user and system time in ticks, each rounded down.
    rounding = 2 / os.sysconf("SC_CLK_TCK")
    assert during >= 0.5 - rounding
    assert during == after
    assert again >= after + 0.5 - rounding


def test_storm_of_processes_costs_only_those_that_are_gone() -> None:
    code = """
        import os
        print(1, flush=True)
        while True:
            for _ in range(20):
                if os.fork() == 0:
                    os._exit(0)
            for _ in range(20):
                os.wait()
    """
    with running_python(code) as storm, agent() as exporter:
        process = psutil.Process(exporter.process.pid)
        descriptors, forks = count_descriptors(process.pid), forks_of_machine()
        patience, seen, seconds = time.monotonic() + 120, 0, 0.0
        while seen < 20 or forks_of_machine() - forks <= 1000:
            assert time.monotonic() < patience, "there was no storm"
            samples = exporter.samples()
            assert str(storm.pid) in {pgid for _, pgid, _ in samples["cpu_usage"]}
            assert 1 == samples["slurmscope_collector_success"]["process_groups",]
            assert seconds <= (seconds := samples["login_user_cpu_seconds_total"]["root",])
            seen += 1
        # No more than the connection of a scrape that may still be closing.
        until(lambda: count_descriptors(process.pid) <= descriptors + 1)


def count_descriptors(pid: int) -> int:
    """Count the open files of an agent, without those of jobs that run: other tests start and end some meanwhile."""
    targets = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            targets.append(str(link.readlink()))
    return sum(not is_of_a_job(target) for target in targets)


def is_of_a_job(target: str) -> bool:
    process = re.match(r"/proc/(\d+)\b", target)
    return Path(process[0]).exists() if process else "cgroup" in target or "pidfd" in target


def forks_of_machine() -> int:
    return next(
        int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("processes")
    )


REUSE = """
    import json, os, sys, time
    from pathlib import Path
    from slurmscope.node.procfs.job_processes import JobProcesses
    from slurmscope.node.procfs.reader import ProcessReader
    from slurmscope.node.process_groups import ProcessTableReader

    def start(uid, megabytes):
        # The next process gets the number after this one: it works in a namespace of our own only.
        Path("/proc/sys/kernel/ns_last_pid").write_text("99")
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.setuid(uid)
            with open(os.devnull, "wb", buffering=0) as sink:
                for _ in range(megabytes):
                    sink.write(bytes(1_000_000))
            until = time.process_time() + 0.2
            while time.process_time() < until:
                pass
            os.write(write, b"x")
            time.sleep(600)
        os.read(read, 1)
        os.close(read)
        os.close(write)
        return pid

    reader = ProcessReader(Path("/proc"))
    table, job = ProcessTableReader(reader, str), JobProcesses(reader)
    result = {}
    for name, uid, megabytes, members in (("first", 1111, 5, [100]), ("second", 2222, 9, [])):
        pid = start(uid, megabytes)
        listed = table.read()
        use = job.read([100], list_again=lambda: members)
        group = next(group for group in listed.groups if group.group_id == 100)
        result[name] = {
            "pid": pid,
            "user": group.user,
            "group_seconds": group.cpu_seconds,
            "users": {user.user: user.cpu_seconds for user in listed.users},
            "written": use.io.write_chars,
            "processes": use.processes,
        }
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        time.sleep(0.05)
    print(json.dumps(result))
"""


@needs_root
def test_number_that_is_given_again_is_another_process() -> None:
    argv = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", textwrap.dedent(REUSE)]
    # A process that gave up its rights cannot write down which lines it ran, and would complain.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=environment)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"namespaces are not allowed here: {done.stderr.strip()}")
    assert "" == done.stderr
    first, second = json.loads(done.stdout).values()

    assert (100, 100) == (first["pid"], second["pid"])
    assert ("1111", "2222") == (first["user"], second["user"])
    # The second starts from nothing, and what the first had stays with its user.
    assert 0.15 <= second["group_seconds"] < second["users"]["1111"] + second["users"]["2222"]
    assert second["users"]["1111"] >= 0.15
    assert (1, 0) == (first["processes"], second["processes"])
    assert 5_000_000 <= first["written"] <= 5_100_000
    assert first["written"] == second["written"]


# heapq: the standard library imports it late, when another user may not reach it any more.
CLOSED = """
    import heapq, json, logging, os, subprocess, sys
    from pathlib import Path
    from slurmscope.node.procfs.job_processes import JobProcesses
    from slurmscope.node.procfs.reader import ProcessReader
    from slurmscope.node.process_groups import ProcessTableReader

    root, hidepid = sys.argv[1:]
    if hidepid:
        subprocess.run(["mount", "-t", "proc", "-o", f"hidepid={hidepid}", "proc", root], check=True)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    reader = ProcessReader(Path(root))
    table, job = ProcessTableReader(reader, str), JobProcesses(reader)
    for _ in range(3):
        listed, use = table.read(), job.read([1, os.getppid()])
    print(json.dumps({
        "is_complete": listed.is_complete,
        "users": [user.user for user in listed.users],
        "use": use and [use.processes, use.io, use.open_files, use.worst_file_ratio],
        "denied": sorted(reader.denials.counts),
    }))
"""


@needs_root
@pytest.mark.parametrize(
    ("hidepid", "is_complete", "use", "denied"),
    [
        ("", True, [2, None, None, None], ["fd", "io"]),
        ("1", False, None, ["stat"]),
        ("2", False, None, []),
    ],
)
def test_processes_that_are_closed_to_us_are_told_and_never_zero(
    open_folder: Path, hidepid: str, is_complete: bool, use: object, denied: list[str]
) -> None:
    root = str(open_folder) if hidepid else "/proc"
    argv = ["unshare", "--mount", sys.executable, "-c", textwrap.dedent(CLOSED), root, hidepid]
    # A process that gave up its rights cannot write down which lines it ran, and would complain.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=environment)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"namespaces are not allowed here: {done.stderr.strip()}")
    assert 0 == done.returncode, done.stderr
    result = json.loads(done.stdout)

    assert is_complete is result["is_complete"]
    assert ("65534" in result["users"], "0" in result["users"]) == (True, is_complete)
    assert use == result["use"]
    assert denied == result["denied"]
    # Told once per kind of file, not per process.
    assert len(denied) == len(done.stderr.splitlines())
