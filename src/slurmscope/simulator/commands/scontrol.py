# SPDX-License-Identifier: Apache-2.0
"""Answer like scontrol 22.05 what an exporter asks: ``ping``, and ``show`` of what it knows.

That is assoc_mgr, config, licenses, nodes and reservations. Known options: ``-o -a -d -V``. A record is always printed
on one line, as with ``-o``.

A record is stored in three parts, because the time of a reason depends on the caller's time zone: what
precedes that time, the time itself, and what follows.

Limits follow from what is used, so that some are nearly reached and none is broken.
"""

from __future__ import annotations

import getopt
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurmscope.simulator.cluster.job_states import CPU_HOLDING_STATES
from slurmscope.simulator.cluster.records import SimulatedCluster, SimulatedNode
from slurmscope.simulator.cluster.texts import MIB, duration_text, hosts_text
from slurmscope.simulator.cluster.usage import Tally, roll_up, tally, tres_text
from slurmscope.simulator.commands.listing import (
    STANDARD_TIME,
    Command,
    CommandResult,
    ReadColumn,
    UsageError,
    encode,
    refuse,
    render_times,
    version_answer,
)
from slurmscope.simulator.commands.node_fields import complete_state, gres_text, gres_used_text

_LINE_END = " " + " " * 7


def make_nodes(cluster: SimulatedCluster) -> Iterator[tuple[str, str, str]]:
    """Yield the three parts of each node; one that is not there yet is not shown."""
    for node in cluster.nodes:
        if node.base != "future":
            yield _node(node)


def _node(node: SimulatedNode) -> tuple[str, str, str]:
    text = f"{_head(node)} {_sizes(node)} {_tail(node)}"
    if not node.reason:
        return text, "", ""
    user = "root" if node.reason_user is None else node.reason_user.name
    # Line ends are gone, and the author stands behind the first line.
    first, *further = [line for line in node.reason.split("\n") if line] or [""]
    return f"{text} Reason={first} [{user}@", str(node.reason_time), "]" + "".join(_LINE_END + line for line in further)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reservation:
    head: str
    start: int
    end: int
    tail: str


