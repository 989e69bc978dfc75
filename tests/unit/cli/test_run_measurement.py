# SPDX-License-Identifier: Apache-2.0
"""``slurmscope run`` reports what the kernel counted, also for children, orphans and daemons."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tests.fakes.traced_command import python, report_of, run_traced

MIB = 1 << 20
TIMED = """
import time
while time.process_time() < 0.4: pass
x = bytearray(120 << 20)
open('/dev/null', 'wb').write(bytes(7_000_000))
"""


# What the kernel says about a command when it has ended: as the program time does.
WAITING = """
import json, os, sys, time
started = time.monotonic()
_, _, usage = os.wait4(os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ), 0)
wall = time.monotonic() - started
figures = {"user": usage.ru_utime, "system": usage.ru_stime, "peak": usage.ru_maxrss * 1024, "wall": wall}
open(sys.argv[1], "w").write(json.dumps(figures))
"""


def test_report_agrees_with_the_kernel(tmp_path: Path) -> None:
    file = tmp_path / "kernel.json"

    started = time.monotonic()
    report = report_of(tmp_path, *python(WAITING), str(file), *python(TIMED))
    longest_seconds = time.monotonic() - started

    kernel, summary = json.loads(file.read_bytes()), report["summary"]
    cpu, peak_bytes = summary["cpu"], summary["memory"]["best_peak_bytes"]
    # The report has what waits for the command in it too, which is little; anything counted twice would be much.
    assert kernel["user"] - 0.01 <= cpu["user_seconds"]
    assert kernel["system"] - 0.01 <= cpu["system_seconds"]
    assert cpu["user_seconds"] + cpu["system_seconds"] < 1.5 * (kernel["user"] + kernel["system"])
    assert kernel["peak"] <= peak_bytes < 1.3 * kernel["peak"]
    assert kernel["wall"] - 0.01 <= summary["run_seconds"] < longest_seconds
    assert 7_000_000 <= summary["io"]["write_bytes"] < 7_200_000


# Memory that no sample sees, since the command ends at once; started by a process that is larger than it.
LARGE_AT_THE_END = "x = bytearray(150 << 20)\nimport os\nos._exit(0)\n"
LARGE_PARENT = """
import os, sys
x = bytearray(400 << 20)
if os.fork():
    os.wait()
else:
    os.execv(sys.argv[1], sys.argv[1:])
"""


def test_memory_of_a_short_command_is_known_also_below_a_large_process(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    options = ("--format", "json", "--output", str(file), "--sample-rate", "3600")

    done = run_traced(*options, "--", *python(LARGE_AT_THE_END), prefix=python(LARGE_PARENT))

    assert b"" == done.stderr
    peak_bytes = json.loads(file.read_bytes())["summary"]["memory"]["best_peak_bytes"]
    assert 150 * MIB <= peak_bytes < 200 * MIB


MANY_CHILDREN = """
import os, resource, sys
for number in range(int(sys.argv[1])):
    pid = os.fork()
    if not pid:
        os.write(1, b"x")
        os._exit(0)
    os.waitpid(pid, 0)
own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
print(sum((own.ru_utime, own.ru_stime, children.ru_utime, children.ru_stime)), file=sys.stderr)
"""


def test_thousands_of_short_children_are_all_counted(tmp_path: Path) -> None:
    file = tmp_path / "report.json"

    done = run_traced("-f", "json", "-o", str(file), "--", *python(MANY_CHILDREN), "3000")

    report = json.loads(file.read_bytes())
    kernel_seconds = float(done.stderr)
    # The rest is the end of the interpreter, after it printed.
    assert kernel_seconds <= report["summary"]["cpu"]["time"]["used"] < 1.5 * kernel_seconds
    assert 3000 == len(done.stdout)
    assert 3000 <= report["summary"]["io"]["write_bytes"] < 3100


# The first process ends at once; its grandchild becomes an orphan, works, and ends before the command.
ORPHAN = """
import os, time
reader, writer = os.pipe()
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    while time.process_time() < 0.5: pass
    open("/dev/null", "wb").write(bytes(3_000_000))
    os._exit(0)
os.wait()
os.close(writer)
os.read(reader, 1)  # until the orphan has ended
time.sleep(0.1)
"""


def test_orphans_are_counted(tmp_path: Path) -> None:
    report = report_of(tmp_path, *python(ORPHAN))

    assert 0.5 <= report["summary"]["cpu"]["time"]["used"] < 2 * 0.5
    assert 3_000_000 <= report["summary"]["io"]["write_bytes"] < 3_100_000
    assert 0 == report["run"]["processes_left"]


DAEMON = """
import os, time
reader, writer = os.pipe()
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    while time.process_time() < 0.3: pass
    os.write(writer, b"x")
    time.sleep(2)
    os._exit(0)
os.wait()
os.read(reader, 1)
"""


def test_daemon_that_is_left_runs_on_and_is_counted_until_the_end(tmp_path: Path) -> None:
    report = report_of(tmp_path, *python(DAEMON))

    assert 1 == report["run"]["processes_left"]
    # The last sample of one that runs on is of a clock tick before.
    assert 0.29 <= report["summary"]["cpu"]["time"]["used"] < 2 * 0.3


# These children are not waited for: what they used is known from samples alone.
IGNORING = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(2):
    if not os.fork():
        while time.process_time() < 0.5: pass
        time.sleep(1.5)
        os._exit(0)
try:
    os.wait()
except ChildProcessError:
    pass
time.sleep(0.3)
"""


def test_children_without_a_waiting_parent_are_kept(tmp_path: Path) -> None:
    report = report_of(tmp_path, *python(IGNORING))

    assert 0.95 <= report["summary"]["cpu"]["time"]["used"] < 2 * 0.95


def test_cores_and_memory_are_those_that_the_command_may_use(tmp_path: Path) -> None:
    limit_kib = 4 << 20
    program = f"ulimit -v {limit_kib}; exec {sys.executable} -m slurmscope run -f json -o '{tmp_path}/r.json' true"
    run_traced("-q", "--", "taskset", "-c", "0", "sh", "-c", program)

    run = json.loads((tmp_path / "r.json").read_bytes())["run"]
    assert 1.0 == run["cores"]
    assert (limit_kib * 1024, "ulimit") == (run["memory_limit_bytes"], run["memory_limit_origin"])
