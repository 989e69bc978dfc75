# SPDX-License-Identifier: Apache-2.0
"""Check what the node agent can read on this machine, and explain what is missing."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from slurmscope.core.check import Check
from slurmscope.core.errors import CommandMissing, SlurmscopeError
from slurmscope.core.log import escape
from slurmscope.node.job_use import NodeJobs
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.slurm.command import RunCommand

ADVICE = "set node.name to the NodeName of this host in slurm.conf: reports do not find jobs under another name"

SHOWN_NODES = 5


def check_node_name(run: RunCommand, node_name: str, host_name: str) -> Iterator[Check]:
    """Yield a check; none where Slurm's commands are not installed, as on a node without them."""
    try:
        answer = run("sinfo", ("--noheader", "--Node", "--format=%N %n"))
    except CommandMissing:
        return
    except SlurmscopeError as error:
        yield Check(name="node name", is_good=True, message=f"not checked: {error}")
        return
    # Node names, and the host names under which slurmctld reaches them.
    nodes = dict(line.split() for line in answer.decode("utf-8", "replace").splitlines() if len(line.split()) == 2)
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
_UNIT = Path(sys.prefix) / "share" / "slurmscope" / "slurmscope-node.service"
CAPABILITY_ADVICE = (
    "I/O, open files and accounts of other users' jobs need CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: "
    f"use the unit {_UNIT if _UNIT.exists() else 'deploy/slurmscope-node.service in the source'}"
)
SOURCE_ADVICE = {
    "cgroup_cpuset": "jobs are not confined to cores; set TaskPlugin=task/cgroup and ConstrainCores=yes",
    "cgroup_io": "Slurm does not enable the io controller; set EnableExtraControllers=io in cgroup.conf (25.05)",
    "cgroup_pids": "Slurm does not enable the pids controller; no other metric depends on it",
    "cgroup_pressure": "the kernel has no pressure metrics for these cgroups (v1, or psi=0)",
}


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
    for source, can in sorted(jobs.available.items()):
        yield Check(
            name=f"source {source}",
            is_good=can or source in SOURCE_ADVICE,
            message="can be read" if can else "cannot be read here",
            advice="" if can else SOURCE_ADVICE.get(source, CAPABILITY_ADVICE),
        )


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
        self._counts: Counter[str] = Counter()
        self._refused = set() if has_capabilities(reader.root) else {"io", "fd", "environ"}

    def available(self, *, has_jobs: bool) -> dict[str, bool]:
        """Return which sources were readable since the last call; without jobs, the last result is returned."""
        counts = Counter(self._reader.denials.counts)
        if has_jobs:
            self._refused = set(counts - self._counts)
        self._counts = counts
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