def make_reservations(cluster: SimulatedCluster) -> Iterator[_Reservation]:
    """Yield a course that goes on now and the maintenance of next week."""
    nodes = [(node.name, node.cpus) for node in cluster.nodes]
    few = nodes[: max(1, len(nodes) // 10)]
    yield _reservation(cluster.now, "course", -_HOUR, 4 * _HOUR, few, "SPEC_NODES")
    yield _reservation(
        cluster.now, "maintenance", 168 * _HOUR, 8 * _HOUR, nodes, "MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES"
    )


def _reservation(
    now: int, name: str, begins_in: int, lasts: int, nodes: list[tuple[str, int]], flags: str
) -> _Reservation:
    cores = sum(cpus for _, cpus in nodes)
    state = "ACTIVE" if begins_in <= 0 else "INACTIVE"
    tail = (
        f"Duration={duration_text(lasts)} Nodes={hosts_text(name for name, _ in nodes)} NodeCnt={len(nodes)}"
        f" CoreCnt={cores} Features=(null) PartitionName=(null) Flags={flags} TRES=cpu={cores} Users=root Groups=(null)"
        f" Accounts=(null) Licenses=(null) State={state} BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)"
    )
    start = now + begins_in
    return _Reservation(head=f"ReservationName={name}", start=start, end=start + lasts, tail=tail)


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


def _encoded(lines: Iterable[str]) -> list[bytes]:
    return [encode(line) for line in lines]


RECORDS: Mapping[str, Callable[[SimulatedCluster], list[bytes]]] = {
    "cluster": lambda cluster: [encode(f"ClusterName             = {cluster.name}")],
    "controllers": lambda cluster: [encode(f"Slurmctld(primary) at {cluster.name}-ctl is UP")],
    "associations": lambda cluster: _encoded(make_associations(cluster)),
    "qos": lambda cluster: _encoded(make_qos(cluster)),
    "licenses": lambda cluster: _encoded(make_licenses(cluster)),
    "node_heads": lambda cluster: _encoded(head for head, _, _ in make_nodes(cluster)),
    "node_times": lambda cluster: _encoded(moment for _, moment, _ in make_nodes(cluster)),
    "node_tails": lambda cluster: _encoded(tail for _, _, tail in make_nodes(cluster)),
    "reservation_heads": lambda cluster: _encoded(each.head for each in make_reservations(cluster)),
    "reservation_starts": lambda cluster: _encoded(str(each.start) for each in make_reservations(cluster)),
    "reservation_ends": lambda cluster: _encoded(str(each.end) for each in make_reservations(cluster)),
    "reservation_tails": lambda cluster: _encoded(each.tail for each in make_reservations(cluster)),
}


_NAME = "scontrol"
_COLUMNS = (
    "cluster", "controllers", "associations", "qos", "licenses", "reservation_heads", "reservation_starts",
    "reservation_ends", "reservation_tails", "node_heads", "node_times", "node_tails",
)  # fmt: skip
_CONFIG = (
    b"PrivateData             = none",
    b"SLURM_VERSION           = 22.05.8",
)
_PING = "ping"
_SHOW = "show"


def column(cluster: SimulatedCluster, name: str) -> list[bytes]:
    """Return the records of one kind, or one part of every reservation."""

    return RECORDS[name](cluster)


def respond(read: ReadColumn, argv: Sequence[str], environment: Mapping[str, str]) -> CommandResult:
    """Answer ``ping`` and ``show``; refuse anything else, as the real command refuses unknown subjects."""
    try:
        options, words = getopt.gnu_getopt(list(argv), "oadV", ["oneliner", "all", "details", "version"])
        if any(option in ("-V", "--version") for option, _ in options):
            return version_answer()
        lines = _lines(read, words, environment)
    except (getopt.GetoptError, UsageError) as error:
        return refuse(_NAME, error)
    return 0, b"".join(line + b"\n" for line in lines), b""


def _lines(read: ReadColumn, words: Sequence[str], environment: Mapping[str, str]) -> list[bytes]:
    if list(words) == [_PING]:
        return list(read("controllers"))
    if len(words) < 2 or words[0] != _SHOW:
        raise UsageError(f"invalid keyword: {' '.join(words)}")
    subject = words[1].lower()
    # The real command knows a subject by its first letters.
    if "licenses".startswith(subject):
        return list(read("licenses")) or [b"No licenses configured in Slurm."]
    if "reservations".startswith(subject):
        return _reservations(read, environment)
    if "nodes".startswith(subject):
        return _nodes(read, environment)
    if "config".startswith(subject):
        return [*read("cluster"), *_CONFIG]
    if "assoc_mgr".startswith(subject):
        return _associations(read, words[2:])
    raise UsageError(f"invalid entity: {words[1]} for keyword:show")


def _associations(read: ReadColumn, filters: Sequence[str]) -> list[bytes]:
    flags = next((word.partition("=")[2] for word in filters if word.startswith("flags=")), "assoc,qos")
    lines = [b"Current Association Manager state"]
    if "assoc" in flags:
        lines += [b"Association Records", *read("associations")]
    if "qos" in flags:
        lines += [b"QOS Records", *read("qos")]
    return lines


def _reservations(read: ReadColumn, environment: Mapping[str, str]) -> list[bytes]:
    time_format = environment.get("SLURM_TIME_FORMAT", STANDARD_TIME)
    starts, ends = (render_times(read(f"reservation_{part}"), time_format) for part in ("starts", "ends"))
    parts = zip(read("reservation_heads"), starts, ends, read("reservation_tails"), strict=True)
    lines = [b"%b StartTime=%b EndTime=%b %b" % found for found in parts]
    return lines or [b"No reservations in the system"]


def _nodes(read: ReadColumn, environment: Mapping[str, str]) -> list[bytes]:
    times = render_times(read("node_times"), environment.get("SLURM_TIME_FORMAT", STANDARD_TIME))
    lines = list(map(b"".join, zip(read("node_heads"), times, read("node_tails"), strict=True)))
    return lines or [b"No nodes in the system"]


COMMAND = Command(name=_NAME, columns=_COLUMNS, column=column, respond=respond)
answer = COMMAND.answer
