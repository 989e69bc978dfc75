# SPDX-License-Identifier: Apache-2.0
"""Make rows of running jobs from the metrics of node agents, from wherever these were read.

A number without a metric is None. Rates need two readings: in between, a job has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

Labels = Mapping[str, str]
Numbers = Mapping[str, Sequence[tuple[Labels, float]]]
"""Samples by metric; counters are rates per second."""

INFO = "jobs_info"
COUNTERS = (
    "jobs_cpu_seconds_total",
    "jobs_io_read_bytes_total",
    "jobs_io_write_bytes_total",
    "jobs_gpu_busy_seconds_total",
    "jobs_gpu_sm_active_seconds_total",
    "jobs_gpu_energy_joules_total",
)
GAUGES = (
    INFO,
    "jobs_cores",
    "jobs_memory_anon_bytes",
    "jobs_memory_shmem_bytes",
    "jobs_memory_rss_bytes",
    "jobs_memory_limit_bytes",
    "jobs_gpu_held",
    "jobs_gpu_held_utilization_ratio",
    "jobs_gpu_held_memory_bytes",
    "jobs_gpu_held_memory_size_bytes",
)
MAX_JOBS = 2000
_MOST_DIGITS = 18
_STALE_SECONDS = 30.0
"""A counter that has not changed for so long stands still: GPUs are read less often than the screen is refreshed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopGpu:
    """One GPU that a job holds; power is the job's part of it."""

    node: str
    name: str
    busy_ratio: float | None = None
    sm_ratio: float | None = None
    memory_bytes: float | None = None
    size_bytes: float | None = None
    power_watts: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopJob:
    """One running job, on one node or on all that were read."""

    job_id: str
    user: str = ""
    account: str = ""
    name: str = ""
    nodes: tuple[str, ...] = ()
    cores_used: float | None = None
    cores: float | None = None
    memory_bytes: float | None = None
    limit_bytes: float | None = None
    read_rate: float | None = None
    write_rate: float | None = None
    elapsed_seconds: float | None = None
    time_limit_seconds: float | None = None
    gpus: tuple[TopGpu, ...] = ()

    @property
    def cpu_ratio(self) -> float | None:
        return share(self.cores_used, self.cores)

    @property
    def memory_ratio(self) -> float | None:
        return share(self.memory_bytes, self.limit_bytes)

    @property
    def time_ratio(self) -> float | None:
        return share(self.elapsed_seconds, self.time_limit_seconds)

    @property
    def gpu_ratio(self) -> float | None:
        """Return the mean of the GPUs; None if one was not measured."""
        return mean_of(gpu.busy_ratio for gpu in self.gpus)


def share(used: float | None, whole: float | None) -> float | None:
    return used / whole if used is not None and whole else None


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean; None without values, or if one is unknown."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known and len(known) == len(found) else None


@dataclass(slots=True)
class _Counter:
    value: float
    changed_at: float
    rate: float | None = None


