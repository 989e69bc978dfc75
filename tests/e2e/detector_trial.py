# SPDX-License-Identifier: Apache-2.0
"""Run jobs on a real Slurm, do something to some of them, and see which ones the detectors name.

Whatever is done is real: signals, limits of cgroups, programs beside, too little memory. All jobs of a round run at the
same time, on the same two nodes, which share the cores of this machine.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import ALICE, BOB, SlurmLab
from lab.cgroups import CGROUP_ROOT
from lab.prometheus import Server, run_prometheus
from tests.e2e import detector_work, mpi_job
from tests.processes import run_slurmscope, serving, until
from tests.requirements import refuse

CROWDED = "node_oversubscribed"
DETECTORS = ("process_held", "straggler", CROWDED, "part_stopped", "memory_thrashing")
"""Of threads that wait for a core nothing is learned here: on a machine that is shared, all wait."""
WORKING_SECONDS = 30.0
"""Before something is done to a job: a detector compares with what the job did before."""
SECONDS = 100.0
LIMITS = {
    "PROCESS_HELD_MIN_HELD_SECONDS": "60s",
    "STRAGGLER_MIN_SLOW_SECONDS": "20s",
    "NODE_OVERSUBSCRIBED_MIN_SLOW_SECONDS": "20s",
    # The jobs of a round use the same cores, and make each other wait.
    "NODE_OVERSUBSCRIBED_MIN_FACTOR": "4",
    "PART_STOPPED_MIN_SILENT_SECONDS": "30s",
    "MIN_RUN_SECONDS": "30s",
}
CONFIG = """
global: {{scrape_interval: 2s, scrape_timeout: 2s}}
scrape_configs:
  - job_name: nodes
    static_configs: [{{targets: ["{address}"]}}]
"""

Ranks = Mapping[str, tuple[int, str]]
"""PID and node of each task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that runs, and its tasks."""

    lab: SlurmLab
    number: int
    ranks: Ranks


def start_mpi(
    lab: SlurmLab, user: str, name: str, *, tasks: int = 4, work_seconds: float = 0.0
) -> tuple[int, dict[str, tuple[int, str]]]:
    """Start an MPI job on two nodes; return its ID, and PID and node of each rank."""
    folder = make_folder(lab, name)
    shutil.copy(mpi_job.__file__, folder / "mpi_job.py")
    job = lab.submit(
        user, "--nodes=2", f"--ntasks-per-node={tasks // 2}", "--mem=400M", "--output=/dev/null",
        script=f"exec mpiexec.hydra -n {tasks} -ppn {tasks // 2} python3 {folder}/mpi_job.py {folder} {work_seconds}",
    )  # fmt: skip
    return job, find_ranks(lab, folder, tasks)


def start_plain(
    lab: SlurmLab, user: str, name: str, work: str, *, nodes: int = 2, memory: str = "100M", stays: bool = True
) -> Job:
    """Start a job with a task on each node, and beside it, if it ``stays`` there, another step on each."""
    folder = make_folder(lab, name)
    shutil.copy(detector_work.__file__, folder / "work.py")
    job = lab.submit(
        user, f"--nodes={nodes}", "--ntasks-per-node=1", f"--mem={memory}", "--output=/dev/null",
        script=f"{'srun --overlap sleep infinity &' if stays else ''}\n"
        f"exec srun --overlap --no-kill --kill-on-bad-exit=0 --wait=0 python3 {folder}/work.py {folder} {work}",
    )  # fmt: skip
    return Job(lab=lab, number=job, ranks=find_ranks(lab, folder, nodes))


def make_folder(lab: SlurmLab, name: str) -> Path:
    folder = lab.folder / "work" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    return folder


def find_ranks(lab: SlurmLab, folder: Path, tasks: int) -> dict[str, tuple[int, str]]:
    """Wait until all tasks have begun."""
    until(lambda: all((folder / str(rank)).exists() for rank in range(tasks)), 120)
    ranks = {}
    for rank in range(tasks):
        pid = int((folder / str(rank)).read_text(encoding="utf-8"))
        # mpiexec passes on Slurm's variables of its own node: the kernel knows better.
        cgroup = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")
        ranks[str(rank)] = (pid, next(node for node in lab.nodes if f"{node}/" in cgroup or f"{node}_" in cgroup))
    return ranks


@contextmanager
def limited(ranks: Ranks, rank: str, ratio: float) -> Iterator[None]:
    """Give one task a small part of a core, by a CPU limit of the job's cgroup on its node."""
    pid, node = ranks[rank]
    made = {at: _make_job_cgroup(each) for each, at in ranks.values()}
    try:
        with _members(made[node], ratio, [pid]):
            yield
    finally:
        for path in made.values():
            _remove(path)


