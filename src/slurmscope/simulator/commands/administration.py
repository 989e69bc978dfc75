# SPDX-License-Identifier: Apache-2.0
"""Answer like scontrol, sacctmgr, sprio, sshare and sdiag 22.05.

Limits follow from what is used, so that some are nearly reached and none is broken. The first user of the cluster
coordinates the first account. sprio prints a row for each partition in which a job may start, and none for a held job.
In sshare all accounts are children of the root; levels and factors follow the fair-tree rules: who has used less of
what was granted comes first, accounts before their users.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from slurmscope.cluster import (
    controller,
    dbd,
    events,
    licenses,
    limits,
    reservations,
    scheduler,
    scontrol_nodes,
    shares,
)
from slurmscope.core.units import MIB
from slurmscope.jobs.pending import blockers
from slurmscope.simulator.cluster.records import CPU_HOLDING_STATES, SimulatedCluster, SimulatedJob, SimulatedNode
from slurmscope.simulator.cluster.statistics import (
    Tally,
    make_database_report,
    make_diag,
    make_rows,
    roll_up,
    tally,
    tres_text,
)
from slurmscope.simulator.cluster.texts import duration_text, hosts_text
from slurmscope.simulator.commands.call import NUL, encode
from slurmscope.simulator.commands.command_line import CommandLine, join_lines, read_columns
from slurmscope.simulator.commands.lists import complete_state, gres_text, gres_used_text
from slurmscope.slurm import cluster_names, config, coordinators
from slurmscope.slurm.states import node_state_text

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
SCONTROL = tuple(CommandLine("scontrol", arguments, respond) for arguments, respond in _RESPONSES)


_CONFIGURATION = (
    b"Configuration data as of now\nPrivateData            = none\n\nSlurmDBD configuration:\n"
    b"PrivateData            = none\nSlurmUser              = slurm(64030)\n"
)


def _events(cluster: SimulatedCluster) -> bytes:
    """Return the event of each node that is down or drained now, after its name."""
    rows = []
    for node in cluster.nodes:
        if node.reason:
            user = "root(0)" if node.reason_user is None else f"{node.reason_user.name}({node.reason_user.uid})"
            state = node_state_text(node.base, frozenset(node.flags)).upper()
            rows.append(encode(f"{node.name}|{node.reason_time}|Unknown|{state}|{user}|{node.reason}"))
    return NUL.join(rows)


def _coordinated_accounts(cluster: SimulatedCluster) -> bytes:
    """Return the accounts that each user coordinates, after the name of the user."""
    first = ",".join(cluster.accounts[:1])
    rows = (f"{user.name}|{user.name}|{'' if place else first}" for place, user in enumerate(cluster.users))
    return NUL.join(map(encode, rows))


def _account_coordinators(cluster: SimulatedCluster) -> bytes:
    first = ",".join(user.name for user in cluster.users[:1])
    return join_lines(f"{account}|{'' if place else first}" for place, account in enumerate(cluster.accounts))


SACCTMGR = tuple(
    CommandLine("sacctmgr", arguments, respond, selected_by)
    for arguments, respond, selected_by in (
        (dbd.ARGUMENTS, lambda cluster: encode(make_database_report(cluster)), ""),
        (config.SLURMDBD[1], lambda _cluster: _CONFIGURATION, ""),
        (cluster_names.ALL_ARGUMENTS, lambda cluster: encode(f"{cluster.name}\n"), ""),
        (events.ALL_ARGUMENTS, lambda cluster: b"".join(row + b"\n" for row in _events(cluster).split(NUL) if row), ""),
        (events.arguments("", ""), _events, "nodes"),
        (events.arguments("", "", "x"), _events, "nodes"),
        (coordinators.arguments(""), _coordinated_accounts, "name"),
        (coordinators.ARGUMENTS, _account_coordinators, ""),
    )
)


def _age(job: SimulatedJob) -> int:
    return job.priority // 10


def _qos(job: SimulatedJob) -> int:
    return job.priority // 5 if job.qos == "high" else 0


_FACTORS: Mapping[str, Callable[[SimulatedJob], str]] = {
    "i": lambda job: str(job.id),
    "Y": lambda job: str(job.priority),
    "A": lambda job: str(_age(job)),
    "B": lambda _job: "0",
    "F": lambda job: str(job.priority - _age(job) - _qos(job)),
    "J": lambda _job: "0",
    "P": lambda _job: "0",
    "Q": lambda job: str(_qos(job)),
    "S": lambda _job: "0",
    "T": lambda _job: "",
    "N": lambda _job: "0",
}


def _respond_sprio(cluster: SimulatedCluster) -> bytes:
    columns = read_columns(blockers.SPRIO_ARGUMENTS)
    return join_lines(
        "".join((partition if name == "r" else _FACTORS[name](job)) + suffix for name, suffix in columns)
        for job in cluster.jobs
        if job.state == "PENDING" and job.priority > 0
        for partition in job.partitions
    )


def _respond_sshare(cluster: SimulatedCluster) -> bytes:
    return join_lines("|".join(row.get(column, "") for column in shares.COLUMNS) for row in make_rows(cluster))


PRIORITIES = (
    CommandLine("sprio", blockers.SPRIO_ARGUMENTS, _respond_sprio),
    CommandLine("sshare", shares.ARGUMENTS, _respond_sshare),
    CommandLine(scheduler.COMMAND, scheduler.ARGUMENTS, lambda cluster: encode(make_diag(cluster))),
)

LINES = (*SCONTROL, *PRIORITIES, *SACCTMGR)
