# SPDX-License-Identifier: Apache-2.0
"""Export the limits of associations and QOS, and the current usage counted against them.

::

    slurm_association_limit_tres{account="physics",user="",partition="",limit="GrpTRES",tres="cpu"} 16
    slurm_association_used_tres{account="physics",user="",partition="",limit="GrpTRES",tres="cpu"} 3
    slurm_qos_limit_jobs{qos="high",account="",user="alice",limit="MaxJobsPU"} 4

Only limits that are set are exported. ``limit`` is Slurm's name of the limit. Usage has the labels of its limit, so
``used / limit`` is the used share; per-job limits have no usage. ``user`` is empty for limits of a whole account or
QOS. Memory is in bytes, time in seconds.

One request gives both: the controller prints each limit as ``limit(used)``, ``N`` for no limit.
``sacctmgr`` would show only the limits and load the accounting database. An ordinary user gets
all records too, unless ``PrivateData`` has ``usage`` or ``users``: then only his own associations.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurmscope.cluster.sources import Sources
from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.settings import setting
from slurmscope.core.tres import unit_of
from slurmscope.exporter.collector import SLOW_SECONDS, Collector, Reading, Role
from slurmscope.metrics.family import Family, Labels, Metric, compat_gauge, gauge
from slurmscope.slurm.text import cut, parse_whole, split_lines, words


class LimitKind(enum.Enum):
    """What a limit counts."""

    JOBS = "jobs"
    TRES = "tres"
    TRES_SECONDS = "tres_seconds"
    WALL_SECONDS = "wall_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit that is set, under Slurm's name, in base units.

    ``tres`` is the resource for the two kinds that count one. ``used`` is None for per-job limits, and for per-user
    limits that are set on an account.
    """

    name: str
    kind: LimitKind
    limit: float
    used: float | None = None
    tres: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssociationLimits:
    """The limits of an account, or of a user of an account if ``user`` is not empty."""

    account: str
    user: str = ""
    partition: str = ""
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QosLimits:
    """Limits of a QOS: for all its jobs, for those of an account or for those of a user."""

    account: str = ""
    user: str = ""
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Qos:
    name: str
    priority: int | None = None
    raw_usage_seconds: float | None = None
    limits: tuple[QosLimits, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All associations that have a limit, and every QOS.

    ``unreadable_rows`` counts records that could not be parsed.
    """

    associations: tuple[AssociationLimits, ...]
    qos: tuple[Qos, ...]
    unreadable_rows: int = 0


ARGUMENTS = ("--oneliner", "show", "assoc_mgr", "flags=assoc,qos")

_FIRST_LINE = "Current Association Manager state"
_ASSOCIATION_TITLES = ("Association Records", "No associations currently cached in Slurm.")
_QOS_TITLES = ("QOS Records", "No QOS currently cached in Slurm.")
_AMOUNT = re.compile(r"(N|[0-9]{1,20})(?:\(([0-9]{1,20}(?:\.[0-9]{1,6})?)\))?\Z")
_TRES = re.compile(r"([^,=]+)=(N|[0-9]{1,20})(?:\(([0-9]{1,20})\))?(?:,|\Z)")


def parse_limits(answer: bytes) -> Limits:
    """Read the associations that have a limit, and every quality of service."""
    lines = split_lines(answer, "assoc_mgr")
    # An answer that was cut between two lines has no title of its last part.
    if lines[0] != _FIRST_LINE or not any(title in lines for title in _QOS_TITLES):
        raise MalformedAnswer("scontrol show assoc_mgr: the answer is truncated or in an unknown format")
    names: dict[str, str] = {}
    associations: list[AssociationLimits] = []
    qos: list[Qos] = []
    unreadable_rows = 0
    for line in lines[1:]:
        if line in _ASSOCIATION_TITLES or line in _QOS_TITLES:
            continue
        try:
            if line.startswith("QOS="):
                qos.append(_parse_qos(line, names))
            else:
                associations.append(_parse_association(line, names))
        except ValueError:
            unreadable_rows += 1
    if unreadable_rows and not associations and not qos:
        raise MalformedAnswer("scontrol show assoc_mgr: no record is in a known format")
    limited = tuple(association for association in associations if association.limits)
    return Limits(associations=limited, qos=tuple(qos), unreadable_rows=unreadable_rows)


def _parse_association(line: str, names: dict[str, str]) -> AssociationLimits:
    """Parse one association, and store the name of its user by user ID."""
    _, account, who, partition, rest = cut(line, "ClusterName", "Account", "UserName", "Partition", "Priority")
    user, _, number = who.rpartition("(")
    if user:
        names[number.rstrip(")")] = user
    limits = _parse_set_limits(words(f"Priority={rest}"))
    if not user:
        # On an account these limit each of its users, but the number in brackets counts the jobs of all.
        limits = (_without_use(limit) if limit.name.startswith("Max") else limit for limit in limits)
    return AssociationLimits(account=account, user=user, partition=partition, limits=tuple(limits))


def _parse_qos(line: str, names: Mapping[str, str]) -> Qos:
    name, rest = cut(line, "QOS", "UsageRaw")
    own, _, others = rest.partition(" Account Limits=")
    accounts, _, users = others.partition(" User Limits=")
    fields = words(f"UsageRaw={own}")
    parts = [
        QosLimits(limits=tuple(_parse_set_limits(fields))),
        *(QosLimits(account=account, limits=limits) for account, limits in _parse_blocks(accounts)),
        *(QosLimits(user=_user_name(who, names), limits=limits) for who, limits in _parse_blocks(users)),
    ]
    return Qos(
        name=name.rpartition("(")[0] or name,
        priority=parse_whole(fields.get("Priority")),
        raw_usage_seconds=float(fields["UsageRaw"]),
        limits=tuple(part for part in parts if part.limits),
    )


def _parse_blocks(text: str) -> Iterator[tuple[str, tuple[Limit, ...]]]:
    """Read ``name={...} name={...}``; without one the text is ``No Accounts`` or ``No Users``."""
    for block in text.split("}"):
        name, brace, inside = block.partition("={")
        if brace:
            yield name.strip(" "), tuple(_parse_set_limits(words(inside)))


def _user_name(who: str, names: Mapping[str, str]) -> str:
    """Name a user: 22.05 prints ``1001``, later releases ``alice(1001)``."""
    given, _, number = who.removesuffix(")").rpartition("(")
    return names.get(number) or given or number


def _parse_set_limits(fields: Mapping[str, str]) -> Iterator[Limit]:
    """Yield the limits that are set, in base units; raises ValueError for an amount in another format."""
    for name, text in fields.items():
        kind = _kind_of(name)
        if kind is None or not text:
            continue
        has_tres = kind in (LimitKind.TRES, LimitKind.TRES_SECONDS)
        for tres, limit, used in _tres_amounts(text) if has_tres else _amount(text):
            yield _make_limit(name, kind, tres, limit, used)


def _amount(text: str) -> tuple[tuple[str, str, str], ...]:
    found = _AMOUNT.match(text)
    if not found:
        raise ValueError(f"{text!r} is not a limit")
    return () if found[1] == "N" else (("", found[1], found[2] or ""),)


# Thousands of idle users without limits have the same list.
@functools.lru_cache(maxsize=1024)
def _tres_amounts(text: str) -> tuple[tuple[str, str, str], ...]:
    amounts = _TRES.findall(text)
    if len(amounts) != text.count(",") + 1:
        raise ValueError(f"{text!r} is not a list of limits")
    return tuple(amount for amount in amounts if amount[1] != "N")


def _make_limit(name: str, kind: LimitKind, tres: str, limit: str, used: str) -> Limit:
    # Slurm counts time in minutes here, of wall time it prints hundredths.
    unit = unit_of(tres) * (1 if kind in (LimitKind.JOBS, LimitKind.TRES) else 60)
    amount = round(float(used) * unit, 3) if used else None
    return Limit(name=name, kind=kind, tres=tres, limit=float(int(limit) * unit), used=amount)


def _without_use(limit: Limit) -> Limit:
    return Limit(name=limit.name, kind=limit.kind, tres=limit.tres, limit=limit.limit)


@functools.lru_cache(maxsize=256)
def _kind_of(name: str) -> LimitKind | None:
    """Return what a limit counts, from the words in its name, so that limits of future releases work too."""
    if not name.startswith(("Grp", "Max", "Min")):
        return None
    if "TRES" in name:
        return LimitKind.TRES_SECONDS if "Mins" in name else LimitKind.TRES
    if "Wall" in name:
        return LimitKind.WALL_SECONDS
    return LimitKind.JOBS if "Jobs" in name else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """Options of the limits collector."""

    user: bool = setting(True, "Expose the limits of users, not only of accounts and QOS.")


_WORDS = {
    LimitKind.JOBS: "jobs",
    LimitKind.TRES: "a trackable resource, memory in bytes",
    LimitKind.TRES_SECONDS: "a trackable resource times seconds, memory in byte-seconds",
    LimitKind.WALL_SECONDS: "wall time in seconds",
}
_Pairs = Mapping[LimitKind, tuple[Metric, Metric]]


def _declare(stem: str, of: str, *labels: str) -> _Pairs:
    """Declare a limit and its usage for every kind; the kind ends the name because units must."""
    pairs = {}
    for kind, meaning in _WORDS.items():
        names = (*labels, "limit", "tres") if kind in (LimitKind.TRES, LimitKind.TRES_SECONDS) else (*labels, "limit")
        pairs[kind] = (
            gauge(f"{stem}_limit_{kind.value}", f"Limit of {of} on {meaning}.", *names),
            gauge(f"{stem}_used_{kind.value}", f"Usage counted against the limit of {of} on {meaning}.", *names),
        )
    return pairs


ASSOCIATION = _declare("slurm_association", "an account or user", "account", "user", "partition")
QOS = _declare("slurm_qos", "a QOS", "qos", "account", "user")
QOS_PRIORITY = gauge("slurm_qos_priority", "Priority of a QOS.", "qos")
QOS_USAGE = gauge(
    "slurm_qos_raw_usage_seconds", "Billed resources times seconds, decayed with Slurm's half-life.", "qos"
)
# Older name, name of the limit, resource.
COMPAT_LIMITS = (
    (compat_gauge("slurm_account_cpu_limit", "CPU limit of the account (GrpTRES).", "account"), "GrpTRES", "cpu"),
    (
        compat_gauge("slurm_account_mem_limit", "Memory limit of the account in bytes (GrpTRES).", "account"),
        "GrpTRES",
        "mem",
    ),
    (
        compat_gauge("slurm_account_job_alloc_limit", "Limit on running jobs of the account (GrpJobs).", "account"),
        "GrpJobs",
        "",
    ),
    (
        compat_gauge("slurm_account_job_limit", "Limit on submitted jobs of the account (GrpSubmitJobs).", "account"),
        "GrpSubmitJobs",
        "",
    ),
)

_Rows = list[tuple[Labels, Limit]]


def collect(options: LimitOptions, *, limits: Limits) -> Iterator[Family]:
    """Yield limits and usage of associations, then of QOS."""
    associations = [found for found in limits.associations if options.user or not found.user]
    yield from _families(ASSOCIATION, _association_rows(associations))
    rows: _Rows = [
        ((qos.name, part.account, part.user), limit)
        for qos in limits.qos
        for part in qos.limits
        if options.user or not part.user
        for limit in part.limits
    ]
    yield from _families(QOS, rows)
    yield Family(QOS_PRIORITY, {(qos.name,): qos.priority for qos in limits.qos if qos.priority is not None})
    usages = (((qos.name,), qos.raw_usage_seconds) for qos in limits.qos)
    yield Family(QOS_USAGE, {labels: usage for labels, usage in usages if usage is not None})
    yield from _compat_families(limits.associations)


def _association_rows(associations: Sequence[AssociationLimits]) -> _Rows:
    """List the limits, except per-job limits that users inherit from their account: they repeat without usage."""
    of_accounts = {found.account: found.limits for found in associations if not found.user}
    rows: _Rows = []
    for association in associations:
        inherited = of_accounts.get(association.account, ()) if association.user else ()
        labels = (association.account, association.user, association.partition)
        rows += [(labels, limit) for limit in association.limits if limit.used is not None or limit not in inherited]
    return rows


def _families(pairs: _Pairs, rows: _Rows) -> Iterator[Family]:
    for kind, (limit_metric, used_metric) in pairs.items():
        has_tres = "tres" in limit_metric.labels
        found = [
            ((*labels, limit.name, limit.tres) if has_tres else (*labels, limit.name), limit)
            for labels, limit in rows
            if limit.kind is kind
        ]
        yield Family(limit_metric, {labels: limit.limit for labels, limit in found})
        yield Family(used_metric, {labels: limit.used for labels, limit in found if limit.used is not None})


def _compat_families(associations: Iterable[AssociationLimits]) -> Iterator[Family]:
    by_key = {
        (association.account, limit.name, limit.tres): limit.limit
        for association in associations
        if not association.user
        for limit in association.limits
    }
    for metric, name, tres in COMPAT_LIMITS:
        yield Family(metric, {(key[0],): value for key, value in by_key.items() if key[1:] == (name, tres)})


def read_limits(slurm: Sources) -> Limits:
    return parse_limits(slurm.run("scontrol", ARGUMENTS))


LIMITS = Reading(
    name="limits",
    read=read_limits,
    every_seconds=SLOW_SECONDS,
    older_duration="slurm_limit_scrape_duration",
    older_errors=("slurm_account_scrape_error", "slurm_account_collect_error"),
)
COLLECTOR = Collector(
    name="limits",
    role=Role.CLUSTER,
    help="Limits of accounts, users and QOS, and their usage, from one scontrol call.",
    needs=(LIMITS,),
    metrics=(
        *(metric for pair in ASSOCIATION.values() for metric in pair),
        *(metric for pair in QOS.values() for metric in pair),
        QOS_PRIORITY,
        QOS_USAGE,
        *(metric for metric, _, _ in COMPAT_LIMITS),
    ),
    collect=collect,
    options=LimitOptions,
)
