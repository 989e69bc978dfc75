# SPDX-License-Identifier: Apache-2.0
"""Export the health of GPUs: errors of the driver (Xid), lost GPUs, errors of memory and links.

::

    gpu_xid_errors_total{gpu="3",mig="",xid="79"} 1
    gpu_lost{gpu="3",uuid="GPU-…"} 1
    jobs_gpu_faults_total{slurm_job="4711",slurm_node="n17",gpu="3",mig="",xid="79"} 1

An error often ends the job that met it. So it is attributed to the jobs that held the GPU at the reading before, or
hold it now if there were none, and stays on the page for a while after the job has ended.

::

    4,1043,5060300,-;NVRM: Xid (PCI:0000:1a:00): 79, pid=2417, name=python, GPU has fallen off the bus.

The driver's library reports the same errors, except those that happened while no process listened, such as those of a
GPU that fell off the bus while its process was started again. An error that both report counts once. Only the kernel,
and root, write to this log; what follows the number may contain the name of a user's process, and is not read.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from slurmscope.metrics.family import Family, Labels, counter, gauge
from slurmscope.node.gpu.attribution import GpuHold
from slurmscope.node.gpu.counters import PAIR
from slurmscope.node.gpu.records import Fault, Gpu, GpuFaults, GpuReason, XidEvent
from slurmscope.node.job_use import JobKey

KEPT_SECONDS = 600.0
"""How long the errors of a job are served after it held the GPU."""
MOST_FAULTS = 4096

_GPU = ("gpu", "mig")
XIDS = counter("gpu_xid_errors_total", "Errors that the driver reported (Xid) since the agent started.", *_GPU, "xid")
XID_TIME = gauge("gpu_xid_last_timestamp_seconds", "Unix time of the last error of this kind.", *_GPU, "xid")
JOB_FAULTS = counter(
    "jobs_gpu_faults_total", "Errors that the driver reported (Xid) of a GPU while the job held it.", *PAIR, "xid"
)
JOB_FAULT_TIME = gauge(
    "jobs_gpu_fault_timestamp_seconds", "Unix time of the last error of this kind in the job.", *PAIR, "xid"
)
LOST = gauge("gpu_lost", "1 if the GPU cannot be reached any more (fell off the bus), 0 otherwise.", "gpu", "uuid")
RECOVERY = gauge(
    "gpu_recovery_action",
    "Always 1: the action that the driver requests: none, gpu_reset, node_reboot, drain_p2p, drain_and_reset, ...",
    "gpu",
    "action",
)
ECC = counter(
    "gpu_ecc_errors_total", "Memory errors since the driver was loaded: corrected, uncorrected.", "gpu", "kind"
)
ROWS = gauge("gpu_remapped_rows", "Rows of GPU memory replaced by spare ones, by kind of error.", "gpu", "kind")
REMAP_PENDING = gauge("gpu_remap_pending", "1 if a row of GPU memory is to be replaced at the next reset.", "gpu")
REMAP_FAILED = gauge("gpu_remap_failed", "1 if a row of GPU memory could not be replaced.", "gpu")
REPLAYS = counter("gpu_pcie_replays_total", "Transfers repeated on PCIe since the driver was loaded.", "gpu")
NVLINK = counter(
    "gpu_nvlink_errors_total", "Errors of NVLink: crc_flit, crc_data, replay, recovery, ecc.", "gpu", "kind"
)
LINK_RATIO = gauge(
    "gpu_nvlink_error_ratio",
    "Errors per bit of the worst NVLink of the GPU: effective (after error correction), symbol.",
    "gpu",
    "kind",
)
FABRIC = gauge(
    "gpu_fabric_state",
    "Always 1: state of the fabric of NVSwitches that the GPU is part of: not_started, in_progress, completed.",
    "gpu",
    "state",
)
FABRIC_DEGRADED = gauge(
    "gpu_fabric_degraded", "1 if the fabric has less bandwidth than it should, or broken routes; 0 otherwise.", "gpu"
)
METRICS = (
    XIDS, XID_TIME, JOB_FAULTS, JOB_FAULT_TIME, LOST, RECOVERY, ECC, ROWS, REMAP_PENDING, REMAP_FAILED, REPLAYS, NVLINK,
    LINK_RATIO, FABRIC, FABRIC_DEGRADED,
)  # fmt: skip

# Of nvml.h.
_ACTIONS = (
    "none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset",
    "system_reboot",
)  # fmt: skip
_FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")

Key = TypeVar("Key")

KERNEL_LOG = Path("/dev/kmsg")
RECORD_BYTES = 8192
MOST_RECORDS = 4096
"""Records between two readings; the kernel keeps about as many."""

_XID = re.compile(
    rb"\d+,\d+,(\d{1,18}),[^;\n]*;NVRM: Xid \(PCI:([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})"
    rb"(?:\.\d)?(?: GPU-I:\d{1,4})?\): (\d{1,5}),"
)
_BUS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})")

Address = tuple[int, ...]
"""Domain, bus and device."""
LoggedXid = tuple[Address, int, float]
"""Where an error happened, its number, and when."""


class FaultLog:
    """Keep the errors of GPUs and of jobs, and know the GPUs that were there. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, Gpu] = {}
        self._holders: dict[str, frozenset[JobKey]] = {}
        self._faults: dict[tuple[str, str, int], Fault] = {}
        self._job_faults: dict[tuple[JobKey, str, str, int], Fault] = {}
        self._held_at: dict[JobKey, float] = {}

    def add(self, devices: Sequence[Gpu], xids: Iterable[XidEvent], holds: Iterable[GpuHold], now: float) -> GpuFaults:
        """Add the errors since the last reading; ``now`` is any steady clock."""
        holders: defaultdict[str, set[JobKey]] = defaultdict(set)
        for hold in holds:
            if hold.is_held:
                holders[hold.gpu.uuid].add(hold.job)
                self._held_at[hold.job] = now
        current = {uuid: frozenset(jobs) for uuid, jobs in holders.items()}
        readable = {gpu.uuid: gpu for gpu in devices if gpu.problem is None}
        self._known |= readable
        for event in xids:
            self._add_xid(event, current)
        lost = self._find_lost(devices, readable)
        self._forget(readable, now)
        self._holders = current
        return GpuFaults(xids=dict(self._faults), job_xids=dict(self._job_faults), lost=lost)

    def _add_xid(self, event: XidEvent, current: Mapping[str, frozenset[JobKey]]) -> None:
        places = self._places(event)
        for gpu in places[:1]:
            _count(self._faults, (str(gpu.index), gpu.mig, event.xid), event)
        for gpu in places:
            for job in self._holders.get(gpu.uuid) or current.get(gpu.uuid, frozenset()):
                _count(self._job_faults, (job, str(gpu.index), gpu.mig, event.xid), event)

    def _places(self, event: XidEvent) -> list[Gpu]:
        """Return the device of an error first, then the instances that it may have hit."""
        whole = self._known.get(event.uuid)
        instances = [gpu for gpu in self._known.values() if gpu.parent_uuid == event.uuid]
        hit = [gpu for gpu in instances if gpu.gpu_instance == event.gpu_instance]
        return hit or ([] if whole is None else [whole, *instances])

    def _find_lost(self, devices: Sequence[Gpu], readable: Mapping[str, Gpu]) -> dict[tuple[str, str], bool]:
        whole = {uuid: gpu for uuid, gpu in self._known.items() if not gpu.parent_uuid}
        found = {(str(gpu.index), uuid): uuid not in readable for uuid, gpu in whole.items()}
        named = {index for (index, _), is_lost in found.items() if is_lost}
        unnamed = (gpu for gpu in devices if gpu.problem is GpuReason.LOST and str(gpu.index) not in named)
        return found | {(str(gpu.index), ""): True for gpu in unnamed}

    def _forget(self, readable: Mapping[str, Gpu], now: float) -> None:
        """Drop instances that were removed, and the errors of jobs that are long gone."""
        self._known = {uuid: gpu for uuid, gpu in self._known.items() if uuid in readable or not gpu.parent_uuid}
        self._held_at = {job: at for job, at in self._held_at.items() if now - at < KEPT_SECONDS}
        self._job_faults = {key: fault for key, fault in self._job_faults.items() if key[0] in self._held_at}


