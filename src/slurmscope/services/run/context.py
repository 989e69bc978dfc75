# SPDX-License-Identifier: Apache-2.0
"""Know the surroundings of a command: its job, step and task, file names as Slurm expands them, and the agent."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from slurmscope.hostlist import expand_hosts
from slurmscope.model.traced_run import SlurmContext

_PATTERN = re.compile(r"%([%jtsNu])")
_LARGEST = 2**63 - 1
# Slurm allows no more.
_COMPONENT_LIMIT = 128


def read_context(environment: Mapping[str, str], job_id: int | None = None) -> SlurmContext:
    """Return the job of this process, or the given one; nothing outside of a job."""
    return SlurmContext(
        job_id=job_id or _component(environment) or _first(environment, "SLURM_JOB_ID", "SLURM_JOBID") or None,
        step_id=environment.get("SLURM_STEP_ID", environment.get("SLURM_STEPID", ""))[:32],
        rank=_first(environment, "SLURM_PROCID"),
        tasks=_first(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS") or 1,
        cluster=environment.get("SLURM_CLUSTER_NAME", ""),
        account=environment.get("SLURM_JOB_ACCOUNT", ""),
        partition=environment.get("SLURM_JOB_PARTITION", ""),
    )


def host_name(environment: Mapping[str, str]) -> str:
    """Return Slurm's name of this node, or else that of the machine."""
    return environment.get("SLURMD_NODENAME") or os.uname().nodename


def user_name(environment: Mapping[str, str]) -> str:
    """Return the name of the user as the environment has it; a directory service may hang."""
    return environment.get("USER") or environment.get("LOGNAME") or str(os.getuid())


def expand_file_name(text: str, *, slurm: SlurmContext, host: str, user: str) -> str:
    """Replace %j (job), %s (step), %t (task), %N (node) and %u (user), so that tasks do not share one file."""
    values = {
        "%": "%",
        "j": str(slurm.job_id or 0),
        "s": slurm.step_id or "batch",
        "t": str(slurm.rank or 0),
        "N": host.partition(".")[0],
        "u": user,
    }
    return _PATTERN.sub(lambda match: values[match[1]].replace("/", "_"), text)


def is_socket(path: Path) -> bool:
    """Return whether there is a socket; a folder that we may not enter has none for us."""
    try:
        return path.is_socket()
    except OSError:
        return False


def _component(environment: Mapping[str, str]) -> int | None:
    """Return the job ID of the component of a heterogeneous job that this node belongs to.

    ``SLURM_JOB_ID`` of all its tasks is that of the first component. No node is in two of them.
    """
    node = environment.get("SLURMD_NODENAME", "")
    for number in range(min(_first(environment, "SLURM_HET_SIZE") or 0, _COMPONENT_LIMIT)):
        try:
            nodes = expand_hosts(environment.get(f"SLURM_JOB_NODELIST_HET_GROUP_{number}", ""))
        except ValueError:
            continue
        if node in nodes:
            return _first(environment, f"SLURM_JOB_ID_HET_GROUP_{number}")
    return None


def _first(environment: Mapping[str, str], *names: str) -> int | None:
    """Return the first of these variables that is a number."""
    for name in names:
        text = environment.get(name, "")
        if text.isascii() and text.isdigit() and int(text[:20]) <= _LARGEST:
            return int(text[:20])
    return None