@contextmanager
def crowded(pid: int, ratio: float, competitors: int) -> Iterator[None]:
    """Let a process share a part of a core with other programs, which do not belong to its job."""
    others = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(competitors)]
    try:
        path = _cpu_hierarchy() / f"slurmscope-test-{pid}"
        path.mkdir()
        try:
            with _members(path, ratio, [pid, *(other.pid for other in others)]):
                yield
        finally:
            for other in others:
                other.kill()
                other.wait()
            _remove(path)
    finally:
        for other in others:
            other.kill()
            other.wait()


@contextmanager
def _members(path: Path, ratio: float, pids: Sequence[int]) -> Iterator[None]:
    """Limit a cgroup to a part of a core, and move processes there; in the end, move them away and lift the limit."""
    (path / "cpu.cfs_quota_us").write_text(str(int(ratio * 100_000)), encoding="ascii")
    try:
        for each in pids:
            (path / "cgroup.procs").write_text(str(each), encoding="ascii")
        yield
    finally:
        for each in pids:
            with suppress(ProcessLookupError):
                (_cpu_hierarchy() / "cgroup.procs").write_text(str(each), encoding="ascii")
        (path / "cpu.cfs_quota_us").write_text("-1", encoding="ascii")


def _remove(path: Path) -> None:
    until(lambda: not (path / "cgroup.procs").read_text())
    path.rmdir()


def _cpu_hierarchy() -> Path:
    hierarchy = CGROUP_ROOT / "cpu"
    if not (hierarchy / "cpu.shares").exists():
        refuse("there is no hierarchy of cgroup v1 with the CPU controller")
    return hierarchy


