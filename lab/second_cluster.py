# SPDX-License-Identifier: Apache-2.0
"""Start a second cluster beside a lab: its own slurmctld and slurmd, the lab's munged, slurmdbd and node names."""

import contextlib
from collections.abc import Iterator

from lab import daemons
from lab.client import SlurmClient
from lab.config import LabSettings, Layout
from lab.errors import CommandFailed, LabError
from lab.ports import claim_block
from lab.slurm import SlurmLab
from lab.startup import prepare_folder, register_cluster, start_cluster, wait_ready
from lab.supervisor import Supervisor
from lab.waiting import wait_until

CANCEL_SECONDS = 20.0
READY_SECONDS = 60.0


class SecondCluster:
    """Control a cluster with one node, which has the name of the lab's first node. Its commands are the lab's with -M.

    Its files are below the folder of the lab, which also ends what is left of it. Nodes of equal names would share
    their cgroups, so it has none.
    """

    def __init__(self, layout: Layout, supervisor: Supervisor, client: SlurmClient) -> None:
        """Take a cluster that runs."""
        self.name = layout.cluster_name
        self.nodes = layout.nodes
        self.client = client
        self._layout = layout
        self._supervisor = supervisor

    def stop_controller(self) -> None:
        """End slurmctld; slurmdbd still names its address."""
        self._supervisor.end([daemons.CONTROLLER])

    def start_controller(self) -> None:
        """Start slurmctld again, and wait until slurmdbd names its address."""
        self._supervisor.restart(daemons.CONTROLLER)
        wait_ready(self._layout, self._supervisor, daemons.CONTROLLER)
        wait_until(self._is_registered, f"slurmdbd to know {self.name}", timeout_seconds=READY_SECONDS)

    def _is_registered(self) -> bool:
        try:
            self.client.run("sinfo", "-M", self.name)
        except CommandFailed:
            return False
        return True


@contextlib.contextmanager
def run_second_cluster(lab: SlurmLab, name: str, *, first_job_id: int) -> Iterator[SecondCluster]:
    """Register, start and in the end remove a second cluster; its jobs are numbered from the given ID."""
    folder = lab.folder / name
    settings = LabSettings(node_count=1, refuses_cgroups=True, first_job_id=first_job_id)
    supervisor = Supervisor()
    with contextlib.ExitStack() as stack:
        with claim_block(lambda _block: True) as block:
            layout = Layout(
                folder=folder, block=block, settings=settings, uses_cgroups=False, cluster_name=name, first=lab.layout
            )
            folder.mkdir()
            prepare_folder(layout)
            client = SlurmClient({"SLURM_CONF": str(layout.slurm_conf)}, layout.users)
            register_cluster(layout, client)
            stack.callback(_remove, layout, supervisor, client)
            start_cluster(layout, supervisor, client)
        yield SecondCluster(layout, supervisor, client)


def _remove(layout: Layout, supervisor: Supervisor, client: SlurmClient) -> None:
    if supervisor.is_alive(daemons.CONTROLLER):
        with contextlib.suppress(LabError):
            client.cancel_all(timeout=CANCEL_SECONDS)
    supervisor.end([daemon.name for daemon in supervisor.daemons])
    client.run("sacctmgr", "--immediate", "delete", "cluster", f"name={layout.cluster_name}")
