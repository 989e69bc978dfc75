# SPDX-License-Identifier: Apache-2.0
"""Count what GPUs did, and attribute it to the jobs that hold them.

::

    gpu_busy_seconds_total{gpu="0",mig=""} 8160.4
    gpu_pipe_active_seconds_total{gpu="0",mig="",pipe="hmma"} 7710.2
    jobs_gpu_tensor_active_seconds_total{slurm_job="4711",slurm_node="n17",gpu="0",mig=""} 512.8

``rate()`` of a counter of seconds is a mean share of time. A GPU that counts nothing but its busy time (Ampere and
older) has that series alone.

What a GPU does while one job holds it is that job's. Where several do, or the holder changed since the last reading,
the exact total of the GPU is split by the busy time of their processes; what none of them did is that of the job that
held it alone before and has ended. The driver gives the overlap of two processes
to one of them, so such parts are estimates. The server of MPS gets the busy time of all its clients: it is the job's if
all clients are of one job. Otherwise, or where another process outside of jobs did most of the work, the parts of the
jobs are not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from slurmscope.metrics.family import Family, Labels, Metric, counter, gauge, info
from slurmscope.node.cgroup.names import job_of
from slurmscope.node.gpu.attribution import GpuHold
from slurmscope.node.gpu.records import NO_SOURCE, Absence, Gpu, GpuCounters, JobGpuCounters
from slurmscope.node.job_metrics import JOB
from slurmscope.node.job_use import JobKey

# Less is noise of counters.
_LEAST_BUSY_SECONDS = 0.001
# Of these, a job may have totals from before: they are kept, and exported again once its part is known.
_UNKNOWN = frozenset({Absence.MPS, Absence.OTHER_PROCESSES, Absence.PROCESS_TIMES})

T = TypeVar("T")
Pair = tuple[JobKey, str]
"""A job, and the UUID of a GPU that it holds."""


class JobCounters:
    """Add up what each running job did on each of its GPUs. Not thread-safe."""

    def __init__(self) -> None:
        self._earlier: dict[str, Gpu] = {}
        self._holders: dict[str, frozenset[JobKey]] = {}
        self._totals: dict[Pair, JobGpuCounters] = {}
        self._rest: dict[Pair, JobGpuCounters] = {}
        self._final: set[Pair] = set()
        self._joules: Mapping[str, float] = {}

    def add(
        self,
        devices: Iterable[Gpu],
        holds: Iterable[GpuHold],
        *,
        running: Collection[JobKey] = (),
        ended: Collection[JobKey] = (),
    ) -> Mapping[Pair, JobGpuCounters]:
        """Add what happened since the last reading; return the totals of the jobs that hold a GPU.

        Those of jobs that held one are kept while the jobs run, and while they are served after their end. When such a
        job runs again, it begins at 0.
        """
        holders: defaultdict[str, set[JobKey]] = defaultdict(set)
        for hold in holds:
            if hold.is_held:
                holders[hold.gpu.uuid].add(hold.job)
        held = {gpu.uuid: (gpu, frozenset(holders[gpu.uuid])) for gpu in devices if gpu.uuid and gpu.problem is None}
        self._joules = _split_by_instance([gpu for gpu, _ in held.values()], self._earlier)
        found: dict[Pair, JobGpuCounters] = {}
        for gpu, jobs in held.values():
            self._rest |= self._end(gpu, jobs)
            found |= self._add_gpu(gpu, jobs)
        known = {*running, *ended}
        self._rest = {pair: last for pair, last in self._rest.items() if pair[0] in known and pair not in found}
        self._final = {pair for pair in self._rest if pair in self._final or pair[0] not in running}
        # GPUs that cannot be read now may be at the next reading.
        lost = {pair: last for pair, last in self._totals.items() if pair[0] in known and pair[1] not in held}
        unread = {uuid for _, uuid in lost}
        self._earlier = _only(self._earlier, unread) | {uuid: gpu for uuid, (gpu, _) in held.items()}
        self._holders = _only(self._holders, unread) | {uuid: jobs for uuid, (_, jobs) in held.items()}
        self._totals = lost | found
        return {
            pair: replace(last, totals={}) if last.absence in _UNKNOWN else last
            for pair, last in (self._rest | found).items()
            if pair[1] in held
        }

    def _end(self, gpu: Gpu, jobs: frozenset[JobKey]) -> dict[Pair, JobGpuCounters]:
        """Return the totals of jobs that do not hold a GPU any more.

        One that held it alone did all that no process of now has done since.
        """
        before = self._holders.get(gpu.uuid, frozenset())
        more: Mapping[str, float] = {}
        if len(before) == 1 and not before & jobs:
            earlier = self._earlier.get(gpu.uuid)
            passed = _passed(gpu, earlier)
            share = _share_of_ended(passed, has_successor=bool(jobs))
            more = {name: share * total for name, total in _all_totals(gpu, passed, earlier).items()} if share else {}
        return {
            (job, gpu.uuid): self._sum((job, gpu.uuid), more, is_estimate=bool(more and jobs), absence=last.absence)
            for job in before - jobs
            if (last := self._totals.get((job, gpu.uuid))) is not None and last.totals
        }

    def _add_gpu(self, gpu: Gpu, jobs: frozenset[JobKey]) -> dict[Pair, JobGpuCounters]:
        shares, totals, absence = self._split(gpu, jobs)
        return {
            (job, gpu.uuid): self._sum(
                (job, gpu.uuid),
                {name: shares.get(job, 0.0) * total for name, total in totals.items()} if job in shares else {},
                is_estimate=len(jobs) > 1,
                absence=absence,
            )
            for job in jobs
        }

    def _split(self, gpu: Gpu, jobs: frozenset[JobKey]) -> tuple[Mapping[JobKey, float], Mapping[str, float], Absence]:
        """Return the part of each job, of which totals, and why there are none."""
        energy = {"energy": self._joules[gpu.uuid]} if gpu.uuid in self._joules else {}
        if gpu.counters is None:
            return dict.fromkeys(jobs, 1.0) if len(jobs) == 1 else {}, energy, Absence.DRIVER
        earlier = self._earlier.get(gpu.uuid)
        passed = _passed(gpu, earlier)
        totals = _all_totals(gpu, passed, earlier) | energy
        if len(jobs) == 1 and self._holders.get(gpu.uuid, frozenset()) <= jobs:
            absence = Absence.DRIVER if gpu.counters.source == NO_SOURCE else Absence.NONE
            return dict.fromkeys(jobs, 1.0), totals, absence
        shares, absence = _shares_by_process(gpu, passed, sorted(jobs, key=repr))
        return shares, totals, absence

    def _sum(self, pair: Pair, more: Mapping[str, float], *, is_estimate: bool, absence: Absence) -> JobGpuCounters:
        so_far = self._totals.get(pair)
        if so_far is None:
            so_far = JobGpuCounters() if pair in self._final else self._rest.get(pair, JobGpuCounters())
        names = so_far.totals.keys() | more.keys()
        return JobGpuCounters(
            totals={name: so_far.totals.get(name, 0.0) + more.get(name, 0.0) for name in names},
            is_estimate=so_far.is_estimate or is_estimate,
            absence=absence,
        )


def _only(known: Mapping[str, T], uuids: Collection[str]) -> dict[str, T]:
    return {uuid: known[uuid] for uuid in uuids if uuid in known}


def _share_of_ended(passed: GpuCounters, *, has_successor: bool) -> float:
    """Return the part of the work that no process of now did; none where the work of a successor is not known."""
    busy, known = passed.totals.get("busy", 0.0), sum(passed.by_pid.values())
    if busy < _LEAST_BUSY_SECONDS or (has_successor and not known):
        return 0.0
    return max(0.0, 1 - known / busy)


def _passed(gpu: Gpu, earlier: Gpu | None) -> GpuCounters:
    """Return what was counted since the last reading; nothing for a device that counts nothing."""
    if gpu.counters is None:
        return GpuCounters(source=NO_SOURCE, seconds=0.0)
    return gpu.counters.since(None if earlier is None else earlier.counters)


def _split_by_instance(devices: Iterable[Gpu], earlier: Mapping[str, Gpu]) -> dict[str, float]:
    """Return joules by UUID of MIG instances: no sensor measures them.

    The energy of the whole GPU is split by memory, which instances have in proportion to their multiprocessors, times
    busy time; by memory alone where nothing is busy or the busy time of one is not known.
    """
    whole, instances = {}, defaultdict[str, list[Gpu]](list)
    for gpu in devices:
        if gpu.parent_uuid:
            instances[gpu.parent_uuid].append(gpu)
        elif gpu.energy_joules is not None:
            before = earlier.get(gpu.uuid)
            whole[gpu.uuid] = _rise(gpu.energy_joules, before.energy_joules if before else None)
    joules: dict[str, float] = {}
    for uuid in whole.keys() & instances.keys():
        sizes = {gpu.uuid: float(gpu.memory_size_bytes or 0) for gpu in instances[uuid]}
        passed = {gpu.uuid: _passed(gpu, earlier.get(gpu.uuid)).totals.get("busy") for gpu in instances[uuid]}
        weights = {one: sizes[one] * (busy or 0.0) for one, busy in passed.items()}
        if None in passed.values() or not sum(weights.values()):
            weights = sizes
        if total := sum(weights.values()):
            joules |= {one: whole[uuid] * weight / total for one, weight in weights.items()}
    return joules


def _all_totals(gpu: Gpu, passed: GpuCounters, earlier: Gpu | None) -> dict[str, float]:
    """Return what was counted, with what the driver counts by itself: energy and time at reduced clocks."""
    totals = dict(passed.totals)
    if gpu.energy_joules is not None:
        totals["energy"] = _rise(gpu.energy_joules, earlier.energy_joules if earlier else None)
    for reason, seconds in gpu.throttled_seconds.items():
        before = earlier.throttled_seconds.get(reason) if earlier else None
        totals[f"throttled_{reason}"] = _rise(seconds, before)
    return totals


def _rise(now: float, before: float | None) -> float:
    """Return what was added since the last reading; 0 at the first: the driver counts since it was loaded."""
    return 0.0 if before is None else max(0.0, now - before)


def _shares_by_process(gpu: Gpu, passed: GpuCounters, jobs: Sequence[JobKey]) -> tuple[Mapping[JobKey, float], Absence]:
    """Return the part of each job; none if that of a process that did most of the work is not known."""
    busy: defaultdict[JobKey | None, float] = defaultdict(float)
    for process in gpu.processes or ():
        busy[job_of(process.place, jobs)] += passed.by_pid.get(process.pid, 0.0)
    whole = max(passed.totals.get("busy", 0.0), sum(busy.values()))
    if whole < _LEAST_BUSY_SECONDS:
        return dict.fromkeys(jobs, 1 / len(jobs)) if jobs else {}, Absence.NONE
    if not sum(busy.values()):
        return {}, Absence.PROCESS_TIMES
    clients = {job_of(process.place, jobs) for process in gpu.processes or () if process.is_mps_client}
    if len(clients) == 1:  # the server worked for one job only
        (client,) = clients
        busy[client] += busy.pop(None, 0.0)
    if busy[None] > whole / 2:
        return {}, Absence.MPS if clients else Absence.OTHER_PROCESSES
    return {job: busy[job] / whole for job in jobs}, Absence.NONE


_KINDS = {
    "busy": ("busy_seconds", "Time in which a kernel was running"),
    "sm_active": ("sm_active_seconds", "Time in which multiprocessors were at work, as a mean over all of them,"),
    "tensor_active": ("tensor_active_seconds", "Time in which tensor cores were at work, as a mean over all of them,"),
    "dram_active": ("dram_active_seconds", "Time that the transferred data of GPU memory takes at full bandwidth,"),
    "pcie_received": ("pcie_received_bytes", "Data received over PCIe"),
    "pcie_transmitted": ("pcie_transmitted_bytes", "Data transmitted over PCIe"),
    "nvlink_received": ("nvlink_received_bytes", "Data received over NVLink"),
    "nvlink_transmitted": ("nvlink_transmitted_bytes", "Data transmitted over NVLink"),
}
_PIPES = ("fp64", "fp32", "fp16", "integer", "hmma", "imma", "dfma", "dmma")
_THROTTLED = "throttled_"
_GPU = ("gpu", "mig")
PAIR = (*JOB, *_GPU)

DEVICE = {name: counter(f"gpu_{end}_total", f"{text} on the GPU.", *_GPU) for name, (end, text) in _KINDS.items()}
OF_JOB = {
    name: counter(f"jobs_gpu_{end}_total", f"{text} on the GPU, while the job held it.", *PAIR)
    for name, (end, text) in _KINDS.items()
}
_PIPE_HELP = (
    "Time in which a kind of arithmetic unit was at work, as a mean over all multiprocessors: fp64, fp32, fp16, "
    "integer, and the tensor cores by kind of operation: hmma (half, bfloat16, TF32), imma (integer), dfma and dmma "
    "(double)."
)
PIPE = counter("gpu_pipe_active_seconds_total", _PIPE_HELP, *_GPU, "pipe")
JOB_PIPE = counter("jobs_gpu_pipe_active_seconds_total", f"Of a job: {_PIPE_HELP}", *PAIR, "pipe")
_THROTTLED_HELP = "for which clocks were held down, by reason: power_cap, thermal, power_brake, ..."
THROTTLED = counter("gpu_throttled_seconds_total", f"Time {_THROTTLED_HELP}", *_GPU, "reason")
JOB_THROTTLED = counter("jobs_gpu_throttled_seconds_total", f"Time of the job {_THROTTLED_HELP}", *PAIR, "reason")
JOB_ENERGY = counter(
    "jobs_gpu_energy_joules_total",
    "Energy used by the GPU while the job held it; its part of a shared GPU; of a MIG instance an estimate.",
    *PAIR,
)
SOURCE = info(
    "gpu_counters_source_info",
    "What the counters of the GPU are taken from: gpm (hardware counters), samples (the driver's buffer of the "
    "utilization gauge), gauge (the gauge, every few seconds), engines (the kernel's times of its clients) or none "
    "(the driver counts nothing for this device).",
    *_GPU,
    "source",
)
UNAVAILABLE = gauge(
    "jobs_gpu_counters_unavailable",
    "Always 1: why the job has no counters of a GPU that it holds: driver (none are counted), or of a shared GPU: mps "
    "(its work is that of a server), other_processes (most of it was done outside of jobs) or process_times (unknown).",
    *PAIR,
    "reason",
)
ESTIMATED = gauge(
    "jobs_gpu_counters_estimated",
    "1 if the GPU was shared with other jobs, so that the counters of the job are estimates; 0 otherwise.",
    *PAIR,
)

METRICS = (
    *DEVICE.values(), *OF_JOB.values(), PIPE, JOB_PIPE, THROTTLED, JOB_THROTTLED, JOB_ENERGY, SOURCE, UNAVAILABLE,
    ESTIMATED,
)  # fmt: skip


def device_counters(gpus: Mapping[Labels, Gpu]) -> Iterator[Family]:
    """Yield the counters of each GPU."""
    counted = {labels: gpu.counters for labels, gpu in gpus.items() if gpu.counters is not None}
    totals = {labels: counters.totals for labels, counters in counted.items()}
    throttled = {labels: _prefixed(gpu.throttled_seconds) for labels, gpu in gpus.items()}
    holdable = (labels for labels, gpu in gpus.items() if gpu.is_holdable)
    yield Family(
        SOURCE, {(*labels, counted[labels].source if labels in counted else NO_SOURCE): 1.0 for labels in holdable}
    )
    yield from _families(DEVICE, totals)
    yield Family(PIPE, _pipes(totals))
    yield Family(THROTTLED, _throttles(throttled))


def job_counters(counters: Mapping[Labels, JobGpuCounters]) -> Iterator[Family]:
    """Yield the counters of each job on each GPU that it holds."""
    totals = {labels: of_job.totals for labels, of_job in counters.items() if of_job.totals}
    absent = {labels: of_job.absence.value for labels, of_job in counters.items() if of_job.absence.value}
    yield Family(UNAVAILABLE, {(*labels, reason): 1.0 for labels, reason in absent.items()})
    yield Family(ESTIMATED, {labels: float(counters[labels].is_estimate) for labels in totals})
    yield from _families(OF_JOB, totals)
    yield Family(JOB_PIPE, _pipes(totals))
    yield Family(JOB_THROTTLED, _throttles(totals))
    yield Family(JOB_ENERGY, {labels: known["energy"] for labels, known in totals.items() if "energy" in known})


Totals = Mapping[Labels, Mapping[str, float]]


def _families(metrics: Mapping[str, Metric], totals: Totals) -> Iterator[Family]:
    for name, metric in metrics.items():
        yield Family(metric, {labels: known[name] for labels, known in totals.items() if name in known})


def _pipes(totals: Totals) -> dict[Labels, float]:
    return {(*labels, pipe): known[pipe] for labels, known in totals.items() for pipe in _PIPES if pipe in known}


def _throttles(totals: Totals) -> dict[Labels, float]:
    return {
        (*labels, name.removeprefix(_THROTTLED)): seconds
        for labels, known in totals.items()
        for name, seconds in known.items()
        if name.startswith(_THROTTLED)
    }


def _prefixed(seconds: Mapping[str, float]) -> dict[str, float]:
    return {_THROTTLED + reason: value for reason, value in seconds.items()}
