# SPDX-License-Identifier: Apache-2.0
"""Run a real controller with ten thousand nodes and a hundred thousand jobs on one machine.

The nodes are in a cloud that never delivers: Slurm gives them work and waits for them to boot, so no slurmd is needed
and allocated jobs stay CONFIGURING. The arrays may run only so many tasks at once; all others wait, and after a few
seconds nothing changes any more.
"""

import contextlib
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from lab import daemons
from lab.client import COMMAND_SECONDS, POLL_SECONDS, SlurmClient
from lab.config import LabSettings, Layout, identity_lines
from lab.errors import CommandFailed, LabError
from lab.ports import claim_block
from lab.processes import find_marked, kill_processes
from lab.requirements import check_folder, check_machine, find_program
from lab.startup import prepare_folder, start_accounting, wait_ready
from lab.state import FILE_NAME, write_state
from lab.supervisor import Supervisor
from lab.users import ALICE, BOB, CAROL
from lab.waiting import wait_until

CPU_NODES = 9000
GPU_NODES = 1000
LONGEST_SOCKET = "munge/socket"
SETTLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """Say who submits how many jobs, how many of them may start, and what each asks for."""

    user: str
    tasks: int
    started: int
    arguments: tuple[str, ...]


# With so many nodes an allocation costs the controller a tenth of a second, so few start, and some of those are wide.
ARRAYS = (
    Array(user=ALICE, tasks=60_000, started=12, arguments=("--ntasks=2", "--mem-per-cpu=1500M")),
    Array(
        user=BOB,
        tasks=40_000,
        started=6,
        arguments=("--partition=long", "--nodes=500", "--ntasks-per-node=48", "--mem=64G", "--constraint=avx512"),
    ),
    Array(
        user=CAROL,
        tasks=3_000,
        started=6,
        arguments=("--partition=gpus", "--account=chemistry", "--gpus=2", "--cpus-per-gpu=8", "--mem-per-gpu=40G"),
    ),
)

_CONTROLLER_LINES = (
    "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
    "SlurmctldTimeout=30",
    "MessageTimeout=30",
    "MpiDefault=none",
    "ProctrackType=proctrack/linuxproc",
    "TaskPlugin=task/none",
    "SchedulerType=sched/backfill",
    # Backfill would take a core for itself and find nothing that the main scheduler has not started.
    "SchedulerParameters=sched_interval=2,bf_interval=600,batch_sched_delay=0",
    "SelectType=select/cons_tres",
    "SelectTypeParameters=CR_CPU_Memory",
    "PriorityType=priority/multifactor",
    "GresTypes=gpu",
    "MaxJobCount=250000",
    "MaxArraySize=100001",
    # nojobs: a hundred thousand records would keep the database busy for the whole test.
    "AccountingStorageType=accounting_storage/slurmdbd",
    "AccountingStorageEnforce=associations,limits,qos,nojobs",
    "AccountingStorageTRES=gres/gpu",
    "JobCompType=jobcomp/none",
    # A cloud that accepts every order and delivers nothing.
    "ResumeProgram=/bin/true",
    "SuspendProgram=/bin/true",
    "ResumeTimeout=60000",
    "SuspendTime=86400",
    "ResumeRate=0",
    # Without it sinfo hides nodes that sleep.
    "PrivateData=cloud",
)


def render_slurm_conf(layout: Layout) -> str:
    """Give the text of slurm.conf."""
    lines = [
        *identity_lines(layout),
        *_CONTROLLER_LINES,
        f"NodeName=c[0001-{CPU_NODES}] CPUs=64 RealMemory=256000 Feature=avx512 State=CLOUD",
        f"NodeName=g[0001-{GPU_NODES}] CPUs=64 RealMemory=512000 Gres=gpu:a100:8 State=CLOUD",
        f"PartitionName=batch Nodes=c[0001-{CPU_NODES}] Default=YES DefaultTime=60 State=UP",
        f"PartitionName=long Nodes=c[0001-{CPU_NODES}] DefaultTime=600 State=UP",
        f"PartitionName=gpus Nodes=g[0001-{GPU_NODES}] DefaultTime=60 State=UP",
    ]
    return "\n".join(lines) + "\n"


