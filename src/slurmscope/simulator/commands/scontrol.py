# SPDX-License-Identifier: Apache-2.0
"""Answer like scontrol 22.05. Limits follow from what is used, so that some are nearly reached and none is broken."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from slurmscope.cluster import controller, licenses, limits, reservations, scontrol_nodes
from slurmscope.simulator.cluster.records import CPU_HOLDING_STATES, SimulatedCluster, SimulatedNode
from slurmscope.simulator.cluster.texts import MIB, duration_text, hosts_text
from slurmscope.simulator.cluster.usage import Tally, roll_up, tally, tres_text
from slurmscope.simulator.commands.call import encode
from slurmscope.simulator.commands.command_line import CommandLine, join_lines
from slurmscope.simulator.commands.sinfo import complete_state, gres_text, gres_used_text
from slurmscope.slurm import config

_LINE_END = " " + " " * 7


def _node(node: SimulatedNode) -> str:
    text = f"{_head(node)} {_sizes(node)} {_tail(node)}"
    if not node.reason:
        return text
    user = "root" if node.reason_user is None else node.reason_user.name
    # Line ends are gone, and the author stands behind the first line.
    first, *further = [line for line in node.reason.split("\n") if line] or [""]
    return f"{text} Reason={first} [{user}@{node.reason_time}]" + "".join(_LINE_END + line for line in further)


def _head(node: SimulatedNode) -> str:
    load = "N/A" if node.cpu_load is None else f"{node.cpu_load:.2f}"
    features = node.features or "(null)"
    return (
        f"NodeName={node.name} CoresPerSocket={node.cpus // 2}  CPUAlloc={node.cpus_allocated} CPUEfctv={node.cpus}"
        f" CPUTot={node.cpus} CPULoad={load} AvailableFeatures={features} ActiveFeatures={features}"
        f" Gres={gres_text(node)} GresDrain=N/A GresUsed={gres_used_text(node)}"
        f" NodeAddr={node.name} NodeHostName={node.name} "
    )


def _sizes(node: SimulatedNode) -> str:
    free = "N/A" if node.memory_free_bytes is None else str(node.memory_free_bytes // MIB)
    state = complete_state(node.base, node.flags).upper()
    return (
        f"RealMemory={node.memory_bytes // MIB} AllocMem={node.memory_allocated_bytes // MIB} FreeMem={free}"
        f" Sockets=2 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight={node.weight} Owner=N/A MCS_label=N/A"
    )


def _tail(node: SimulatedNode) -> str:
    partitions = f"Partitions={','.join(node.partitions)} " if node.partitions else ""
    return (
        f"{partitions} BootTime=None SlurmdStartTime=None LastBusyTime=Unknown"
        f" CfgTRES=cpu={node.cpus},mem={node.memory_bytes // MIB}M,billing={node.cpus} AllocTRES= CapWatts=n/a"
        " CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s"
    )


_MAX_JOBS_OF_A_USER = 5_000
_LICENSES = {"ansys@flex": 128, "matlab": 50}
_HOUR = 3600


def make_associations(cluster: SimulatedCluster) -> Iterator[str]:
    """Yield the root, then every account with its users."""
    owners = tally(cluster)
    by_account, by_user = roll_up(owners, 0), roll_up(owners, 0, 1)
    numbers = itertools.count(1)
    yield _association(cluster, next(numbers), ("root", ""), {}, roll_up(owners)[()])
    for place, account in enumerate(cluster.accounts):
        sums = by_account[account,]
        # From nearly full to nearly empty; every third account has no limit.
        limits = {name: 64 + sums[name] * (10 + place) // 9 for name in ("cpu", "mem") if place % 3 != 2}
        yield _association(cluster, next(numbers), (account, ""), limits, sums)
        for user in cluster.users:
            if account in user.accounts:
                who = (account, f"{user.name}({user.uid})")
                yield _association(cluster, next(numbers), who, {}, by_user[account, user.name])


def make_qos(cluster: SimulatedCluster) -> Iterator[str]:
    """Yield every quality of service, with the use of each account and user that has some."""
    owners = tally(cluster)
    by_qos = roll_up(owners, 2)
    numbers = {user.name: str(user.uid) for user in cluster.users}
    accounts = _blocks("PA", roll_up(owners, 2, 0), {name: name for name in cluster.accounts})
    users = _blocks("PU", roll_up(owners, 2, 1), numbers)
    for place, qos in enumerate(cluster.qos):
        sums = by_qos[qos,]
        limits = {"cpu": 256 + 2 * sums["cpu"]} if place else {}
        yield (
            f"QOS={qos}({place + 1}) UsageRaw={sums['used']:.6f} {_group_text(limits, sums)} MaxWallPJ= MaxTRESPJ="
            f" MaxTRESPN= MaxTRESMinsPJ= MinPrioThresh=  MinTRESPJ= PreemptMode=OFF Priority={1000 * place}"
            f" Account Limits={accounts.get(qos, 'No Accounts')} User Limits={users.get(qos, 'No Users')}"
        )


def make_licenses(cluster: SimulatedCluster) -> Iterator[str]:
    """Yield the licences, used as the running jobs hold them."""
    used: Counter[str] = Counter()
    for job in cluster.jobs:
        if job.licenses and job.state in CPU_HOLDING_STATES:
            for entry in job.licenses.split(","):
                name, _, amount = entry.partition(":")
                used[name] += int(amount or 1)
    for name in sorted({*_LICENSES, *used}):
        count = max(_LICENSES.get(name, 0), used[name])
        remote = "yes" if "@" in name else "no"
        counts = f"Total={count} Used={used[name]} Free={count - used[name]} Reserved=0"
        yield f"LicenseName={name} {counts} Remote={remote}"


def make_reservations(cluster: SimulatedCluster) -> Iterator[str]:
    """Yield a course that goes on now and the maintenance of next week."""
    few = cluster.nodes[: max(1, len(cluster.nodes) // 10)]
    yield _reservation(cluster.now, "course", -_HOUR, 4 * _HOUR, few, "SPEC_NODES")
    yield _reservation(
        cluster.now, "maintenance", 168 * _HOUR, 8 * _HOUR, cluster.nodes, "MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES"
    )


def _reservation(now: int, name: str, begins_in: int, lasts: int, nodes: Sequence[SimulatedNode], flags: str) -> str:
    cores = sum(node.cpus for node in nodes)
    state = "ACTIVE" if begins_in <= 0 else "INACTIVE"
    start = now + begins_in
    return (
        f"ReservationName={name} StartTime={start} EndTime={start + lasts} Duration={duration_text(lasts)}"
        f" Nodes={hosts_text(node.name for node in nodes)} NodeCnt={len(nodes)}"
        f" CoreCnt={cores} Features=(null) PartitionName=(null) Flags={flags} TRES=cpu={cores} Users=root Groups=(null)"
        f" Accounts=(null) Licenses=(null) State={state} BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)"
    )


def _association(
    cluster: SimulatedCluster, number: int, who: tuple[str, str], limits: Mapping[str, int], sums: Tally
) -> str:
    account, user = who
    max_jobs = f"{_MAX_JOBS_OF_A_USER}({sums['jobs']})" if user else ""
    parent = "" if user or account == "root" else "root(1)"
    return (
        f"ClusterName={cluster.name} Account={account} UserName={user} Partition= Priority=0 ID={number}"
        f" SharesRaw/Norm/Level/Factor=1/0.00/1/0.00 UsageRaw/Norm/Efctv={sums['used']:.2f}/0.00/0.00"
        f" ParentAccount={parent} Lft={number} DefAssoc=No {_group_text(limits, sums)} MaxJobs={max_jobs}"
        " MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ= MaxTRESPJ= MaxTRESPN= MaxTRESMinsPJ= MinPrioThresh="
    )


def _group_text(limits: Mapping[str, int], sums: Tally) -> str:
    minutes = [{"cpu": sums[name] // 60, "billing": sums[name] // 60} for name in ("used", "left")]
    return (
        f"GrpJobs=N({sums['jobs']}) GrpJobsAccrue=N(0) GrpSubmitJobs=N({sums['submitted']}) GrpWall=N(0.00)"
        f" GrpTRES={tres_text(limits, sums)} GrpTRESMins={tres_text({}, minutes[0])}"
        f" GrpTRESRunMins={tres_text({}, minutes[1])}"
    )


def _blocks(end: str, sums: Mapping[tuple[str, ...], Tally], names: Mapping[str, str]) -> dict[str, str]:
    """Write the use of each account or user, by quality of service."""
    texts: dict[str, str] = {}
    for (qos, name), each in sorted(sums.items()):
        if name in names:
            texts[qos] = texts.get(qos, "") + (
                f" {names[name]}={{MaxJobs{end}=N({each['jobs']}) MaxJobsAccrue{end}=N(0)"
                f" MaxSubmitJobs{end}=N({each['submitted']}) MaxTRES{end}={tres_text({}, each)}}}"
            )
    return texts


def _respond_config(cluster: SimulatedCluster) -> bytes:
    return encode(
        f"ClusterName             = {cluster.name}\nPrivateData             = none\nSLURM_VERSION           = 22.05.8\n"
    )


def _respond_limits(cluster: SimulatedCluster) -> bytes:
    associations = ("Association Records", *make_associations(cluster))
    return join_lines(("Current Association Manager state", *associations, "QOS Records", *make_qos(cluster)))


def _respond_nodes(cluster: SimulatedCluster) -> bytes:
    """Return all nodes; one that is not there yet is not shown."""
    lines = [_node(node) for node in cluster.nodes if node.base != "future"]
    return join_lines(lines or ["No nodes in the system"])


_RESPONSES = (
    (controller.ARGUMENTS, lambda cluster: encode(f"Slurmctld(primary) at {cluster.name}-ctl is UP\n")),
    (config.ARGUMENTS, _respond_config),
    (limits.ARGUMENTS, _respond_limits),
    (licenses.ARGUMENTS, lambda cluster: join_lines(make_licenses(cluster))),
    (reservations.ARGUMENTS, lambda cluster: join_lines(make_reservations(cluster))),
    (scontrol_nodes.ARGUMENTS, _respond_nodes),
)
LINES = tuple(CommandLine("scontrol", arguments, respond) for arguments, respond in _RESPONSES)
