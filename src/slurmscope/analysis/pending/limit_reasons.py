# SPDX-License-Identifier: Apache-2.0
"""Explain the reasons that name a limit, and find the limit with its current use.

Slurm makes their names from parts: whose limit it is, its kind, the resource, and what it counts for::

    AssocGrpCpuLimit              Assoc Grp Cpu
    QOSMaxGRESPerUser             QOS Max GRES PerUser
    QOSMaxCpuMinutesPerJobLimit   QOS Max Cpu Minutes PerJob
    MaxMemoryRunMinsPerAccount    (QOS) Max Memory RunMins PerAccount
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from slurmscope.model.limits import Limit, Limits

_REASON = re.compile(
    r"(?P<owner>Assoc|QOS|)(?P<bound>Grp|Max|Min)"
    r"(?P<resource>Cpu|CPU|Memory|Mem|Node|GRES|License|Energy|BB|Billing|Unknown|SubmitJobs?|Jobs?|WallDuration|Wall)"
    r"(?P<minutes>RunMinutes|RunMins|Minutes|)(?:Per(?P<per>Job|User|Node|Account))?(?:Limit|NotSatisfied)?"
)
_WORDS = {
    "cpu": "cores",
    "memory": "memory",
    "mem": "memory",
    "node": "nodes",
    "gres": "GPUs or other generic resources",
    "license": "licenses",
    "energy": "energy",
    "bb": "burst buffer space",
    "billing": "billing units",
    "unknown": "a resource",
    "job": "running jobs",
    "submitjob": "submitted jobs",
    "wall": "run time",
    "wallduration": "run time",
}
_TRES = {"cpu": "cpu", "memory": "mem", "mem": "mem", "node": "node", "energy": "energy", "billing": "billing"}
_TRES_PREFIXES = {"gres": "gres/", "license": "license/", "bb": "bb/", "unknown": ""}
_SUFFIXES = {"Job": "PJ", "Node": "PN", "User": "PU", "Account": "PA", "": ""}


class LimitReason(NamedTuple):
    """Hold the parts of a reason: ``owner`` is Assoc or QOS, ``resource`` is in lower case, ``per`` may be empty."""

    owner: str
    bound: str
    resource: str
    minutes: str
    per: str


class LimitUse(NamedTuple):
    """Hold a limit that blocks a job, whose it is, and how much of it is used."""

    owner: str
    limit: Limit


def parse_limit_reason(word: str) -> LimitReason | None:
    """Return the parts of a reason that names a limit; None for any other word."""
    found = _REASON.fullmatch(word)
    if not found or (not found["owner"] and not found["per"]):
        return None
    minutes = {"": "", "Minutes": "Mins"}.get(found["minutes"], "RunMins")
    resource = found["resource"].lower().removesuffix("s") if "Job" in found["resource"] else found["resource"].lower()
    return LimitReason(found["owner"] or "QOS", found["bound"], resource, minutes, found["per"] or "")


def explain_limit(reason: LimitReason) -> tuple[str, str]:
    """Return what the limit means, and what the user can do."""
    owner = "The account" if reason.owner == "Assoc" else "The QOS of the job"
    what = _WORDS[reason.resource]
    if reason.minutes:
        what = f"{what} multiplied by {'remaining run' if reason.minutes == 'RunMins' else 'run'} time"
    if reason.bound == "Min":
        return f"The job requests less than the minimum of {what} of its QOS.", "Request more, or use another QOS."
    if reason.per in {"Job", "Node"} or reason.resource == "wallduration":
        per = "node" if reason.per == "Node" else "job"
        advice = "The job never starts like this: request less, or use another QOS or account."
        return f"{owner} allows one {per} less {what} than the job requests.", advice
    whose = {
        "User": f"Your jobs have reached the limit of {what} that {_lower(owner)} allows each user.",
        "Account": f"The jobs of your account have reached the limit of {what} that {_lower(owner)} allows accounts.",
    }.get(reason.per, _explain_shared(reason, owner, what))
    return whose, _ADVICE["used" if reason.minutes == "Mins" else "running"]


def _explain_shared(reason: LimitReason, owner: str, what: str) -> str:
    if reason.bound == "Max":
        return f"You have reached the limit of {what} that {_lower(owner)} allows each user."
    whose = "account" if reason.owner == "Assoc" else "QOS"
    return f"All jobs of the {whose} together have reached its limit of {what}."


_ADVICE = {
    "running": "Wait until some of these jobs have ended: the job then starts by itself. A smaller request may fit.",
    "used": "Wait until the counted usage has decayed, use another account or QOS, or apply for more.",
}


def find_limits(reason: LimitReason, limits: Limits, *, user: str, account: str, qos: str) -> Iterator[LimitUse]:
    """Yield the limits that a reason may mean, of those that apply to a job; most have their current use."""
    if reason.owner == "Assoc":
        for association in limits.associations:
            if association.account == account and association.user in {"", user}:
                owner = f"{user} in account {account}" if association.user else f"account {account}"
                yield from (LimitUse(owner, limit) for limit in association.limits if _is_meant(reason, limit))
        return
    for named in limits.qos:
        if named.name == qos:
            for part in named.limits:
                if part.user in {"", user} and part.account in {"", account}:
                    owner = f"QOS {qos}" + (f", {part.user or part.account}" if part.user or part.account else "")
                    yield from (LimitUse(owner, limit) for limit in part.limits if _is_meant(reason, limit))


def _is_meant(reason: LimitReason, limit: Limit) -> bool:
    if limit.name != _limit_name(reason):
        return False
    if prefix := _TRES_PREFIXES.get(reason.resource):
        return limit.tres.startswith(prefix)
    return limit.tres == _TRES.get(reason.resource, limit.tres)


def _limit_name(reason: LimitReason) -> str:
    """Return the name of the limit in ``scontrol show assoc_mgr``."""
    suffix = _SUFFIXES[reason.per]
    if reason.resource in {"wall", "wallduration"}:
        return "GrpWall" if reason.bound == "Grp" else "MaxWallPJ"
    if reason.resource in {"job", "submitjob"}:
        return f"{reason.bound}{'Submit' if reason.resource == 'submitjob' else ''}Jobs{suffix}"
    return f"{reason.bound}TRES{reason.minutes}{'PJ' if reason.bound == 'Min' else suffix}"


def _lower(owner: str) -> str:
    return owner[0].lower() + owner[1:]
