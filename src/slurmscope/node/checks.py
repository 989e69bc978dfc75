# SPDX-License-Identifier: Apache-2.0
"""Check what the node agent can read on this machine, and explain what is missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from slurmscope.core.check import Check
from slurmscope.core.errors import CommandMissing, SlurmscopeError
from slurmscope.core.log import escape
from slurmscope.node.cgroup.tree import LayoutKind
from slurmscope.node.energy import Covers, NodeEnergy
from slurmscope.node.gpu.records import NO_SOURCE, GpuReason, Gpus
from slurmscope.node.job_use import NodeJobs
from slurmscope.node.procfs.pid_namespace import PidNamespace
from slurmscope.node.procfs.reader import ProcessReader

if TYPE_CHECKING:
    from slurmscope.slurm.command import RunCommand

ADVICE = "set node.name to the NodeName of this host in slurm.conf: reports do not find jobs under another name"

SHOWN_NODES = 5


def read_hosts(run: RunCommand) -> dict[str, str]:
    """Return the nodes of the cluster by name, with the host names under which slurmctld reaches them."""
    lines = run("sinfo", ("--noheader", "--Node", "--format=%N %n")).decode("utf-8", "replace").splitlines()
    return dict(words for line in lines if len(words := line.split()) == 2)


def check_node_name(run: RunCommand, node_name: str, host_name: str) -> Iterator[Check]:
    """Yield a check; none where Slurm's commands are not installed, as on a node without them."""
    try:
        nodes = read_hosts(run)
    except CommandMissing:
        return
    except SlurmscopeError as error:
        yield Check(name="node name", is_good=True, message=f"not checked: {error}", is_note=True)
        return
    if node_name in nodes:
        yield Check(name="node name", is_good=True, message=f"Slurm knows this node as {escape(node_name)}")
        return
    short_name = host_name.partition(".")[0]
    own = sorted(name for name, host in nodes.items() if host in (host_name, short_name, "localhost"))
    shown = escape(", ".join(own[:SHOWN_NODES]))
    if len(own) > 1 and node_name == short_name:
        message = f"several slurmd run on this host ({shown}): their cgroups name the node"
        yield Check(name="node name", is_good=True, message=message)
        return
    message = f"Slurm does not know a node {escape(node_name)}" + (f"; it calls this host {shown}" if own else "")
    yield Check(name="node name", is_good=False, message=message, advice=ADVICE)


# CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE: both are needed to read the I/O of other users' processes.
NEEDED_CAPABILITIES = 1 << 2 | 1 << 19

LAYOUTS = {
    "v1": "jobs are detected by cgroups v1",
    "v2": "jobs are detected by cgroups v2",
    "hybrid": "jobs are detected by cgroups v1 (hybrid layout with an empty v2 tree)",
    "processes": "Slurm creates no job cgroups here; jobs are detected by slurmstepd and its child processes",
    "unsupported": "neither job cgroups nor slurmstepd processes were found",
}
CGROUP_ADVICE = "set ProctrackType=proctrack/cgroup and TaskPlugin=task/cgroup in slurm.conf to get all metrics"
_UNIT = "use the unit that 'slurmscope files slurmscope-node.service' prints"
CAPABILITY_ADVICE = (
    f"I/O, open files and accounts of other users' jobs need CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: {_UNIT}"
)
HIDDEN_ADVICE = "something hides processes: a PID namespace, or the mount option hidepid of /proc"
MOUNT_ADVICE = (
    "mount it (systemd does so at boot), set path.cgroup, or mount /sys/fs/cgroup of the host into the container; "
    "until then jobs are found by their processes, or not at all"
)
SOURCE_ADVICE = {
    "cgroup_cpuset": "jobs are not confined to cores; set TaskPlugin=task/cgroup and ConstrainCores=yes",
    "cgroup_io": "Slurm does not enable the io controller; set EnableExtraControllers=io in cgroup.conf (25.05)",
    "cgroup_pids": "Slurm does not enable the pids controller; no other metric depends on it",
    "cgroup_pressure": "the kernel has no pressure metrics for these cgroups (v1, or psi=0)",
}


