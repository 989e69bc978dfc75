# SPDX-License-Identifier: Apache-2.0
"""Make jobs of any kind, with what agents and accounting saw of them, and with what they really did.

The truth is chosen first; what was measured follows from it, with the gaps that real measurements have. Advice is
compared with the truth, never with our own summary.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from slurmscope.core.tres import Gres
from slurmscope.jobs.record import JobRecord, StepRecord
from slurmscope.jobs.series import Measured, Series
from tests.fakes.reports import START, make_record

MIB, GIB = 1 << 20, 1 << 30
ENDED = ("COMPLETED",) * 8 + ("FAILED", "FAILED", "TIMEOUT", "TIMEOUT", "OUT_OF_MEMORY", "OUT_OF_MEMORY", "CANCELLED",
         "NODE_FAIL", "PREEMPTED", "DEADLINE", "BOOT_FAIL", "REQUEUED")  # fmt: skip
T = TypeVar("T")

CORE_STYLES = ("cpus-per-task", "ntasks", "ntasks-per-node", "both", "script")
MEMORY_STYLES = ("mem", "mem-per-cpu", "mem-per-gpu", "default", "none")
MEASURED = (
    "curves", "memory_anon", "memory_shared", "cpu", "cores", "busy_peak", "memory_file", "memory_peak",
    "memory_peak_final", "memory_limit", "oom_kills", "read", "reads", "write", "writes", "cpu_queue", "gpu",
    "running_threads", "program_threads",
)  # fmt: skip
GPU_STYLES = ("gpus", "gpus-per-node", "gres", "gres_of_two", "gpus-per-task", "script")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyJob:
    """A job, what is known of it, and the truth."""

    record: JobRecord
    measured: Measured
    now: float
    node_cpus: float | None
    node_memory_bytes: float | None
    need_bytes: float
    """What its neediest node really needed up to the end."""
    seen_bytes: float
    """The highest need that any source reported of a node, file cache left out."""


class _Maker:
    """Choose one job; every choice comes from one source of random numbers."""

    def __init__(self, random: Random, state: str) -> None:
        self.random = random
        self.nodes = self.pick((1, 1, 1, 2, 3, 5))
        self.names = tuple(f"n{number}" for number in range(1, self.nodes + 1))
        self.node_cores = self.pick((1, 1, 2, 4, 4, 16, 64))
        self.cpus = self.nodes * self.node_cores
        self.gpus = self.nodes * self.pick((0, 0, 0, 1, 2, 4))
        self.state = state or self.pick(ENDED if self.maybe(0.9) else ("RUNNING", "RUNNING", "SUSPENDED"))
        self.has_ended = self.state in ENDED
        self.limit = self.pick((None, 60, 600, 3600, 7200, 86400, 7 * 86400))
        self.suspended = self.pick((0, 0, 0, 0, 30, 900))
        self.seconds = self._run_seconds()
        self.node_request = float(self.pick((256 * MIB, 300 * MIB, GIB, 1500 * MIB, 4 * GIB, 30 * GIB, 200 * GIB)))
        self.is_batch_only = self.nodes > 1 and self.maybe(0.1)
        self.needs = self._needs()

    def pick(self, values: tuple[T, ...]) -> T:
        return values[self.random.randrange(len(values))]

    def maybe(self, probability: float) -> bool:
        return self.random.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random.random()

    def _run_seconds(self) -> int:
        longest = self.limit or 3 * 86400
        if self.state == "TIMEOUT" and self.limit:
            return self.limit + self.pick((0, 1, 25))
        return max(1, int(longest * self.pick((0.0, 0.01, 0.2, 0.45, 0.7, 0.92, 1.0)))) + self.pick((0, 1))

    def _needs(self) -> list[float]:
        """Return what each node needed, of what it had: above it only if it was killed for that."""
        shares = (0.001, 0.02, 0.1, 0.3, 0.45, 0.7, 0.85, 0.93, 0.99)
        needs = [self.node_request * self.pick(shares) for _ in self.names]
        if self.is_batch_only:
            needs[1:] = [0.0] * (self.nodes - 1)
        if self.state == "OUT_OF_MEMORY":
            killed = 0 if self.is_batch_only else self.random.randrange(self.nodes)
            needs[killed] = self.node_request * self.pick((0.9, 1.0, 1.0))
        return needs

    def options(self) -> tuple[str, str]:
        """Return the command line and the options in the script, which together make up the request."""
        words = [*self._core_words(), *self._memory_words(), *self._gpu_words()]
        if self.limit and self.maybe(0.6):
            words.append(f"--time={max(1, self.limit // 60)}")
            if self.maybe(0.1):
                words.append(f"--time-min={max(1, self.limit // 120)}")
        if self.maybe(0.1):
            words.append("--exclusive")
        typed = " ".join(word for word in words if self.maybe(0.7))
        command = self.pick(("sbatch", "sbatch", "sbatch", "srun", "salloc"))
        script = " ".join(word for word in words if word not in typed.split())
        return (f"{command} {typed} job.sh" if self.maybe(0.95) else ""), script

    def _core_words(self) -> list[str]:
        style, nodes = self.pick(CORE_STYLES), [f"--nodes={self.nodes}"] if self.nodes > 1 or self.maybe(0.5) else []
        return (
            nodes
            + {
                "cpus-per-task": [f"--cpus-per-task={self.node_cores}"],
                "ntasks": [f"--ntasks={self.cpus}"],
                "ntasks-per-node": [f"--nodes={self.nodes}", f"--ntasks-per-node={self.node_cores}"],
                "both": [f"--ntasks={self.nodes}", f"--cpus-per-task={self.node_cores}"],
                "script": [],
            }[style]
        )

    def _memory_words(self) -> list[str]:
        style = self.pick(MEMORY_STYLES)
        if style == "mem":
            return [f"--mem={round(self.node_request / MIB)}M"]
        if style == "mem-per-cpu" or (style == "mem-per-gpu" and not self.gpus):
            each = max(1, round(self.node_request / self.node_cores / MIB))
            self.node_request = float(each * self.node_cores * MIB)
            return [f"--mem-per-cpu={each}M"]
        if style == "mem-per-gpu":
            each = max(1, round(self.node_request / (self.gpus / self.nodes) / MIB))
            self.node_request = float(each * self.gpus / self.nodes * MIB)
            return [f"--mem-per-gpu={each}M"]
        return []

    def _gpu_words(self) -> list[str]:
        each = self.gpus // self.nodes
        return (
            []
            if not self.gpus
            else {
                "gpus": [f"--gpus={self.gpus}"],
                "gpus-per-node": [f"--gpus-per-node=a100:{each}"],
                "gres": [f"--gres=gpu:{each}"],
                "gres_of_two": [f"--gres=gpu:a100:{each},tmpfs:10G"],
                "gpus-per-task": [f"--gpus-per-task={each}"],
                "script": [],
            }[self.pick(GPU_STYLES)]
        )

    def steps(self) -> tuple[StepRecord, ...]:
        """Return the steps of accounting; some are not sampled, and some have requests of their own."""
        worst = max(self.needs)
        rss = self.pick((None, 0, int(worst * self.between(0.1, 1.0)), int(worst)))
        made = [StepRecord(name="batch", state=self.state, tasks=1, nodes=1, max_rss_bytes=rss, node_list="n1")]
        # Where no step ran, the job used nothing.
        if self.is_batch_only:
            return tuple(made)
        for number in range(self.pick((0, 0, 1, 2)) or (self.nodes > 1)):
            request = self.pick(("", "", f"--cpus-per-task={self.node_cores}", "--mem=100M", f"--nodes={self.nodes}"))
            made.append(StepRecord(
                name=str(number), state=self.state, tasks=self.pick((None, 1, self.nodes, self.cpus)),
                nodes=self.nodes, max_rss_bytes=rss and rss // 2, request=request, node_list=f"n[1-{self.nodes}]",
            ))  # fmt: skip
        return tuple(made) if self.maybe(0.9) else ()

    def record(self) -> JobRecord:
        line, script = self.options()
        killed = self.state in {"OUT_OF_MEMORY", "FAILED", "CANCELLED"}
        end = START + self.seconds + self.suspended
        return make_record(
            state=self.state, end_seconds=end if self.has_ended else None, time_limit_seconds=self.limit,
            suspended_seconds=self.suspended, nodes=self.names if self.maybe(0.95) else (), node_count=self.nodes,
            cpus=self.cpus, requested_cpus=self.pick((None, self.cpus, max(1, self.cpus // 2))),
            gres=(Gres(name="gpu", count=self.gpus),) if self.gpus else (),
            requested_gpus=self.pick((None, self.gpus)),
            memory_bytes=int(self.node_request * self.nodes) if self.maybe(0.95) else None,
            exit_code=self.pick((0, 1, 137)) if killed else 0, exit_signal=self.pick((0, 9, 11)) if killed else 0,
            array_job_id=4700 if self.maybe(0.1) else None, array_task_id=self.pick((3, None)),
            cpu_seconds=self.pick((None, 0.0, self.cpus * self.seconds * self.between(0, 1.02))),
            submit_line=line, script_options=script if self.maybe(0.5) else None, steps=self.steps(),
        )  # fmt: skip

    def measured(self) -> Measured:
        """Return what agents saw: nothing, some nodes, or all; the first part of the run, or the whole."""
        seen = [name for name in self.names if self.maybe(0.9)] if self.maybe(0.9) else []
        part = self.pick((1.0, 1.0, 1.0, 0.5, 0.05))
        times, has = self._times(part), {name: self.maybe(0.85) for name in MEASURED}
        shape = self.pick(("even", "serial", "idle", "start", "end"))
        curves: defaultdict[str, list[Series]] = defaultdict(list)
        totals: defaultdict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
        for name, need in zip(self.names, self.needs, strict=True):
            if name not in seen:
                continue
            busy = self._busy(shape, len(times))
            if has["curves"] and times:
                curves["cpu"].append(Series((name,), times, busy))
                for curve, values in self._memory(need, len(times)).items():
                    if has[curve]:
                        curves[curve].append(Series((name,), times, values))
                if has["running_threads"] and max(busy):
                    # The series is absent while no thread is runnable.
                    curves["running_threads"].append(Series((name,), times, busy))
            if has["program_threads"]:
                threads = self.pick((1.0, float(self.node_cores), 300.0))
                totals["program_threads"] |= {(name, "srun"): 7.0, (name, "relax"): threads}
            cpu_seconds = math.fsum(busy) * part * self.seconds / max(1, len(times))
            for total, value in self._totals(need, cpu_seconds, max(busy, default=0.0)).items():
                if has[total]:
                    totals[total][name,] = value
        return Measured(curves={name: tuple(found) for name, found in curves.items()}, totals=dict(totals))

    def _memory(self, need: float, count: int) -> dict[str, tuple[float, ...]]:
        """Return samples, which miss a peak now and then."""
        shared = need * self.pick((0.0, 0.0, 0.5))
        sampled = (need - shared) * self.pick((1.0, 1.0, 0.97, 0.2))
        return {"memory_anon": self._ramp(sampled, count), "memory_shared": (shared,) * count}

    def _totals(self, need: float, cpu_seconds: float, busy_peak: float) -> dict[str, float]:
        cache = self.pick((0.0, 0.1 * self.node_request))
        return {
            "cpu": cpu_seconds,
            "cores": float(self.node_cores),
            "busy_peak": busy_peak,
            "memory_file": cache,
            "memory_peak": min(need + cache, self.node_request),
            "memory_peak_final": self.pick((1.0, 1.0, 0.0)),
            "memory_limit": self.node_request,
            "oom_kills": float(self.state == "OUT_OF_MEMORY" and self.maybe(0.8)),
            "read": self.between(0, 1e12),
            "reads": self.between(0, 1e6),
            "write": 0.0,
            "writes": 0.0,
            "cpu_queue": self.between(0, 0.1 * cpu_seconds),
            **({"gpu": self.pick((0.0, 0.04, 0.5, 1.0))} if self.gpus else {}),
        }

    def _times(self, part: float) -> tuple[float, ...]:
        span = (self.seconds + self.suspended) * part
        count = min(60, int(span // 15))
        return tuple(START + span * (index + 1) / count for index in range(count))

    def _busy(self, shape: str, count: int) -> tuple[float, ...]:
        cores = float(self.node_cores)
        full = cores * self.pick((0.3, 0.9, 1.0, 1.01))
        values = {"even": full, "serial": min(cores, 1.0), "idle": 0.0}
        if shape in values:
            return (values[shape],) * count
        return tuple(full if (index < count / 3) == (shape == "start") else 0.0 for index in range(count))

    def _ramp(self, top: float, count: int) -> tuple[float, ...]:
        if self.maybe(0.5):
            return (top,) * count
        return tuple(top * (index + 1) / count for index in range(count))


def make_any_job(random: Random, state: str = "") -> AnyJob:
    """Return a job that may exist, in this state or in any."""
    maker = _Maker(random, state)
    record, measured = maker.record(), maker.measured()
    size = maker.node_request * maker.pick((1.0, 1.1, 2.0, 8.0)) if maker.maybe(0.7) else None
    return AnyJob(
        record=record,
        measured=measured,
        now=START + maker.seconds + maker.suspended + (60 if maker.has_ended else 0),
        node_cpus=maker.node_cores * maker.pick((1.0, 2.0)) if size else None,
        node_memory_bytes=size,
        need_bytes=max(maker.needs),
        seen_bytes=_seen(record, measured),
    )


def _seen(record: JobRecord, measured: Measured) -> float:
    """Return the highest need of a node that was reported by anybody: samples, Slurm, or the kernel without cache."""
    sampled: dict[str, float] = {}
    shared = {series.labels[0]: series.values for series in measured.curves.get("memory_shared", ())}
    for series in measured.curves.get("memory_anon", ()):
        both = zip(series.values, shared.get(series.labels[0], (0.0,) * len(series.values)), strict=True)
        sampled[series.labels[0]] = max(anon + other for anon, other in both)
    charged, files = measured.totals.get("memory_peak", {}), measured.totals.get("memory_file", {})
    of_kernel = [peak - files.get(labels, 0.0) for labels, peak in charged.items() if labels[0] in sampled]
    return max([0.0, *sampled.values(), *of_kernel, *(float(step.max_rss_bytes or 0) for step in record.steps)])
