# SPDX-License-Identifier: Apache-2.0
"""Allocate what a job requests as Slurm does, and make jobs of which it is known what each node really needed.

The rules are those of slurmctld 22.05 with cons_tres, tried there: memory per core counts the cores of each node, above
MaxMemPerCPU a job gets more cores instead, memory per GPU counts the GPUs of each node, and neither --ntasks-per-node
nor --mincpus leaves a job with fewer cores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean
from typing import NamedTuple

from slurmscope.core.tres import Gres
from slurmscope.jobs.record import JobRecord, StepRecord
from slurmscope.jobs.report import OtherRun
from slurmscope.jobs.series import Measured, Series
from tests.fakes.reports import START, make_record

MIB = 1 << 20
HOURS = 7200
MEMORY_OPTIONS = ("mem", "mem-per-cpu", "mem-per-gpu")
_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


class Node(NamedTuple):
    cpus: int
    mib: float
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a job gets that it does not request; ``shares`` are the parts of its tasks that run on each node."""

    shares: tuple[float, ...]
    max_mib_per_cpu: int | None
    default: tuple[str, int]
    """What DefMemPerCPU, DefMemPerNode or DefMemPerGPU gives, by the option that does the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownJob:
    """A job with what it requested and got, and what it really needed on each node."""

    options: Mapping[str, str]
    site: Site
    had: tuple[Node, ...]
    needed_mib: tuple[float, ...]
    used_cores: float
    used_gpus: int
    record: JobRecord = field(repr=False)
    measured: Measured = field(repr=False)
    runs: tuple[OtherRun, ...]


def allocate(options: Mapping[str, str], site: Site) -> tuple[Node, ...]:
    """Return the nodes that a job with these options gets."""
    gpus = int(options.get("gpus", options.get("gres", "gpu:0").rpartition(":")[2]))
    count = len(site.shares)
    tasks = int(options.get("ntasks", count))
    each = int(options.get("cpus-per-task", 1))
    cpus = [max(1, round(tasks * share)) * each for share in site.shares]
    if count == 1:
        cpus = [max(cpus[0], int(options.get("ntasks-per-node", 0)) * each, int(options.get("mincpus", 0)))]
    if "cpus-per-gpu" in options:
        cpus = [gpus * int(options["cpus-per-gpu"])]
    used = [name for name in MEMORY_OPTIONS if name in options]
    assert len(used) < 2, "sbatch takes one of the options for memory"
    option, mib = (used[0], _to_mib(options[used[0]])) if used else site.default
    if option == "mem-per-cpu" and site.max_mib_per_cpu and mib > site.max_mib_per_cpu:
        more = math.ceil(mib / site.max_mib_per_cpu)
        return tuple(Node(more * number, number * mib, gpus // count) for number in cpus)
    multiplied = {"mem": [1] * count, "mem-per-cpu": cpus, "mem-per-gpu": [gpus // count] * count}[option]
    return tuple(Node(number, mib * by, gpus // count) for number, by in zip(cpus, multiplied, strict=True))


def _to_mib(text: str) -> float:
    return float(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else float(text)


def with_lines(options: Mapping[str, str], lines: Sequence[str]) -> dict[str, str]:
    """Return the options of a job whose user changed its script as told, and left the rest as it was."""
    words = (word[2:].partition("=") for line in lines for word in line.split() if word.startswith("--"))
    return {**options, **{name: value for name, _, value in words}}


def make_known_job(random: Random) -> KnownJob:
    """Return a job that may exist; it completed, or was OOM-killed."""
    shares = random.choice(((1.0,), (1.0,), (1.0,), (0.5, 0.5), (0.9, 0.1), (0.6, 0.3, 0.1)))
    gpus = random.choice((0, 0, 2, 4)) if len(shares) == 1 else 0
    default = random.choice(("mem", "mem-per-cpu", "mem-per-gpu") if gpus else ("mem", "mem-per-cpu"))
    most = random.choice((None, None, 2048))
    by_default = random.choice((1000, 2048, 30_000))
    site = Site(shares=shares, max_mib_per_cpu=most, default=(default, min(by_default, most or by_default)))
    options = _options(random, len(shares), gpus)
    had = allocate(options, site)
    is_killed = random.random() < 0.2
    needed = tuple(node.mib * random.choice((0.01, 0.1, 0.3, 0.6, 0.8, 0.96)) for node in had)
    if is_killed:
        place = random.randrange(len(had))
        needed = (*needed[:place], had[place].mib, *needed[place + 1 :])
    cores = sum(node.cpus for node in had)
    used_cores = cores * random.choice((1.0, 1.0, 0.5, 0.2))
    used_gpus = random.randint(1, gpus) if gpus else 0
    requested = cores
    if site.max_mib_per_cpu and "mem-per-cpu" in options:
        requested = sum(node.cpus for node in allocate({**options, "mem-per-cpu": "1M"}, site))
    record = _record(options, had, is_killed=is_killed, requested_cpus=requested)
    return KnownJob(
        options=options,
        site=site,
        had=had,
        needed_mib=needed,
        used_cores=used_cores,
        used_gpus=used_gpus,
        record=record,
        measured=_measure(random, had, needed, used_cores / cores, gpus, used_gpus, is_killed=is_killed),
        runs=_runs(random, record, had) if random.random() < 0.3 else (),
    )


def _options(random: Random, nodes: int, gpus: int) -> dict[str, str]:
    made: dict[str, str] = {}
    if gpus:
        made |= random.choice(({"gpus": str(gpus)}, {"gres": f"gpu:a100:{gpus}"}))
    if nodes > 1:
        made |= {"nodes": str(nodes), "ntasks": str(random.choice((20, 40)))}
    elif gpus and random.random() < 0.3:
        made |= {"cpus-per-gpu": str(random.choice((1, 4)))}
    else:
        count = str(random.choice((1, 4, 16)))
        made |= {random.choice(("cpus-per-task", "ntasks")): count}
        made |= random.choice(({}, {}, {}, {"mincpus": count}, {"ntasks-per-node": made.get("ntasks", "1")}))
    kinds = [None, "mem", "mem-per-cpu", "mem-per-cpu", *(["mem-per-gpu"] if gpus else [])]
    if kind := random.choice(kinds):
        made[kind] = random.choice(("1G", "3000M", "8G", "40G", "500"))
    return made


def _record(options: Mapping[str, str], had: Sequence[Node], *, is_killed: bool, requested_cpus: int) -> JobRecord:
    state = "OUT_OF_MEMORY" if is_killed else "COMPLETED"
    words = " ".join(f"--{name}={value}" for name, value in options.items())
    gpus = sum(node.gpus for node in had)
    names = tuple(f"n{number}" for number in range(1, len(had) + 1))
    return make_record(
        state=state, nodes=names, node_count=len(had), cpus=sum(node.cpus for node in had),
        requested_cpus=requested_cpus, memory_bytes=int(sum(node.mib for node in had)) * MIB,
        gres=(Gres(name="gpu", count=gpus),) if gpus else (), requested_gpus=gpus, submit_line=f"sbatch {words} x.sh",
        steps=(StepRecord(name="batch", state=state, tasks=1, nodes=1, node_list="n1"),
               StepRecord(name="0", state=state, tasks=len(had), nodes=len(had), node_list=f"n[1-{len(had)}]")),
    )  # fmt: skip


def _measure(
    random: Random, had: Sequence[Node], needed: Sequence[float], busy: float, gpus: int, used_gpus: int,
    *, is_killed: bool,
) -> Measured:  # fmt: skip
    times = tuple(float(START + 60 * (index + 1)) for index in range(HOURS // 60))
    curves: dict[str, list[Series]] = {"cpu": [], "memory_anon": [], "gpu": []}
    totals: dict[str, dict[tuple[str, ...], float]] = {}
    hides_cores = random.random() < 0.1
    for number, (node, mib) in enumerate(zip(had, needed, strict=True), 1):
        name = f"n{number}"
        curves["cpu"].append(Series((name,), times, (node.cpus * busy,) * len(times)))
        curves["memory_anon"].append(Series((name,), times, (mib * MIB,) * len(times)))
        values = {
            "cpu": node.cpus * busy * HOURS, "memory_peak": mib * MIB, "memory_peak_final": 1.0,
            "memory_limit": node.mib * MIB, "oom_kills": float(is_killed and mib == node.mib), "memory_file": 0.0,
            **({} if hides_cores else {"cores": float(node.cpus)}),
        }  # fmt: skip
        for total, value in values.items():
            totals.setdefault(total, {})[name,] = value
        if gpus:
            curves["gpu"].append(Series((name,), times, (used_gpus / gpus,) * len(times)))
            totals.setdefault("gpu", {})[name,] = used_gpus / gpus
            for index in range(gpus):
                totals.setdefault("gpu_held_idle", {})[name, str(index), ""] = float(index >= used_gpus)
    return Measured(curves={name: tuple(found) for name, found in curves.items() if found}, totals=totals)


def _runs(random: Random, record: JobRecord, had: Sequence[Node]) -> tuple[OtherRun, ...]:
    """Return other runs with the same request; each needed its most on any of the nodes."""
    count = random.choice((1, 6, 12))
    return tuple(
        OtherRun(
            state="COMPLETED", start_seconds=START - 86400 * (number + 1), run_seconds=random.choice((600.0, 7000.0)),
            limit_seconds=float(record.time_limit_seconds or 0), requested_bytes=fmean(each.mib for each in had) * MIB,
            peak_bytes=random.choice(had).mib * random.choice((0.05, 0.3, 0.7)) * MIB, mean_cores=None,
        )
        for number in range(count)
    )  # fmt: skip