NAMESPACE_PROBLEM = "this PID namespace is not that of the host, so processes of jobs are not visible"
NAMESPACE_ADVICE = (
    "run the agent on the host, or its container with --pid=host; until then only cgroups are read: I/O, open files, "
    "processes and accounts of jobs are missing, and leftover cgroups count as jobs"
)


def check_mount(cgroup_root: Path, kind: LayoutKind) -> Iterator[Check]:
    """Yield a check if no cgroups are mounted where they are looked for, as in a container without them."""
    if kind is LayoutKind.UNSUPPORTED:
        message = f"no cgroup file system with the controllers of jobs is mounted at {escape(str(cgroup_root))}"
        yield Check(name="cgroup mount", is_good=False, message=message, advice=MOUNT_ADVICE)


def check_namespace(procfs_root: Path) -> Iterator[Check]:
    """Yield a check if processes of jobs are not visible, as in a container with a PID namespace of its own."""
    with closing(ProcessReader(procfs_root)) as reader:
        if not PidNamespace(reader).shows_jobs():
            yield Check(name="PID namespace", is_good=False, message=NAMESPACE_PROBLEM, advice=NAMESPACE_ADVICE)


def check_node(jobs: NodeJobs, *, has_capabilities: bool) -> Iterator[Check]:
    """Yield one check for the layout, one for capabilities, and one per source."""
    is_found = jobs.layout in ("v1", "v2", "hybrid")
    yield Check(
        name="layout",
        is_good=is_found,
        message=f"{LAYOUTS.get(jobs.layout, jobs.layout)}; {len(jobs.jobs)} jobs found",
        advice="" if is_found else CGROUP_ADVICE,
    )
    yield Check(
        name="capabilities",
        is_good=has_capabilities,
        message="present" if has_capabilities else "not present",
        advice="" if has_capabilities else CAPABILITY_ADVICE,
    )
    process_advice = HIDDEN_ADVICE if has_capabilities else CAPABILITY_ADVICE
    for source, can in sorted(jobs.available.items()):
        yield Check(
            name=f"source {source}",
            is_good=can or source in SOURCE_ADVICE,
            message="can be read" if can else "cannot be read here",
            advice="" if can else SOURCE_ADVICE.get(source, process_advice),
        )


GPU_ADVICE = {
    GpuReason.NOT_INSTALLED: "install the extra gpu: pip install 'slurmscope[gpu]'",
    GpuReason.NO_PERMISSION: f"{_UNIT}: it has the capabilities for it",
    GpuReason.VERSION_MISMATCH: "the driver was updated while it was loaded: reboot the node or reload its modules",
    GpuReason.LOST: "see the kernel's log for the Xid of the GPU; it needs a reset",
}
GPU_SOURCES = {
    "gpm": "hardware counters",
    "samples": "the driver's samples: busy time, but not which units worked (hardware counters need Hopper or later)",
    "gauge": "a gauge of the driver, read often: busy time, but not which units worked",
    "engines": "the kernel's times of clients: busy time, but not which units worked",
    NO_SOURCE: "nothing: the driver counts nothing for such a device",
}
METER_ADVICE = (
    "none of /sys/cray/pm_counters, an ACPI power meter, IPMI (ipmitool or FreeIPMI, with /dev/ipmi0) and "
    "/sys/class/powercap can be read; RAPL needs root or CAP_DAC_READ_SEARCH"
)