def _make_job_cgroup(pid: int) -> Path:
    """Make the cgroup of a job in the hierarchy of the CPU controller, where Slurm makes none; the lab removes it."""
    lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines()
    (path,) = [path for line in lines for _, names, path in [line.split(":", 2)] if "cpuacct" in names.split(",")]
    top, user, job = path.split("/")[1:4]
    made = _cpu_hierarchy() / top / user / job
    made.mkdir(parents=True, exist_ok=True)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Jobs to which the same is done; ``expected`` is the detector that must name them, ``also`` ones that may."""

    name: str
    start: Callable[[SlurmLab, str], Job]
    harm: Callable[[ExitStack, Job], None] = lambda _stack, _job: None
    expected: str = ""
    also: tuple[str, ...] = ()


def _mpi(name: str, *, tasks: int = 4, work_seconds: float = 0.0) -> Callable[[SlurmLab, str], Job]:
    def start(lab: SlurmLab, user: str) -> Job:
        job, ranks = start_mpi(lab, user, name, tasks=tasks, work_seconds=work_seconds)
        return Job(lab=lab, number=job, ranks=ranks)

    return start


def _plain(
    name: str, work: str, *, nodes: int = 2, memory: str = "100M", stays: bool = True
) -> Callable[[SlurmLab, str], Job]:
    return lambda lab, user: start_plain(lab, user, name, work, nodes=nodes, memory=memory, stays=stays)


def last_task(job: Job) -> tuple[int, str]:
    """Return PID and node of the task to which something is done."""
    return job.ranks[max(job.ranks)]


def _stop_last(_stack: ExitStack, job: Job) -> None:
    os.kill(last_task(job)[0], signal.SIGSTOP)


def _limit(ratio: float) -> Callable[[ExitStack, Job], None]:
    return lambda stack, job: stack.enter_context(limited(job.ranks, max(job.ranks), ratio))


def _crowd(ratio: float, competitors: int) -> Callable[[ExitStack, Job], None]:
    return lambda stack, job: stack.enter_context(crowded(last_task(job)[0], ratio, competitors))


def _prompt(start: Callable[[SlurmLab, str], Job]) -> Callable[[SlurmLab, str], Job]:
    """Give the tasks a core at once, whatever else this machine does: of tasks that hardly work, nothing is said."""

    def start_prompt(lab: SlurmLab, user: str) -> Job:
        job = start(lab, user)
        for pid, _ in job.ranks.values():
            os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))
        return job

    return start_prompt


def _kill_last(_stack: ExitStack, job: Job) -> None:
    os.kill(last_task(job)[0], signal.SIGKILL)


def _stop_shortly(_stack: ExitStack, job: Job) -> None:
    pid, _ = last_task(job)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(5)
    os.kill(pid, signal.SIGCONT)


def _suspend(_stack: ExitStack, job: Job) -> None:
    job.lab.run("scontrol", "suspend", str(job.number))


FAULTS = (
    Kind(
        name="a task of an MPI job is stopped (SIGSTOP)",
        start=_mpi("mpi-stopped"), harm=_stop_last, expected="process_held", also=("part_stopped",),
    ),
    Kind(
        name="a task of another job is stopped (SIGSTOP)",
        start=_plain("stopped", "duty 0.25"), harm=_stop_last,
        expected="process_held", also=("part_stopped",),
    ),
    Kind(
        name="a task of an MPI job gets 3 % of a core (CPU limit of the job's cgroup)",
        start=_mpi("mpi-slow", tasks=2, work_seconds=0.005), harm=_limit(0.03), expected="straggler",
    ),
    Kind(
        name="a task shares 20 % of a core with three other programs",
        start=_plain("beside", "duty 0.25"), harm=_crowd(0.2, 3), expected=CROWDED,
    ),
    Kind(
        name="a task of another job gets 5 % of a core (CPU limit of the job's cgroup)",
        start=_plain("limited", "duty 0.3"), harm=_limit(0.05), expected="straggler",
    ),
    Kind(
        name="a task is killed, the other works on",
        start=_prompt(_plain("killed", "duty 0.3")), harm=_kill_last, expected="part_stopped",
    ),
    Kind(
        name="the only task on a node is killed, the other works on",
        start=_prompt(_plain("alone", "duty 0.3", stays=False)), harm=_kill_last, expected="part_stopped",
    ),
    Kind(
        name="a file of 200 MB is read again and again with 100 MB of memory",
        start=_plain("reread", "reread 200", nodes=1), expected="memory_thrashing",
    ),
)  # fmt: skip

HEALTHY = (
    Kind(name="MPI, tasks that wait at barriers", start=_mpi("mpi")),
    Kind(name="MPI, tasks that work between barriers", start=_mpi("mpi-work", tasks=2, work_seconds=0.005)),
    Kind(name="tasks that work evenly", start=_plain("even", "duty 0.1")),
    Kind(name="tasks with unevenly divided work", start=_plain("uneven", "uneven 0.2")),
    Kind(name="bursts of work, and pauses", start=_plain("bursts", "bursts 0.2")),
    Kind(name="a job that sleeps", start=_plain("sleep", "sleep 600")),
    Kind(name="files are written", start=_plain("write", "write 20")),
    Kind(name="a file is read again that fits into memory", start=_plain("cached", "reread 20", nodes=1)),
    Kind(name="short programs, one after the other", start=_plain("children", "children 10", nodes=1)),
    Kind(name="a task is stopped for 5 seconds", start=_plain("shortly", "duty 0.1"), harm=_stop_shortly),
    Kind(name="the job is suspended by Slurm", start=_plain("suspended", "duty 0.1"), harm=_suspend),
)


@dataclass(slots=True)
class Tally:
    """Count jobs by kind, those that were named, and findings by detector: right, and false alarms."""

    jobs: Counter[str] = field(default_factory=Counter)
    named: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)
    crowded: int = 0
    """Other jobs of which it was said that others used their cores, as is true on a machine that is shared."""

    def add(self, kind: Kind, job: Job, found: Mapping[str, str]) -> None:
        """Add the findings about a job: explanation by rule."""
        self.jobs[kind.name] += 1
        for rule in DETECTORS:
            if rule not in found:
                continue
            if rule == kind.expected and names_culprit(rule, job, found[rule]):
                self.named[kind.name] += 1
                self.right[rule] += 1
            elif rule == CROWDED:
                self.crowded += 1
            elif rule not in kind.also:
                self.false[rule] += 1
                self.alarms.append(f"{kind.name}: {rule}: {found[rule]}")


def names_culprit(rule: str, job: Job, explanation: str) -> bool:
    """Return whether a finding names the node, and the process where the detector says so."""
    pid, node = last_task(job)
    if rule == "memory_thrashing":
        return True  # of a job on one node
    return node in explanation and (rule != "process_held" or f"Process {pid} " in explanation)


def run_round(lab: SlurmLab, kinds: Sequence[Kind], server: Server, tally: Tally, seconds: float = SECONDS) -> float:
    """Run a job of each kind, do to it what belongs to the kind, and count what its report says; return the load."""
    users = itertools.cycle((ALICE, BOB))
    with ExitStack() as stack:
        jobs = [(kind, kind.start(lab, next(users))) for kind in kinds]
        time.sleep(WORKING_SECONDS)
        for kind, job in jobs:
            kind.harm(stack, job)
        time.sleep(seconds)
        load = os.getloadavg()[0]
        for kind, job in jobs:
            tally.add(kind, job, find(lab, server.url, job.number))
    lab.reset()
    return load


def find(lab: SlurmLab, url: str, job: int) -> dict[str, str]:
    """Return the findings about a running job, by rule."""
    environment = {**lab.environment, **{f"SLURMSCOPE_RULES_{name}": value for name, value in LIMITS.items()}}
    flags = ("--format", "json", "--prometheus.url", url, "--prometheus.scrape-interval", "2s")
    done = run_slurmscope("report", str(job), *flags, environment=environment)
    assert 0 == done.returncode, done.stderr
    every: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    every += [each for finding in every for each in finding.get("consequences", ())]
    return {finding["rule"]: finding["explanation"] for finding in every}


@contextmanager
def watched(folder: Path) -> Iterator[Server]:
    """Watch this machine with a node agent and a Prometheus."""
    with (
        serving("node") as agent,
        run_prometheus(folder, CONFIG.format(address=agent.addresses[0])) as server,
    ):
        until(lambda: agent.get()[0] == 200)
        yield server
