# SPDX-License-Identifier: Apache-2.0
"""Split the energy of a node among its jobs, and export the parts.

::

    slurm_node_energy_joules_total{slurm_node="n17"} 912034.5
    slurm_node_energy_source_info{slurm_node="n17",source="rapl",covers="processors"} 1
    jobs_energy_joules_total{slurm_job="4711",slurm_node="n17",part="cpu",covers="processors"} 40213.2

No sensor measures a job, so its part is an estimate. What is measured is kept whole: the parts of all jobs and
that of no job add up to the energy of the node, at every reading. Between two readings:

- ``gpu``: what the GPUs of the job used.
- The rest is what the meter counted besides the GPUs. Its floor is the lowest power of the rest so far.
- ``base``: the job's part of the floor, by the cores allocated to it of those of the node.
- ``cpu``: the job's part of what exceeds the floor, by its CPU time of that of the node.
- What is left belongs to no job: cores that are not allocated, and processes outside of jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Labels, counter, gauge, info
from slurmscope.node.gpu.records import Gpus
from slurmscope.node.job_metrics import JOB, label_jobs
from slurmscope.node.job_use import WHOLE_JOB, JobKey, JobUse, NodeJobs


class Covers(StrEnum):
    """What a meter measures."""

    NODE = "node"
    """The whole node with its GPUs."""
    PROCESSORS = "processors"
    """Processors and memory, without GPUs."""
    GPUS = "gpus"
    """Nothing but GPUs: the node has no meter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterReading:
    """What a meter counted since the agent started; ``rise_joules`` since the reading before, None if not measured.

    ``domains`` are joules by the name of the sensor, some of which may be parts of others. ``is_late`` means that the
    meter cannot be read now, and that its next reading counts this time, too.
    """

    source: str
    covers: Covers
    rise_joules: float | None
    domains: Mapping[str, float] = field(default_factory=dict)
    is_late: bool = False


