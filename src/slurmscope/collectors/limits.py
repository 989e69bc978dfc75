# SPDX-License-Identifier: Apache-2.0
"""Export the limits of associations and QOS, and the current usage counted against them.

::

    slurm_association_limit_tres{account="physics",user="",partition="",limit="GrpTRES",tres="cpu"} 16
    slurm_association_used_tres{account="physics",user="",partition="",limit="GrpTRES",tres="cpu"} 3
    slurm_qos_limit_jobs{qos="high",account="",user="alice",limit="MaxJobsPU"} 4

Only limits that are set are exported. ``limit`` is Slurm's name of the limit. Usage has the labels of its limit, so
``used / limit`` is the used share; per-job limits have no usage. ``user`` is empty for limits of a whole account or
QOS. Memory is in bytes, time in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurmscope.metrics.collector import Collector, Role
from slurmscope.metrics.family import Family, Labels, Metric, compat_gauge, gauge
from slurmscope.model.limits import AssociationLimits, Limit, LimitKind, Limits
from slurmscope.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """Options of the limits collector."""

    user: bool = setting(True, help="Expose the limits of users, not only of accounts and QOS.")


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
    for kind, words in _WORDS.items():
        names = (*labels, "limit", "tres") if kind in (LimitKind.TRES, LimitKind.TRES_SECONDS) else (*labels, "limit")
        pairs[kind] = (
            gauge(f"{stem}_limit_{kind.value}", f"Limit of {of} on {words}.", *names),
            gauge(f"{stem}_used_{kind.value}", f"Usage counted against the limit of {of} on {words}.", *names),
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


COLLECTOR = Collector(
    name="limits",
    role=Role.CLUSTER,
    help="Limits of accounts, users and QOS, and their usage, from one scontrol call.",
    needs=("limits",),
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
