# SPDX-License-Identifier: Apache-2.0
"""Run jobs of many kinds on a real Slurm, report each, and run it again with the header of its report."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab import ALICE, SlurmLab
from lab.config import LabSettings
from lab.errors import CommandFailed, LabError
from lab.prometheus import Server, run_prometheus
from lab.users import find_user
from lab.waiting import wait_until
from tests.e2e import resubmission_work
from tests.e2e.resubmission_kinds import Kind
from tests.processes import as_user, run_slurmscope, serving

# Every job here is short; sites with such jobs would set the same thresholds.
RULES = """
[rules]
min-run-seconds = 5
[rules.memory-over-requested]
min-unused-bytes = 0
free-bytes-per-core = 0
"""
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: nodes
    static_configs: [{{targets: ["{address}"]}}]
"""
NODES = 6
PATIENCE_SECONDS = 600.0
MEASURED_SECONDS = 30.0
# Each report is a process that takes a core for most of a second.
REPORTS_AT_ONCE = 2
POLL_SECONDS = 1.0
ACTION_SECONDS = 5.0
MEMORY_OPTIONS = {"mem", "mem-per-cpu", "mem-per-gpu"}
MEBIBYTE = 1 << 20
GOING_ON = {"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "RESIZING", "STOPPED"}
FIELDS = "JobID,State,End,WorkDir,ElapsedRaw,TimelimitRaw,AllocNodes,AllocTRES"
# The kernel's own peak of the job, read by the job.
PREAMBLE = """
export PATH="{work}:$PATH"
job=/sys/fs/cgroup/memory/slurm_$SLURMD_NODENAME/uid_$(id -u)/job_$SLURM_JOB_ID
trap 'cat $job/memory.max_usage_in_bytes > {work}/peak.$SLURM_JOB_ID' EXIT
cd {work}/scratch
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a job requests: memory on all nodes together."""

    nodes: int
    cpus: int
    memory_mebibytes: int
    limit_seconds: int

    @property
    def by_option(self) -> dict[str, float]:
        """Return the amounts by the word for them in a kind."""
        return {
            "nodes": self.nodes,
            "cpus": self.cpus,
            "mem": self.memory_mebibytes,
            "time": self.limit_seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What accounting and the kernel say about one run."""

    job: int
    state: str
    run_seconds: int
    size: Size
    """As Slurm allocated it."""
    peak_bytes: int | None
    """The kernel's peak; None where the script was killed before it could read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run of one kind of job, its report, and a second run with the header, where there is one."""

    kind: Kind
    first: Run
    report: Mapping[str, Any]
    second: Run | None = None
    rejection: str = ""
    """Why Slurm did not accept the header."""

    @property
    def changes(self) -> list[dict[str, str]]:
        """Return the options that the header changes."""
        return list((self.report["resubmission"] or {"changes": ()})["changes"])

    @property
    def submitted(self) -> Size:
        return _size(self.report["resubmission"]["submitted"])

    @property
    def suggested(self) -> Size:
        return _size(self.report["resubmission"]["suggested"])

    @property
    def freed(self) -> tuple[float, float]:
        """Return the promised core-seconds and MiB-seconds."""
        freed = self.report["resubmission"]["freed"]
        return freed["core_seconds"] or 0.0, (freed["memory_byte_seconds"] or 0.0) / MEBIBYTE

    @property
    def is_measured(self) -> bool:
        """Return whether the agent saw nearly all of the run and its end, as on a machine that is not overloaded."""
        coverage, memory = self.report["summary"]["coverage"], self.report["summary"]["memory"]
        return bool(coverage["is_good"] and memory["coverage"]["is_good"] and memory["is_bounded"])


def _size(plain: Mapping[str, Any]) -> Size:
    return Size(
        nodes=plain["nodes"],
        cpus=plain["cpus"],
        memory_mebibytes=round(plain["memory_bytes"] / MEBIBYTE),
        limit_seconds=round(plain["limit_seconds"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A cluster under the eyes of a node agent and a Prometheus."""

    lab: SlurmLab
    work: Path
    prometheus: Server
    flags: tuple[str, ...]
    poll: threading.Lock = field(default_factory=threading.Lock)
    reporting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(REPORTS_AT_ONCE))
    seen: dict[str, Any] = field(default_factory=dict)

    def rows(self) -> Mapping[str, list[str]]:
        """Return accounting's fields by job; many threads share one sacct."""
        answer = self._shared("sacct", self._sacct)
        return {row[0]: row for row in (line.split("|") for line in answer.splitlines())}

    def ended(self) -> frozenset[str]:
        """Return the jobs whose last numbers Prometheus has."""
        query = 'last_over_time(jobs_info{has_ended="true"}[1h])'
        samples = self._shared("jobs_info", lambda: self.prometheus.query(query))
        return frozenset(sample.labels["slurm_job"] for sample in samples)

    def _sacct(self) -> str:
        return self.lab.run("sacct", "-nXPa", "-S", "now-1hour", "-o", FIELDS, timeout=PATIENCE_SECONDS)

    def _shared(self, name: str, ask: Callable[[], Any]) -> Any:
        with self.poll:
            asked, answer = self.seen.get(name, (0.0, None))
            if time.monotonic() - asked > POLL_SECONDS:
                answer = ask()
                self.seen[name] = (time.monotonic(), answer)
            return answer


@contextmanager
def run_bench(private: Path) -> Iterator[Bench]:
    """Start a cluster, its node agent and a Prometheus."""
    folder = Path(tempfile.mkdtemp(prefix="resubmission-"))
    folder.chmod(0o755)
    work = folder / "work"
    (work / "scratch").mkdir(parents=True)
    for each in (work, work / "scratch"):
        each.chmod(0o777)
    program = Path(shutil.copy(resubmission_work.__file__, work / "work.py"))
    (work / "work").write_text(f'#!/bin/sh\nexec python3 {program} "$@"\n')
    (work / "work").chmod(0o755)
    rules = folder / "rules.toml"
    rules.write_text(RULES, encoding="utf-8")
    lab = SlurmLab(folder / "lab", LabSettings(node_count=NODES))
    try:
        lab.start()
        with (
            # As its service: other processes of these tests must not take the milliseconds in which a job can be read.
            serving("node", prefix=("setsid", "nice", "-n", "-5")) as agent,
            run_prometheus(private / "prometheus", CONFIG.format(address=agent.addresses[0])) as prometheus,
        ):
            flags = (
                *("--prometheus.url", prometheus.url, "--prometheus.scrape-interval", "1s"),
                *("--archive.url", str(folder / "none.db"), "--config.file", str(rules)),
            )
            yield Bench(lab=lab, work=work, prometheus=prometheus, flags=flags)
    finally:
        lab.destroy()
        shutil.rmtree(folder, ignore_errors=True)


def try_kinds(bench: Bench, kinds: tuple[Kind, ...]) -> dict[str, Future[Trial]]:
    """Try all kinds at once; one that cannot be tried does not hinder the others."""
    # Both runs of those that reach their time limit take a minute and more: all others fit beside them.
    longest_first = sorted(kinds, key=lambda kind: "time" not in kind.short_of)
    with ThreadPoolExecutor(len(kinds)) as pool:
        return {kind.name: pool.submit(try_kind, bench, kind) for kind in longest_first}


def try_kind(bench: Bench, kind: Kind) -> Trial:
    """Run a job, and run it again with the header of its report, if it has one."""
    job = submit(bench, kind, kind.options, kind.typed)
    if kind.action:
        act(bench, kind, job)
    first = follow(bench, kind, job)
    wait_measured(bench, job)
    trial = Trial(kind=kind, first=first, report=make_report(bench, f"{job}{kind.part}"))
    if not trial.changes:
        return trial
    try:
        again = submit(bench, kind, apply(kind.options, trial.changes), apply(kind.typed, trial.changes, adds=False))
    except CommandFailed as error:
        return replace(trial, rejection=str(error))
    return replace(trial, second=follow(bench, kind, again))


def wait_measured(bench: Bench, job: int) -> None:
    """Wait for the last numbers of a job; one that was too short for a busy agent, or had no step, has none."""
    with contextlib.suppress(LabError):
        wait_until(
            lambda: str(job) in bench.ended(),
            f"the last numbers of job {job}",
            timeout_seconds=MEASURED_SECONDS,
            poll_seconds=POLL_SECONDS,
        )


def submit(bench: Bench, kind: Kind, options: Mapping[str, str], typed: Mapping[str, str]) -> int:
    """Submit a job as its user does; one without a script is an allocation in which nothing is started."""
    words = [f"--job-name={kind.name}", *(_written(name, value) for name, value in typed.items())]
    if not kind.script:
        bench.lab.run("salloc", "--no-shell", *words, user=ALICE, timeout=PATIENCE_SECONDS)
        return int(bench.lab.run("squeue", "--noheader", f"--name={kind.name}", "--format=%A").split()[-1])
    header = _header(options) + (f"#SBATCH hetjob\n{_header(kind.second_part)}" if kind.second_part else "")
    script = f"{header}{PREAMBLE.format(work=bench.work)}{kind.script}"
    return bench.lab.submit(ALICE, "--output=/dev/null", *words, script=script)


def _header(options: Mapping[str, str]) -> str:
    return "".join(f"#SBATCH {_written(name, value)}\n" for name, value in options.items())


def _written(name: str, value: str) -> str:
    return f"--{name}={value}" if value else f"--{name}"


def apply(options: Mapping[str, str], changes: list[dict[str, str]], *, adds: bool = True) -> dict[str, str]:
    """Return the options with the changes of a header, as a user edits them: of memory there is one option.

    The command line overrides the script: what is on it is changed there, and nothing is added to it.
    """
    made = dict(options)
    for change in changes:
        name = change["option"]
        same = (MEMORY_OPTIONS if name in MEMORY_OPTIONS else {name}) & made.keys()
        for each in same:
            del made[each]
        if same or adds:
            made[name] = change["suggested"]
    return made


def act(bench: Bench, kind: Kind, job: int) -> None:
    """Do to a running job what its user or an operator does."""
    lab = bench.lab

    def is_running() -> bool:
        return {"RUNNING"} == {_state(row) for row in _rows_of(bench, job).values()}

    wait_until(is_running, f"the start of {kind.name}", timeout_seconds=PATIENCE_SECONDS, poll_seconds=POLL_SECONDS)
    time.sleep(ACTION_SECONDS)
    if kind.action == "cancel":
        lab.run("scancel", str(job), user=ALICE)
    elif kind.action == "requeue":
        lab.run("scontrol", "requeue", str(job))
    else:
        lab.run("scontrol", "suspend", str(job))
        time.sleep(ACTION_SECONDS)
        lab.run("scontrol", "resume", str(job))


def _rows_of(bench: Bench, job: int) -> dict[str, list[str]]:
    """Return accounting's fields of a job, of all its tasks or parts."""
    return {shown: row for shown, row in bench.rows().items() if re.fullmatch(rf"{job}([_+].*)?", shown)}


def _state(row: Sequence[str]) -> str:
    """Return a state without who cancelled the job."""
    return row[1].partition(" ")[0]


def follow(bench: Bench, kind: Kind, job: int) -> Run:
    """Wait until accounting knows the end of a job, and read what Slurm and the kernel say about it."""
    shown = f"{job}{kind.part}"

    def has_ended() -> bool:
        rows = _rows_of(bench, job)
        # The submission may be accounted after the end, and tasks of an array after each other.
        return shown in rows and all(
            _state(row) not in GOING_ON and row[2] != "Unknown" and row[3] for row in rows.values()
        )

    wait_until(has_ended, f"the end of {kind.name}", timeout_seconds=PATIENCE_SECONDS, poll_seconds=POLL_SECONDS)
    rows = _rows_of(bench, job)
    states = {_state(row) for row in rows.values()}
    _, _, _, _, elapsed, limit, nodes, tres = rows[shown]
    amounts = dict(word.split("=") for word in tres.split(","))
    peak = bench.work / f"peak.{job}"
    text = peak.read_text() if peak.exists() else ""
    return Run(
        job=job,
        state=states.pop() if len(states) == 1 else " ".join(sorted(states)),
        run_seconds=int(elapsed),
        size=Size(
            nodes=int(nodes),
            cpus=int(amounts["cpu"]),
            memory_mebibytes=_mebibytes(amounts["mem"]),
            limit_seconds=int(limit) * 60,
        ),
        peak_bytes=int(text) if text.strip() else None,
    )


def make_report(bench: Bench, shown: str) -> Mapping[str, Any]:
    alice = find_user(ALICE)
    with bench.reporting:
        done = run_slurmscope(
            *("report", shown, "--format", "json", *bench.flags),
            environment=bench.lab.environment,
            prefix=as_user(alice.uid, alice.gid),
        )
    if (done.returncode, done.stderr) != (0, ""):
        raise AssertionError(f"report {shown}: {done.returncode} {done.stderr}")
    report: Mapping[str, Any] = json.loads(done.stdout)
    return report


def _mebibytes(text: str) -> int:
    units = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
    return round(float(text[:-1]) * units[text[-1]])