NO_METER = MeterReading(source="gpu", covers=Covers.GPUS, rise_joules=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnergy:
    """Joules of one job by part."""

    gpu: float = 0.0
    base: float = 0.0
    cpu: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnergy:
    """Energy since the agent started: ``total_joules`` is ``jobs_joules``, of all jobs so far, and ``no_job_joules``.

    ``floor_watts`` is the lowest power of the node without its GPUs so far. ``jobs`` has those of which the agent
    still knows.
    """

    source: str
    covers: Covers
    total_joules: float = 0.0
    gpu_joules: float = 0.0
    jobs_joules: float = 0.0
    no_job_joules: float = 0.0
    watts: float | None = None
    floor_watts: float | None = None
    domains: Mapping[str, float] = field(default_factory=dict)
    jobs: Mapping[JobKey, JobEnergy] = field(default_factory=dict)
    without_gpus: frozenset[JobKey] = frozenset()
    """Jobs that hold a GPU whose energy, or their part of it, is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is known of the node at one moment.

    ``busy_seconds`` is the CPU time of all processes since boot, ``cores`` the number of logical CPUs.
    """

    at_seconds: float
    meter: MeterReading | None
    jobs: tuple[JobUse, ...] = ()
    gpus: Gpus = field(default_factory=Gpus)
    cores: int = 1
    busy_seconds: float | None = None


FLOOR_INTERVAL_SECONDS = 1.0
"""Shorter intervals do not lower the floor: counters are updated at intervals of their own."""

_PARTLY = 0.5
"""Part of the interval in which a job ran that began or ended in it."""


class EnergySplit:
    """Add up the parts of jobs from one moment to the next. Not thread-safe."""

    def __init__(self) -> None:
        self._before: Moment | None = None
        self._gpu_before: dict[str, float] = {}
        self._pairs_before: dict[tuple[JobKey, str], float] = {}
        self._meter_joules = 0.0
        self._rest_joules = 0.0
        self._total = NodeEnergy(source="", covers=Covers.GPUS)

    def add(self, now: Moment) -> NodeEnergy | None:
        """Add what was used since the moment before; None on a node without any meter."""
        if now.meter is not None and now.meter.is_late:
            return replace(self._total, watts=None)
        before, self._before = self._before, now
        gpu_joules, of_jobs = self._gpu_rise(now.gpus), self._job_gpu_rises(now)
        if now.meter is None and not self._gpu_before:
            return None
        meter = now.meter or NO_METER
        if meter.source != self._total.source:
            # Another meter has another floor.
            self._total = replace(self._total, floor_watts=None)
        # The joules of jobs have a label for what the meter covers: each series of a job begins at 0, or a report would
        # count what the series of before has.
        jobs = self._total.jobs if meter.covers is self._total.covers else {}
        known = {job.key: jobs.get(job.key, JobEnergy()) for job in now.jobs}
        self._total = replace(
            self._total,
            source=meter.source,
            covers=meter.covers,
            domains=meter.domains,
            jobs=known,
            without_gpus=frozenset(
                key for (key, _), used in now.gpus.job_counters.items() if "energy" not in used.totals
            ),
            watts=None,
        )
        elapsed = now.at_seconds - before.at_seconds if before else 0.0
        if before is None or elapsed <= 0:
            return self._total
        rest = self._rest_rise(meter, gpu_joules)
        floor = self._floor(rest / elapsed if meter.rise_joules is not None else None, elapsed)
        base = min(rest, floor * elapsed)
        shares = _share_gpus(of_jobs, gpu_joules)
        shares = _add_cpu(shares, before, now, base=base, active=rest - base)
        self._credit(shares, gpu_joules + rest, gpu_joules)
        is_measured = any(gpu.energy_joules is not None for gpu in now.gpus.devices)
        if meter.rise_joules is not None or (meter.covers is Covers.GPUS and is_measured):
            self._total = replace(self._total, watts=(gpu_joules + rest) / elapsed)
        return self._total

    def _gpu_rise(self, gpus: Gpus) -> float:
        """Return what all GPUs used since the reading before; 0 for one that is new, or counts again from 0."""
        counted = {gpu.uuid: gpu.energy_joules for gpu in gpus.devices if gpu.uuid and not gpu.parent_uuid}
        rise = 0.0
        for uuid, joules in counted.items():
            if joules is not None:
                rise += max(0.0, joules - self._gpu_before.get(uuid, joules))
                self._gpu_before[uuid] = joules
        return rise

    def _job_gpu_rises(self, now: Moment) -> dict[JobKey, float]:
        """Return what the GPUs of each job used since the reading before, GPU by GPU.

        One that is lost or not known for a while must not hide what the others of the job use, nor count twice later.
        """
        running = {job.key for job in now.jobs}
        rises = dict.fromkeys(running, 0.0)
        for (key, uuid), counters in now.gpus.job_counters.items():
            joules = counters.totals.get("energy")
            if joules is not None and key in running:
                rises[key] += max(0.0, joules - self._pairs_before.get((key, uuid), 0.0))
                self._pairs_before[key, uuid] = joules
        self._pairs_before = {pair: joules for pair, joules in self._pairs_before.items() if pair[0] in running}
        return rises

    def _rest_rise(self, meter: MeterReading, gpu_joules: float) -> float:
        """Return what the node used besides its GPUs.

        GPUs are read at other moments than the meter: what they seem to use beyond it is missing in later intervals.
        """
        if meter.covers is not Covers.NODE or meter.rise_joules is None:
            return meter.rise_joules or 0.0
        self._meter_joules += meter.rise_joules - gpu_joules
        rise = max(0.0, self._meter_joules - self._rest_joules)
        self._rest_joules += rise
        return rise

    def _floor(self, watts: float | None, elapsed: float) -> float:
        known = self._total.floor_watts
        if watts is not None and elapsed >= FLOOR_INTERVAL_SECONDS:
            known = watts if known is None else min(known, watts)
            self._total = replace(self._total, floor_watts=known)
        return known or 0.0

    def _credit(self, shares: Mapping[JobKey, JobEnergy], joules: float, gpu_joules: float) -> None:
        total = self._total
        of_jobs = sum(share.gpu + share.base + share.cpu for share in shares.values())
        self._total = replace(
            total,
            total_joules=total.total_joules + joules,
            gpu_joules=total.gpu_joules + gpu_joules,
            jobs_joules=total.jobs_joules + of_jobs,
            no_job_joules=total.no_job_joules + max(0.0, joules - of_jobs),
            jobs={key: _sum(known, shares.get(key)) for key, known in total.jobs.items()},
        )


def _sum(known: JobEnergy, more: JobEnergy | None) -> JobEnergy:
    if more is None:
        return known
    return JobEnergy(gpu=known.gpu + more.gpu, base=known.base + more.base, cpu=known.cpu + more.cpu)


def _share_gpus(of_jobs: Mapping[JobKey, float], gpu_joules: float) -> dict[JobKey, JobEnergy]:
    """Return what the GPUs of each job used; never more than all GPUs together."""
    total = sum(of_jobs.values())
    scale = min(1.0, gpu_joules / total) if total else 0.0
    return {key: JobEnergy(gpu=joules * scale) for key, joules in of_jobs.items()}


def _add_cpu(
    shares: Mapping[JobKey, JobEnergy], before: Moment, now: Moment, *, base: float, active: float
) -> dict[JobKey, JobEnergy]:
    """Add the parts of the rest: the floor by allocated cores, what exceeds it by CPU time."""
    elapsed = now.at_seconds - before.at_seconds
    most = elapsed * now.cores
    was = {job.key: job for job in before.jobs}
    cpu = {job.key: min(most, _cpu_rise(was.get(job.key), job)) for job in now.jobs}
    cores = {job.key: _weight(was.get(job.key), job) * _cores(job, cpu[job.key] / elapsed) for job in now.jobs}
    all_cpu = max(sum(cpu.values()), _busy_rise(before, now))
    all_cores = max(sum(cores.values()), now.cores)
    return {
        key: replace(
            shares.get(key, JobEnergy()),
            base=base * cores[key] / all_cores,
            cpu=active * cpu[key] / all_cpu if all_cpu else 0.0,
        )
        for key in cpu
    }


def _weight(was: JobUse | None, now: JobUse) -> float:
    """Return for which part of the interval a job held its cores: the moments of its start and end are not known."""
    if was is not None and was.has_ended:
        return 0.0
    return _PARTLY if was is None or now.has_ended else 1.0


def _cores(job: JobUse, busy_cores: float) -> float:
    """Return the cores that a job may use, or those it kept busy where it is not confined to cores."""
    cores = job.groups[WHOLE_JOB].cpu.cores if WHOLE_JOB in job.groups else None
    return busy_cores if cores is None else len(cores)


def _cpu_rise(was: JobUse | None, now: JobUse) -> float:
    used = _cpu_seconds(now)
    return 0.0 if used is None else max(0.0, used - ((_cpu_seconds(was) if was else None) or 0.0))


def _cpu_seconds(job: JobUse) -> float | None:
    return job.groups[WHOLE_JOB].cpu.total_seconds if WHOLE_JOB in job.groups else None


def _busy_rise(before: Moment, now: Moment) -> float:
    if before.busy_seconds is None or now.busy_seconds is None:
        return 0.0
    return max(0.0, now.busy_seconds - before.busy_seconds)


_NODE = ("slurm_node",)
SOURCE = info(
    "slurm_node_energy_source_info",
    "Where the energy of the node is taken from (cray, hwmon, ipmi, rapl, or gpu), and what that covers: node (all of "
    "it with its GPUs), processors (processors and memory; GPUs are added) or gpus (no other meter).",
    *_NODE, "source", "covers",
)  # fmt: skip
TOTAL = counter("slurm_node_energy_joules_total", "Energy used by the node since the agent started.", *_NODE)
GPU = counter("slurm_node_energy_gpu_joules_total", "Part of the node's energy that its GPUs used.", *_NODE)
OF_JOBS = counter("slurm_node_energy_jobs_joules_total", "Part of the node's energy of jobs, also ended ones.", *_NODE)
NO_JOB = counter(
    "slurm_node_energy_idle_joules_total",
    "Part of the node's energy of no job: cores and GPUs that are not allocated, and processes outside of jobs.",
    *_NODE,
)
DOMAIN = counter(
    "slurm_node_energy_domain_joules_total",
    "Energy by sensor since the agent started; some are parts of others, such as core of package-0.",
    *_NODE, "domain",
)  # fmt: skip
POWER = gauge("slurm_node_power_watts", "Mean power of the node since the reading before.", *_NODE)
FLOOR = gauge(
    "slurm_node_power_floor_watts",
    "Lowest mean power of the node without its GPUs since the agent started, which jobs share by allocated cores.",
    *_NODE,
)
OF_JOB = counter(
    "jobs_energy_joules_total",
    "Energy of the job on the node, estimated, by part: gpu (its GPUs), base (allocated cores' part of the node's "
    "floor) and cpu (by CPU time, of what exceeds the floor). covers is what the meter of the node measures; without "
    "one, there is only gpu.",
    *JOB, "part", "covers",
)  # fmt: skip


def collect(
    options: NoOptions,  # noqa: ARG001 - part of the protocol
    *,
    energy: NodeEnergy | None,
    node_jobs: NodeJobs,
) -> Iterator[Family]:
    """Yield the energy of the node, then that of its jobs; nothing on a node without any meter."""
    if energy is None:
        return
    host = node_jobs.host_name
    yield Family(SOURCE, {(host, energy.source, energy.covers.value): 1.0})
    for metric, joules in (
        (TOTAL, energy.total_joules),
        (GPU, energy.gpu_joules),
        (OF_JOBS, energy.jobs_joules),
        (NO_JOB, energy.no_job_joules),
        (POWER, energy.watts),
        (FLOOR, energy.floor_watts),
    ):
        yield Family(metric, {} if joules is None else {(host,): joules})
    yield Family(DOMAIN, {(host, domain): joules for domain, joules in energy.domains.items()})
    yield Family(OF_JOB, _parts_of_jobs(energy, node_jobs))


def _parts_of_jobs(energy: NodeEnergy, node_jobs: NodeJobs) -> dict[Labels, float]:
    parts: dict[Labels, float] = {}
    for labels, job in label_jobs(node_jobs).items():
        if (used := energy.jobs.get(job.key)) is not None:
            # Without a meter, the share of the rest is not 0 but unknown.
            shares = () if energy.covers is Covers.GPUS else (("base", used.base), ("cpu", used.cpu))
            is_unknown = job.key in energy.without_gpus and not used.gpu
            for part, joules in (*(() if is_unknown else (("gpu", used.gpu),)), *shares):
                parts[*labels, part, energy.covers.value] = joules
    return parts


COLLECTOR = Collector(
    name="energy",
    role=Role.NODE,
    help="Power and energy of the node, and the part of each job.",
    needs=("energy", "node_jobs"),
    metrics=(SOURCE, TOTAL, GPU, OF_JOBS, NO_JOB, DOMAIN, POWER, FLOOR, OF_JOB),
    collect=collect,
)