class ScaleLab:
    """Be one controller with its accounting, 10,000 nodes and no slurmd."""

    def __init__(self, folder: Path) -> None:
        """Take an absent or empty folder; nothing is started yet."""
        self.folder = folder.resolve()
        self._layout: Layout | None = None
        self._supervisor = Supervisor(on_change=self._save)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.destroy()

    @property
    def layout(self) -> Layout:
        """Give the paths and ports of the started lab."""
        if self._layout is None:
            raise LabError(f"the lab in {self.folder} is not started")
        return self._layout

    @property
    def environment(self) -> dict[str, str]:
        """Give the variables that point Slurm's commands at this lab."""
        return {"SLURM_CONF": str(self.layout.slurm_conf)}

    @property
    def bin_path(self) -> Path:
        """Give the folder of Slurm's commands."""
        return Path(find_program("sinfo", "slurm-client")).parent

    def start(self) -> None:
        """Start everything and return when all nodes are there; no jobs are submitted yet."""
        check_machine()
        check_folder(self.folder, LONGEST_SOCKET)
        if self.folder.exists() and any(self.folder.iterdir()):
            raise LabError(f"{self.folder} is not empty: choose another folder")
        with claim_block(lambda _block: True) as block:
            # The layout's own nodes are those that have a slurmd.
            plain = Layout(folder=self.folder, block=block, settings=LabSettings(node_count=0), uses_cgroups=False)
            files = {"slurm.conf": render_slurm_conf(plain), "gres.conf": "AutoDetect=off\n"}
            self._layout = replace(plain, settings=LabSettings(node_count=0, extra_files=files))
            self.folder.mkdir(parents=True, exist_ok=True)
            self._save()
            prepare_folder(self.layout)
            start_accounting(self.layout, self._supervisor, self._client, lambda _line: None)
            self._supervisor.start(daemons.controller(self.layout))
            wait_ready(self.layout, self._supervisor, daemons.CONTROLLER)
        self._wait(self._has_all_nodes, "all nodes")

    def submit_arrays(self) -> None:
        """Submit :data:`ARRAYS` and return when as many tasks have started as may, from when on nothing changes."""
        for array in ARRAYS:
            numbers = f"--array=1-{array.tasks}%{array.started}"
            self._client.submit(array.user, numbers, "--output=/dev/null", *array.arguments, script="true")
        self._wait(self._has_settled, "as many tasks to start as may")

    def run(self, *argv: str, timeout: float = COMMAND_SECONDS) -> str:
        """Run a Slurm command as root and give its output; raise CommandFailed when it fails."""
        return self._client.run(*argv, timeout=timeout)

    def destroy(self) -> None:
        """End everything by process id and remove the folder; jobs are not cancelled first, for none has a process."""
        if self._layout is None:
            # Nothing is in it yet that would be ours to remove.
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            return
        for together in ([daemons.CONTROLLER], [daemons.DATABASE_DAEMON], [daemons.MARIADB, daemons.MUNGED]):
            self._supervisor.end(together)
        kill_processes(find_marked(daemons.marker(self.folder)))
        (self.folder / FILE_NAME).unlink(missing_ok=True)
        self._layout = None
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _client(self) -> SlurmClient:
        return SlurmClient(self.environment, self.layout.users)

    def _save(self) -> None:
        if self._layout is not None:
            write_state(self._layout, self._supervisor.daemons)

    def _wait(self, predicate: Callable[[], object], what: str) -> None:
        wait_until(predicate, what, timeout_seconds=SETTLE_SECONDS, poll_seconds=POLL_SECONDS)

    def _has_all_nodes(self) -> bool:
        with contextlib.suppress(CommandFailed):  # the controller may still be coming up
            return self.run("sinfo", "--noheader", "--Format=Nodes").split() == [str(CPU_NODES + GPU_NODES)]
        return False

    def _has_settled(self) -> bool:
        """Tell whether the scheduler has given up on what waits, and the cloud was asked for every allocated node."""
        jobs = Counter(self.run("squeue", "--noheader", "--array", "--format=%T %r").splitlines())
        started = sum(array.started for array in ARRAYS)
        waiting = sum(array.tasks for array in ARRAYS) - started
        nodes = self.run("sinfo", "--noheader", "--format=%T").split()
        return jobs == {"CONFIGURING None": started, "PENDING JobArrayTaskLimit": waiting} and all(
            state == "idle~" or state.endswith("#") for state in nodes
        )
