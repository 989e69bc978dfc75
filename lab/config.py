# SPDX-License-Identifier: Apache-2.0
"""Write the configuration texts of the lab's daemons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.ports import PortBlock

CPUS_PER_NODE = 8
MEMORY_PER_NODE_MEBIBYTES = 4000
GPUS_PER_NODE = 2
CLUSTER_NAME = "lab"
# Labs side by side number their jobs differently: a job id says whose job it is, also where the node is not known.
JOBS_PER_LAB = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSettings:
    """Say how a lab differs from the usual one.

    Extra lines end up in slurm.conf, after ours; extra files beside it, by name (acct_gather.conf). Cgroups are used
    where the machine lets us, unless they are refused here. Without accounting there is no database, and no
    account is needed to submit.
    """

    node_count: int = 4
    refuses_cgroups: bool = False
    has_accounting: bool = True
    first_job_id: int | None = None
    extra_lines: tuple[str, ...] = ()
    extra_files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Name every path of a lab, all below one folder, and every node."""

    folder: Path
    block: PortBlock
    settings: LabSettings
    uses_cgroups: bool
    cgroup_plugin: str = "cgroup/v1"
    cluster_name: str = CLUSTER_NAME
    first: "Layout | None" = None
    """The lab whose munged, slurmdbd, users and node names this cluster shares; None for a lab of its own."""

    @property
    def etc(self) -> Path:
        """Give the folder of the configuration files."""
        return self.folder / "etc"

    @property
    def slurm_conf(self) -> Path:
        """Give the file that every Slurm command is pointed at."""
        return self.etc / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """Give the socket of the lab's own munged."""
        return (self.first or self).folder / "munge" / "socket"

    @property
    def database_socket(self) -> Path:
        """Give the socket of the lab's own MariaDB."""
        return self.folder / "mariadb.sock"

    @property
    def users(self) -> Path:
        """Give the folder in which each user has a working folder."""
        return (self.first or self).folder / "users"

    @property
    def nodes(self) -> tuple[str, ...]:
        """Name the nodes: lab0n1, lab0n2, ... in the first lab of a machine, lab1n1, ... in the next one.

        Plain names like n1 would be nicer to read and are not safe: a slurmd that somebody else starts by hand under
        the same name shares our cgroups, and we would end its jobs with ours.
        """
        return node_names((self.first or self).block, self.settings.node_count)

    @property
    def gpu_nodes(self) -> tuple[str, ...]:
        """Name the nodes with GPUs: the second half."""
        return self.nodes[len(self.nodes) // 2 :]

    def gpu_file(self, index: int) -> Path:
        """Give the device file that stands for a GPU."""
        return self.folder / "devices" / f"gpu{index}"


def node_names(block: PortBlock, count: int) -> tuple[str, ...]:
    """Name the nodes of the lab that holds this block of ports."""
    return tuple(f"lab{block.number}n{index + 1}" for index in range(count))


def render_configuration(layout: Layout) -> dict[str, str]:
    """Give the text of every configuration file by its name."""
    return {
        "slurm.conf": _slurm_conf(layout),
        "slurmdbd.conf": _slurmdbd_conf(layout),
        "cgroup.conf": _cgroup_conf(layout),
        "gres.conf": _gres_conf(layout),
        **layout.settings.extra_files,
    }


def _slurm_conf(layout: Layout) -> str:
    lines = [
        *identity_lines(layout),
        *_SCHEDULING_LINES,
        *(_ACCOUNTING_LINES if layout.settings.has_accounting else _NO_ACCOUNTING_LINES),
        *(_CGROUP_LINES if layout.uses_cgroups else _PLAIN_LINES),
        *_node_lines(layout),
        *_partition_lines(layout),
        *layout.settings.extra_lines,
    ]
    return "\n".join(lines) + "\n"


def identity_lines(layout: Layout) -> list[str]:
    """Give the lines of slurm.conf that say who and where the daemons of a lab are."""
    return [
        f"ClusterName={layout.cluster_name}",
        "SlurmctldHost=localhost(127.0.0.1)",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        f"SlurmctldPort={layout.block.controller}",
        "AccountingStorageHost=127.0.0.1",
        # For connections to slurmdbd this, not AuthInfo, names munge's socket.
        f"AccountingStoragePass={layout.munge_socket}",
        f"AccountingStoragePort={(layout.first or layout).block.database_daemon}",
        f"StateSaveLocation={layout.folder}/state",
        f"SlurmdSpoolDir={layout.folder}/spool/%n",
        f"SlurmctldPidFile={layout.folder}/run/slurmctld.pid",
        f"SlurmdPidFile={layout.folder}/run/slurmd-%n.pid",
        f"SlurmctldLogFile={layout.folder}/log/slurmctld.log",
        f"SlurmdLogFile={layout.folder}/log/slurmd-%n.log",
        f"FirstJobId={layout.settings.first_job_id or layout.block.number * JOBS_PER_LAB + 1}",
        "SlurmctldDebug=info",
        "SlurmdDebug=info",
    ]


_SCHEDULING_LINES = (
    # Listen on 127.0.0.1 only.
    "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
    "ReturnToService=2",
    "SlurmctldTimeout=30",
    "SlurmdTimeout=60",
    "MinJobAge=300",
    "KillWait=2",
    "MpiDefault=none",
    "SchedulerType=sched/backfill",
    "SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0",
    "SelectType=select/cons_tres",
    "SelectTypeParameters=CR_CPU_Memory",
    "DefMemPerCPU=100",
    "PriorityType=priority/multifactor",
    "PriorityWeightAge=1000",
    "PriorityWeightFairshare=10000",
    "PriorityWeightQOS=1000",
    "Licenses=matlab:10",
    "GresTypes=gpu",
    # The nodes claim more processors than this machine may have.
    "SlurmdParameters=config_overrides",
)

_ACCOUNTING_LINES = (
    "AccountingStorageType=accounting_storage/slurmdbd",
    "AccountingStorageEnforce=associations,limits,qos",
    "AccountingStorageTRES=gres/gpu",
    "AccountingStoreFlags=job_script,job_env",
    "JobCompType=jobcomp/none",
    "JobAcctGatherFrequency=1",
)

_NO_ACCOUNTING_LINES = (
    "AccountingStorageType=accounting_storage/none",
    "JobCompType=jobcomp/none",
    "JobAcctGatherFrequency=1",
)

_CGROUP_LINES = (
    "ProctrackType=proctrack/cgroup",
    "TaskPlugin=task/cgroup",
    "JobAcctGatherType=jobacct_gather/cgroup",
)

_PLAIN_LINES = (
    "ProctrackType=proctrack/linuxproc",
    "TaskPlugin=task/none",
    "JobAcctGatherType=jobacct_gather/linux",
)


def _node_lines(layout: Layout) -> list[str]:
    lines = []
    for index, node in enumerate(layout.nodes):
        gres = f" Gres=gpu:a100:{GPUS_PER_NODE}" if node in layout.gpu_nodes else ""
        lines.append(
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={layout.block.node(index)}"
            f" CPUs={CPUS_PER_NODE} RealMemory={MEMORY_PER_NODE_MEBIBYTES}{gres} State=UNKNOWN"
        )
    return lines


def _partition_lines(layout: Layout) -> list[str]:
    nodes, gpu_nodes = ",".join(layout.nodes), ",".join(layout.gpu_nodes)
    return [
        f"PartitionName=debug Nodes={nodes} Default=YES DefaultTime=10 MaxTime=60 State=UP",
        f"PartitionName=long Nodes={nodes} DefaultTime=60 MaxTime=7-0 PriorityTier=1 State=UP",
        f"PartitionName=gpus Nodes={gpu_nodes} DefaultTime=10 MaxTime=1-0 State=UP",
    ]


def _slurmdbd_conf(layout: Layout) -> str:
    lines = [
        "DbdHost=localhost",
        "DbdAddr=127.0.0.1",
        f"DbdPort={layout.block.database_daemon}",
        "SlurmUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        # MariaDB knows root by the socket, so there is no password. The socket's path comes from MYSQL_UNIX_PORT.
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=root",
        "StorageLoc=slurm_acct_db",
        "CommunicationParameters=NoInAddrAny",
        f"PidFile={layout.folder}/run/slurmdbd.pid",
        f"LogFile={layout.folder}/log/slurmdbd.log",
        "DebugLevel=info",
    ]
    return "\n".join(lines) + "\n"


def _cgroup_conf(layout: Layout) -> str:
    # Cores are not constrained: the nodes claim more of them than there are.
    lines = [
        f"CgroupPlugin={layout.cgroup_plugin}",
        "CgroupMountpoint=/sys/fs/cgroup",
        "ConstrainRAMSpace=yes",
        "ConstrainSwapSpace=no",
        "ConstrainCores=no",
        "ConstrainDevices=no",
    ]
    if layout.cgroup_plugin == "cgroup/v2":
        # slurmd makes its scope itself, where nobody can be asked to.
        lines.append("IgnoreSystemd=yes")
    return "\n".join(lines) + "\n"


def _gres_conf(layout: Layout) -> str:
    files = f"{layout.gpu_file(0).parent}/gpu[0-{GPUS_PER_NODE - 1}]"
    lines = ["AutoDetect=off"]
    lines += [f"NodeName={node} Name=gpu Type=a100 File={files}" for node in layout.gpu_nodes]
    return "\n".join(lines) + "\n"
