# SPDX-License-Identifier: Apache-2.0
"""Start, command and end a real Slurm cluster in one private folder."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from lab import cgroups, daemons
from lab.client import COMMAND_SECONDS, POLL_SECONDS, SlurmClient
from lab.config import LabSettings, Layout, node_names
from lab.errors import LabError
from lab.ports import PortBlock, claim_block
from lab.processes import find_marked, kill_processes
from lab.requirements import check_folder, check_machine, find_program
from lab.startup import prepare_folder, start_services, wait_ready
from lab.state import FILE_NAME, read_state, write_state
from lab.supervisor import Supervisor
from lab.waiting import wait_until

# Each slurmstepd listens in the spool folder, under the name of its node, job and step.
LONGEST_SOCKET = "spool/lab499n17/lab499n17_49999999.4294967291"
CANCEL_SECONDS = 20.0
SWEEP_SECONDS = 30.0


class SlurmLab:
    """Be one cluster: four nodes, three partitions, accounting, three users."""

    def __init__(
        self,
        folder: Path,
        settings: LabSettings | None = None,
        progress: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """Take an absent or empty folder; nothing is started yet."""
        self.folder = folder.resolve()
        self._settings = settings or LabSettings()
        self._progress = progress
        self._layout: Layout | None = None
        self._supervisor = Supervisor(on_change=self._save)

    @classmethod
    def attach(cls, folder: Path) -> Self:
        """Take over the lab that another process has started in this folder."""
        state = read_state(folder)
        lab = cls(folder, state.layout.settings)
        lab._layout = state.layout
        lab._supervisor = Supervisor(state.daemons, on_change=lab._save)
        return lab

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def layout(self) -> Layout:
        """Give the paths, ports and node names of the started lab."""
        if self._layout is None:
            raise LabError(f"the lab in {self.folder} is not started")
        return self._layout

    @property
    def nodes(self) -> tuple[str, ...]:
        """Name the nodes: lab0n1, lab0n2, ... in the first lab of a machine, lab1n1, ... in the next."""
        return self.layout.nodes

    @property
    def environment(self) -> dict[str, str]:
        """Give the variables that point Slurm's commands at this lab."""
        return {"SLURM_CONF": str(self.layout.slurm_conf)}

    @property
    def bin_path(self) -> Path:
        """Give the folder of Slurm's commands."""
        return Path(find_program("sinfo", "slurm-client")).parent

    @property
    def pids(self) -> dict[str, int]:
        """Give the process id of each daemon that runs."""
        return {d.name: d.process.pid for d in self._supervisor.daemons if d.process is not None and d.is_alive}

    @property
    def daemon_names(self) -> tuple[str, ...]:
        """Name all daemons of the lab, also those that do not run now."""
        return tuple(daemon.name for daemon in self._supervisor.daemons)

    def start(self) -> None:
        """Start everything and return when all nodes are idle; after a failure nothing is left running."""
        check_machine()
        check_folder(self.folder, LONGEST_SOCKET)
        if self.folder.exists() and any(self.folder.iterdir()):
            raise LabError(f"{self.folder} is not empty: end the lab in it first, or choose another folder")
        plugin = None if self._settings.refuses_cgroups else cgroups.find_plugin()
        with claim_block(self._has_free_names) as block:
            self._layout = Layout(
                folder=self.folder,
                block=block,
                settings=self._settings,
                uses_cgroups=plugin is not None,
                cgroup_plugin=plugin or cgroups.V1_PLUGIN,
            )
            self.folder.mkdir(parents=True, exist_ok=True)
            # From here on `lab down` can clean up, should this process be killed.
            self._save()
            try:
                prepare_folder(self.layout)
                start_services(self.layout, self._supervisor, self._client, self._progress)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End everything by process id and remove the lab's cgroups; files stay, for who wants to read the logs."""
        if self._layout is None:
            return
        self._end_jobs()
        nodes = [daemons.node_daemon_name(node) for node in self.nodes]
        for together in (
            [*nodes, daemons.CONTROLLER],
            [daemons.DATABASE_DAEMON],
            [daemons.MARIADB, daemons.MUNGED],
        ):
            self._supervisor.end(together)
        self._sweep()
        (self.folder / FILE_NAME).unlink(missing_ok=True)
        self._layout = None
        self._supervisor = Supervisor(on_change=self._save)

    def destroy(self) -> None:
        """Stop the lab and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *argv: str, user: str | None = None, timeout: float = COMMAND_SECONDS) -> str:
        """Run a Slurm command, as root or as a user, and give its output; raise CommandFailed when it fails."""
        return self._client.run(*argv, user=user, timeout=timeout)

    def submit(self, user: str, *sbatch_arguments: str, script: str = "sleep 60") -> int:
        """Submit a batch job as a user and give its id."""
        return self._client.submit(user, *sbatch_arguments, script=script)

    def wait_for(self, predicate: Callable[[], object], timeout: float = 120.0, what: str = "a condition") -> None:
        """Wait until the predicate holds, or raise LabError."""
        wait_until(predicate, what, timeout_seconds=timeout, poll_seconds=POLL_SECONDS)

    def wait_state(self, job_id: int, states: Collection[str], timeout: float = 120.0) -> None:
        """Wait until a job, with all its array tasks, is in one of these states."""
        self._client.wait_state(job_id, states, timeout=timeout)

    def job_states(self, job_id: int) -> frozenset[str]:
        """Give the states of a job's tasks; a job that is no array has one."""
        return self._client.job_states(job_id)

    def node_states(self) -> dict[str, str]:
        """Give the state of each node as sinfo spells it."""
        return self._client.node_states()

    def cancel_all(self, timeout: float = 120.0) -> None:
        """Cancel all jobs and wait until none is left."""
        self._client.cancel_all(timeout=timeout)

    def reset(self, timeout: float = 120.0) -> None:
        """Undo what a test did: thaw and revive daemons, cancel all jobs, wake all nodes."""
        for name in self.daemon_names:
            if self._supervisor.is_alive(name):
                self._supervisor.resume(name)
            else:
                self.start_daemon(name)
        self.cancel_all(timeout)
        self._client.wait_idle(timeout=timeout)

    def suspend(self, name: str) -> None:
        """Freeze a daemon (slurmdbd, munged, slurmd-lab0n1): it keeps its sockets and answers nothing."""
        self._supervisor.suspend(name)

    def resume(self, name: str) -> None:
        """Let a frozen daemon go on."""
        self._supervisor.resume(name)

    def kill(self, name: str) -> None:
        """Kill a daemon.

        The controller is asked to end first: it writes its jobs down only every five seconds, and after a loss it gives
        the same job ids again, so that its nodes drain themselves over duplicate jobs.
        """
        if name == daemons.CONTROLLER:
            self._supervisor.end([name])
        else:
            self._supervisor.kill(name)

    def start_daemon(self, name: str) -> None:
        """Start a killed daemon again and wait until it accepts connections."""
        self._supervisor.restart(name)
        wait_ready(self.layout, self._supervisor, name)

    def suspend_controller(self) -> None:
        """Freeze slurmctld."""
        self.suspend(daemons.CONTROLLER)

    def resume_controller(self) -> None:
        """Let slurmctld go on."""
        self.resume(daemons.CONTROLLER)

    def kill_controller(self) -> None:
        """Kill slurmctld."""
        self.kill(daemons.CONTROLLER)

    def start_controller(self) -> None:
        """Start slurmctld again."""
        self.start_daemon(daemons.CONTROLLER)

    @property
    def _client(self) -> SlurmClient:
        return SlurmClient(self.environment, self.layout.users)

    def _has_free_names(self, block: PortBlock) -> bool:
        """Tell whether no slurmd, of whomever, has cgroups under the names that this block gives to our nodes."""
        return not cgroups.find_node_cgroups(node_names(block, self._settings.node_count))

    def _save(self) -> None:
        if self._layout is not None:
            write_state(self._layout, self._supervisor.daemons)

    def _end_jobs(self) -> None:
        """Let Slurm itself end the jobs when it can; what it leaves is swept up later."""
        for name in self.pids:
            self._supervisor.resume(name)
        if {daemons.MUNGED, daemons.CONTROLLER} <= self.pids.keys():
            with contextlib.suppress(LabError):
                self.cancel_all(CANCEL_SECONDS)

    def _sweep(self) -> None:
        """Kill slurmstepd and job processes that outlived their slurmd, then remove the cgroups."""
        tops = cgroups.find_node_cgroups(self.nodes)

        def is_swept() -> bool:
            # A job may start a process while we kill another, so we look until there is nothing to see.
            leftovers = {*find_marked(daemons.marker(self.folder)), *cgroups.find_members(tops)}
            kill_processes(leftovers)
            return not leftovers

        wait_until(is_swept, "the end of the jobs' processes", timeout_seconds=SWEEP_SECONDS)
        cgroups.remove_cgroups(tops)


@contextlib.contextmanager
def temporary_lab(settings: LabSettings | None = None) -> Iterator[SlurmLab]:
    """Start a cluster in a new folder, and destroy both in the end."""
    # Not pytest's own temporary folder: that one is closed to the users whose jobs run here.
    lab = SlurmLab(Path(tempfile.mkdtemp(prefix="slurm-lab-")), settings)
    try:
        lab.start()
        yield lab
    finally:
        lab.destroy()