def check_gpus(gpus: Gpus) -> Iterator[Check]:
    """Yield one check for the GPUs, one per source of counters, and one per source that cannot be read."""
    whole = [gpu for gpu in gpus.devices if not gpu.parent_uuid]
    if not whole and gpus.unavailable.get("nvml") is GpuReason.DRIVER_NOT_LOADED:
        yield Check(name="gpus", is_good=True, message="no GPU with a driver")
        return
    lost = sum(gpu.problem is not None for gpu in whole)
    if whole:
        message = f"{len(whole)} found" + (f", {lost} of them cannot be read" if lost else "")
        yield Check(name="gpus", is_good=not lost, message=message, advice=GPU_ADVICE[GpuReason.LOST] if lost else "")
    counted = Counter(gpu.counters.source if gpu.counters else NO_SOURCE for gpu in gpus.devices if gpu.is_holdable)
    for source, number in sorted(counted.items()):
        message = f"{number} counted from {GPU_SOURCES.get(source, escape(source))}"
        yield Check(name=f"gpu counters {escape(source)}", is_good=True, message=message)
    for source, reason in sorted(gpus.unavailable.items()):
        words = reason.value.replace("_", " ")
        yield Check(
            name=f"source {source}",
            is_good=False,
            message=f"GPUs: {words}",
            advice=GPU_ADVICE.get(reason, "see the log of the agent"),
        )


def check_energy(energy: NodeEnergy | None) -> Iterator[Check]:
    """Yield a check that names the meter of the node."""
    has_meter = energy is not None and energy.covers is not Covers.GPUS
    if energy is None:
        message = "no meter"
    else:
        message = f"{energy.source}, which covers {energy.covers.value}" if has_meter else "no meter but those of GPUs"
    # Many machines, such as virtual ones, have none.
    yield Check(name="energy", is_good=True, message=message, advice="" if has_meter else METER_ADVICE)


# Beginnings of file names in both cgroup versions; pressure files have the name of their resource first.
_MEASURE_OF = {"cpu.stat": "cpu", "cpuacct.": "cpu", "cpuset.": "cpuset", "memory.": "memory", "io.": "io"} | {
    "blkio.": "io",
    "pids.": "pids",
}


def cgroup_sources(measures: Mapping[str, bool], unreadable: Iterable[str]) -> dict[str, bool]:
    """Return which cgroup sources can be read: those that exist, unless a file of a job could not be read."""
    failed = {measure for file in unreadable if (measure := _measure_of(file))}
    return {f"cgroup_{name}": can and name not in failed for name, can in measures.items()}


def _measure_of(file: str) -> str:
    if file.endswith(".pressure"):
        return "pressure"
    return next((measure for start, measure in _MEASURE_OF.items() if file.startswith(start)), "")


class ProcessSources:
    """Track which files of other users' processes can be read."""

    def __init__(self, reader: ProcessReader) -> None:
        self._reader = reader
        self._namespace = PidNamespace(reader)
        self._counts: Counter[str] = Counter()
        self._refused = set() if has_capabilities(reader.root) else {"io", "fd", "environ"}

    def available(self, *, has_jobs: bool) -> dict[str, bool]:
        """Return which sources were readable since the last call; without jobs, the last result is returned."""
        counts = Counter(self._reader.denials.counts)
        if has_jobs:
            self._refused = set(counts - self._counts)
        self._counts = counts
        if not self._namespace.shows_jobs():
            return dict.fromkeys(_FILES_OF, False)
        return {name: not self._refused & {"process", *files} for name, files in _FILES_OF.items()}


_FILES_OF = {
    "processes": ("stat",),
    "process_io": ("io",),
    "process_files": ("fd", "fd_target"),
    "process_environment": ("environ",),
}


def has_capabilities(procfs_root: Path) -> bool:
    """Return whether this process may read those of other users."""
    try:
        status = (procfs_root / "self" / "status").read_text("ascii", "replace")
    except OSError:
        return False
    match = re.search(r"(?m)^CapEff:\s*([0-9a-f]+)$", status)
    return match is not None and int(match[1], 16) & NEEDED_CAPABILITIES == NEEDED_CAPABILITIES