def fault_families(
    faults: GpuFaults, devices: Iterable[Gpu], label_job: Callable[[JobKey], Labels]
) -> Iterator[Family]:
    """Yield the errors of GPUs and jobs, and the health of each GPU."""
    xids = {(index, mig, str(xid)): fault for (index, mig, xid), fault in faults.xids.items()}
    of_jobs = {
        (*label_job(job), index, mig, str(xid)): fault for (job, index, mig, xid), fault in faults.job_xids.items()
    }
    yield Family(XIDS, {labels: float(fault.count) for labels, fault in xids.items()})
    yield Family(XID_TIME, {labels: fault.last_at for labels, fault in xids.items()})
    yield Family(JOB_FAULTS, {labels: float(fault.count) for labels, fault in of_jobs.items()})
    yield Family(JOB_FAULT_TIME, {labels: fault.last_at for labels, fault in of_jobs.items()})
    yield Family(LOST, {labels: float(is_lost) for labels, is_lost in faults.lost.items()})
    health = {str(gpu.index): gpu.health for gpu in devices if not gpu.parent_uuid}
    for metric, name, words in ((RECOVERY, "recovery_action", _ACTIONS), (FABRIC, "fabric_state", _FABRIC_STATES)):
        yield Family(metric, {(gpu, _word(words, known[name])): 1.0 for gpu, known in health.items() if name in known})
    for metric, beginning in ((ECC, "ecc_"), (ROWS, "remapped_"), (NVLINK, "nvlink_"), (LINK_RATIO, "link_ratio_")):
        yield Family(
            metric,
            {
                (gpu, name.removeprefix(beginning)): value
                for gpu, known in health.items()
                for name, value in known.items()
                if name.startswith(beginning)
            },
        )
    for metric, name in (
        (REMAP_PENDING, "remap_pending"),
        (REMAP_FAILED, "remap_failed"),
        (REPLAYS, "pcie_replays"),
        (FABRIC_DEGRADED, "fabric_degraded"),
    ):
        yield Family(metric, {(gpu,): known[name] for gpu, known in health.items() if name in known})