class Rates:
    """Turn counters into rates, each between its last two different values."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], _Counter] = {}

    def of(self, numbers: Numbers, at_seconds: float) -> Numbers:
        """Return the numbers with rates instead of counters; a new counter has none yet."""
        seen: dict[tuple[str, tuple[tuple[str, str], ...]], _Counter] = {}
        made: dict[str, Sequence[tuple[Labels, float]]] = {}
        for metric, samples in numbers.items():
            if metric not in COUNTERS:
                made[metric] = samples
                continue
            rated: list[tuple[Labels, float]] = []
            for labels, value in samples:
                key = metric, tuple(sorted(labels.items()))
                seen[key] = counter = self._advance(self._known.get(key), value, at_seconds)
                if counter.rate is not None:
                    rated.append((labels, counter.rate))
            made[metric] = rated
        # Series that are gone are forgotten.
        self._known = seen
        return made

    @staticmethod
    def _advance(known: _Counter | None, value: float, now: float) -> _Counter:
        if known is None or value < known.value:
            return _Counter(value, now)
        elapsed = now - known.changed_at
        if value > known.value and elapsed > 0:
            return _Counter(value, now, (value - known.value) / elapsed)
        if known.rate is None and elapsed > 0:
            return replace(known, rate=0.0)
        return replace(known, rate=0.0) if elapsed > _STALE_SECONDS else known


def make_jobs(numbers: Numbers) -> tuple[TopJob, ...]:
    """Return the running jobs; those of several nodes are summed, where every node has the number."""
    infos: dict[str, list[Labels]] = {}
    for labels, _ in numbers.get(INFO, ()):
        if labels.get("has_ended") != "true" and labels.get("slurm_job"):
            infos.setdefault(labels["slurm_job"], []).append(labels)
    by_pair = {metric: _by_pair(numbers.get(metric, ())) for metric in (*COUNTERS, *GAUGES)}
    gpus = _by_gpu(numbers)
    return tuple(_make_job(job, parts, by_pair, gpus) for job, parts in list(infos.items())[:MAX_JOBS])


_Pairs = Mapping[str, Mapping[tuple[str, str], float]]
_Gpus = Mapping[tuple[str, str], Mapping[str, Mapping[str, float]]]


def _make_job(job: str, parts: Sequence[Labels], by_pair: _Pairs, gpus: _Gpus) -> TopJob:
    nodes = tuple(sorted({labels.get("slurm_node", "") for labels in parts}))

    def total(*metrics: str) -> float | None:
        values = [by_pair[metric].get((job, node)) for metric in metrics for node in nodes]
        known = [value for value in values if value is not None]
        return sum(known) if known and len(known) == len(values) else None

    anonymous, shared = total("jobs_memory_anon_bytes"), total("jobs_memory_shmem_bytes")
    memory = anonymous + (shared or 0.0) if anonymous is not None else total("jobs_memory_rss_bytes")
    return TopJob(
        job_id=job,
        user=parts[0].get("user", ""),
        account=parts[0].get("account", ""),
        nodes=nodes,
        cores_used=total("jobs_cpu_seconds_total"),
        cores=total("jobs_cores"),
        memory_bytes=memory,
        limit_bytes=total("jobs_memory_limit_bytes"),
        read_rate=total("jobs_io_read_bytes_total"),
        write_rate=total("jobs_io_write_bytes_total"),
        gpus=tuple(
            _make_gpu(node, name, values) for node in nodes for name, values in _held(gpus.get((job, node), {}))
        ),
    )


def _held(gpus: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, Mapping[str, float]]]:
    yield from sorted((name, values) for name, values in gpus.items() if values.get("jobs_gpu_held", 1.0))


def _make_gpu(node: str, name: str, values: Mapping[str, float]) -> TopGpu:
    busy = values.get("jobs_gpu_busy_seconds_total", values.get("jobs_gpu_held_utilization_ratio"))
    return TopGpu(
        node=node,
        name=name,
        busy_ratio=busy,
        sm_ratio=values.get("jobs_gpu_sm_active_seconds_total"),
        memory_bytes=values.get("jobs_gpu_held_memory_bytes"),
        size_bytes=values.get("jobs_gpu_held_memory_size_bytes"),
        power_watts=values.get("jobs_gpu_energy_joules_total"),
    )


def _by_pair(samples: Sequence[tuple[Labels, float]]) -> dict[tuple[str, str], float]:
    return {(labels.get("slurm_job", ""), labels.get("slurm_node", "")): value for labels, value in samples}


def _by_gpu(numbers: Numbers) -> _Gpus:
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for metric in (*COUNTERS, *GAUGES):
        if not metric.startswith("jobs_gpu_"):
            continue
        for labels, value in numbers.get(metric, ()):
            name = labels.get("gpu", "") + (f" MIG {labels['mig']}" if labels.get("mig") else "")
            pair = labels.get("slurm_job", ""), labels.get("slurm_node", "")
            found.setdefault(pair, {}).setdefault(name, {})[metric] = value
    return found


SORT_KEYS: Mapping[str, str] = {
    "cpu": "cores_used", "memory": "memory_bytes", "gpu": "gpu_ratio", "io": "", "time": "time_ratio", "job": "",
}  # fmt: skip


def sort_jobs(jobs: Iterable[TopJob], key: str) -> list[TopJob]:
    """Sort by falling value, what was not measured last; by ID where values are equal."""

    def order(job: TopJob) -> tuple[float, int, str]:
        if key == "job":
            value: float | None = None
        elif key == "io":
            known = [rate for rate in (job.read_rate, job.write_rate) if rate is not None]
            value = sum(known) if known else None
        else:
            value = getattr(job, SORT_KEYS[key])
        number = job.job_id.replace("+", "_").partition("_")[0]
        is_id = number.isdecimal() and len(number) <= _MOST_DIGITS
        return -value if value is not None else float("inf"), int(number) if is_id else 0, job.job_id

    return sorted(jobs, key=order)


def filter_jobs(jobs: Iterable[TopJob], text: str) -> list[TopJob]:
    """Keep jobs with a text in ID, user, account, name or node, in any case."""
    wanted = text.casefold()
    return [
        job
        for job in jobs
        if any(wanted in part.casefold() for part in (job.job_id, job.user, job.account, job.name, *job.nodes))
    ]
