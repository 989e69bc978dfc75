# SPDX-License-Identifier: Apache-2.0
"""Explain what a node agent cannot see, and why."""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.model.job_use import NodeJobs
from slurmscope.services.exporter.wiring import Check

LAYOUTS = {
    "v1": "jobs are found in cgroups of version 1",
    "v2": "jobs are found in cgroups of version 2",
    "hybrid": "jobs are found in cgroups of version 1, beside an empty tree of version 2",
    "processes": "Slurm makes no job cgroups here, so jobs are found by their slurmstepd and its descendants",
    "unsupported": "no cgroups of jobs were found, and no slurmstepd",
}
CGROUP_ADVICE = "set ProctrackType=proctrack/cgroup and TaskPlugin=task/cgroup in slurm.conf to have all numbers"
CAPABILITY_ADVICE = (
    "I/O, open files and accounts of other users' jobs need CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: "
    "see deploy/slurmscope-node.service"
)
SOURCE_ADVICE = {
    "cgroup_cpuset": "jobs are not confined to cores: TaskPlugin=task/cgroup with ConstrainCores=yes confines them",
    "cgroup_io": "Slurm leaves the io controller off: EnableExtraControllers=io in cgroup.conf (25.05 on) adds it",
    "cgroup_pids": "Slurm leaves the pids controller off; nothing else depends on it",
    "cgroup_pressure": "the kernel has no pressure figures for these cgroups (version 1, or psi=0)",
}


def check_node(jobs: NodeJobs, *, has_capabilities: bool) -> Iterator[Check]:
    """Yield one check for the layout, one for privileges, and one for each source."""
    is_found = jobs.layout in ("v1", "v2", "hybrid")
    yield Check(
        name="layout",
        is_good=is_found,
        message=f"{LAYOUTS.get(jobs.layout, jobs.layout)}; {len(jobs.jobs)} jobs now",
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