def _word(words: Sequence[str], number: float) -> str:
    return words[int(number)] if 0 <= number < len(words) else "unknown"


def _count(faults: dict[Key, Fault], key: Key, event: XidEvent) -> None:
    earlier = faults.get(key, Fault())
    if key in faults or len(faults) < MOST_FAULTS:
        last_at = max(earlier.last_at, event.at_seconds)
        faults[key] = replace(earlier, count=earlier.count + 1, last_at=last_at)


class KernelLog:
    """Add what the kernel's log reports to what the driver's library does. Not thread-safe."""

    def __init__(
        self,
        log: Path = KERNEL_LOG,
        *,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin behind the last record: what is older was not seen by this agent."""
        self._clock = clock
        self._uptime = uptime
        self._uuids: dict[Address, str] = {}
        self._unmatched: Counter[tuple[str, int]] = Counter()
        self._descriptor: int | None = None
        with contextlib.suppress(OSError):
            self._descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def read(self) -> list[LoggedXid]:
        """Return the errors since the last call, each with its address, number and Unix time.

        To be called before the library is queried: what it then reports includes all of them.
        """
        offset = self._clock() - self._uptime()
        return [
            (tuple(int(part, 16) for part in match.groups()[1:4]), int(match[5]), offset + int(match[1]) / 1e6)
            for record in self._records()
            if (match := _XID.match(record))
        ]

    def add(
        self, found: Iterable[LoggedXid], devices: Iterable[Gpu], reported: Iterable[XidEvent]
    ) -> tuple[XidEvent, ...]:
        """Return what the library reported, and the errors that only the log has.

        One that the library reported at the last reading may be in the log since.
        """
        self._uuids |= {
            address: gpu.uuid
            for gpu in devices
            if not gpu.parent_uuid and (address := _address(gpu.bus_id)) and gpu.uuid
        }
        events = list(reported)
        new = Counter((event.uuid, event.xid) for event in events)
        earlier, only_logged = self._unmatched, list[XidEvent]()
        for address, xid, at in found:
            key = self._uuids.get(address, ""), xid
            of = next((known for known in (earlier, new) if known[key] > 0), None)
            if of is not None:
                of[key] -= 1
            elif key[0]:
                only_logged.append(XidEvent(uuid=key[0], xid=xid, at_seconds=at))
        self._unmatched = new
        return (*events, *only_logged)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _records(self) -> Iterator[bytes]:
        """Yield new records; each read of the kernel's log returns one."""
        if (descriptor := self._descriptor) is None:
            return
        for _ in range(MOST_RECORDS):
            try:
                record = os.read(descriptor, RECORD_BYTES)
            except BrokenPipeError:  # records were overwritten: reading goes on behind them
                continue
            except OSError:  # none left
                return
            if not record:
                return
            yield record


def _address(bus_id: str) -> Address | None:
    match = _BUS.match(bus_id)
    return None if match is None else tuple(int(part, 16) for part in match.groups())
