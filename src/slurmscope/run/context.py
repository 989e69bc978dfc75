# SPDX-License-Identifier: Apache-2.0
"""Know the surroundings of a command: its job, step and task, file names as Slurm expands them, and the agent."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from slurmscope.core.hostlist import expand_hosts
from slurmscope.jobs.traced_run import Allowance, SlurmContext

UNLIMITED_BYTES = 1 << 60
"""Without a limit, cgroup v1 reports a number near 2^63."""

_LIMIT_BYTES = 4096
_MOUNTS_LIMIT_BYTES = 1 << 20
_LONGEST_PATH = 64


class CgroupHierarchy(NamedTuple):
    """The folder of this process's cgroup in one hierarchy, and where that hierarchy is mounted."""

    folder: Path
    mount: Path
    is_v2: bool

    def folders(self) -> Iterator[Path]:
        """Yield the folder and all above it that are visible: each may have a limit."""
        for folder in (self.folder, *self.folder.parents)[:_LONGEST_PATH]:
            yield folder
            if folder == self.mount:
                return


class OwnLimits:
    """Read the limits of this process below a movable root."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        mounts = _read(root / "proc/self/mountinfo", _MOUNTS_LIMIT_BYTES)
        groups = _read(root / "proc/self/cgroup")
        self._controllers = find_controllers(mounts, groups, root)

    def read(self) -> Allowance:
        """Return what this process, and each program that it starts, may use."""
        memory_bytes, origin = min(self._memory_limits(), default=(None, ""))
        return Allowance(cores=self._cores(), memory_bytes=memory_bytes, memory_origin=origin)

    def oom_kills(self) -> int | None:
        """Return how many processes of this cgroup were OOM-killed so far; None where the kernel does not count."""
        controller = self._controllers.get("memory")
        if controller is None:
            return None
        name = "memory.events" if controller.is_v2 else "memory.oom_control"
        return _named_number(_read(controller.folder / name), "oom_kill")

    def _cores(self) -> float:
        cores = float(len(os.sched_getaffinity(0)))
        controller = self._controllers.get("cpu")
        for folder in controller.folders() if controller else ():
            quota = _v2_quota(folder) if controller and controller.is_v2 else _v1_quota(folder)
            if quota is not None:
                cores = min(cores, quota)
        return cores

    def _memory_limits(self) -> Iterator[tuple[int, str]]:
        controller = self._controllers.get("memory")
        for folder in controller.folders() if controller else ():
            limit = _number(
                _read(folder / ("memory.max" if controller and controller.is_v2 else "memory.limit_in_bytes"))
            )
            if limit is not None and limit < UNLIMITED_BYTES:
                yield limit, "cgroup"
        soft, _hard = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            yield soft, "ulimit"
        memory_kib = _named_number(_read(self._root / "proc/meminfo"), "MemTotal:")
        if memory_kib:
            yield memory_kib * 1024, "machine"


def find_controllers(mounts: str, groups: str, root: Path = Path("/")) -> dict[str, CgroupHierarchy]:
    """Return the cpu and memory controllers of this process, from ``mountinfo`` and ``cgroup`` below /proc/self."""
    own = {}
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        own.update(dict.fromkeys(names.split(","), path))
    found: dict[str, CgroupHierarchy] = {}
    for line in mounts.splitlines():
        for name, controller in _mounted(line, own, root):
            # Controllers that are still v1 on a machine with both are not in the v2 tree.
            if name not in found or not controller.is_v2:
                found[name] = controller
    return found


def _mounted(line: str, own: dict[str, str], root: Path) -> Iterator[tuple[str, CgroupHierarchy]]:
    """Yield the controllers of one line: ``30 24 0:26 /top /sys/fs/cgroup rw - cgroup2 cgroup rw,cpu``."""
    head, _, tail = line.partition(" - ")
    fields, kinds = head.split(), tail.split()
    if len(fields) < 5 or len(kinds) < 3 or kinds[0] not in {"cgroup", "cgroup2"}:
        return
    is_v2 = kinds[0] == "cgroup2"
    for name in ("cpu", "memory"):
        path = own.get("") if is_v2 else own.get(name)
        if path is None or not (is_v2 or name in kinds[2].split(",")):
            continue
        mount = root / fields[4].lstrip("/")
        inside = PurePosixPath(path)
        # In a container only a part of the tree is mounted.
        below = inside.relative_to(fields[3]) if inside.is_relative_to(fields[3]) else PurePosixPath()
        if ".." not in below.parts:
            yield name, CgroupHierarchy(mount.joinpath(*(part for part in below.parts if part != "/")), mount, is_v2)


def _v2_quota(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()
    return _share(words[0], words[1]) if len(words) == 2 else None


def _v1_quota(folder: Path) -> float | None:
    return _share(_read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip())


def _share(quota: str, period: str) -> float | None:
    """Return how many cores a quota allows; None for ``max`` (v2) and -1 (v1)."""
    amount, length = _number(quota), _number(period)
    return amount / length if amount and length else None


def _number(text: str) -> int | None:
    word = text.strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 20 else None


def _named_number(text: str, name: str) -> int | None:
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == name:
            return _number(words[1])
    return None


def _read(path: Path, limit_bytes: int = _LIMIT_BYTES) -> str:
    """Read the start of a file; what cannot be read sets no limit."""
    try:
        with path.open("rb") as stream:
            return stream.read(limit_bytes).decode("utf-8", "replace")
    except OSError:
        return ""


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
