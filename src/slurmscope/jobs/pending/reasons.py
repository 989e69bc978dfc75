# SPDX-License-Identifier: Apache-2.0
"""Explain why a job is pending: every reason of Slurm 22.05 to 26.05, the limit behind it, and what its user can do.

Reasons about limits follow a grammar and are explained by :mod:`slurmscope.jobs.pending.reasons`.

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

from slurmscope.cluster.limits import Limit, Limits

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
    """The parts of a reason: ``owner`` is Assoc or QOS, ``resource`` is in lower case, ``per`` may be empty."""

    owner: str
    bound: str
    resource: str
    minutes: str
    per: str


class LimitUse(NamedTuple):
    """A limit that blocks a job, whose it is, and how much of it is used."""

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
        "User": f"The jobs of the user have reached the limit of {what} that {_lower(owner)} allows each user.",
        "Account": f"The jobs of the account have reached the limit of {what} that {_lower(owner)} allows accounts.",
    }.get(reason.per, _explain_shared(reason, owner, what))
    return whose, _ADVICE["used" if reason.minutes == "Mins" else "running"]


def _explain_shared(reason: LimitReason, owner: str, what: str) -> str:
    if reason.bound == "Max":
        return f"The user has reached the limit of {what} that {_lower(owner)} allows each user."
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


class PendingReason(NamedTuple):
    """What a reason means, and what the user can do; ``is_known`` is False for a word that is not in the list."""

    word: str
    meaning: str
    action: str
    is_known: bool = True


_WAIT = "Nothing has to be done: the job starts by itself."
_SUPPORT = "Contact the support of the cluster."
_OTHER_PARTITION = "Submit to another partition, or wait: the job starts by itself once the partition accepts jobs."
_RELEASE = "Release the job: scontrol release JOBID."
_SMALLER = "Request less, so that the job fits a node of the partition, or choose another partition."

NODES_DOWN = "Nodes required for job are DOWN"
"""Begin of the one reason that Slurm writes as a sentence."""

REASONS = {
    "None": (
        "The scheduler has not considered the job yet.",
        "Wait a minute: the next cycle sets the reason.",
    ),
    "Priority": (
        "Jobs with a higher priority are ahead in this partition.",
        "Wait, or request less: short and small jobs are backfilled into gaps before larger ones start.",
    ),
    "Resources": (
        "The job waits until enough resources are free.",
        "Wait, or request less: a smaller job may start sooner.",
    ),
    "Dependency": (
        "The job waits for other jobs that it depends on.",
        "Wait until those jobs have ended, or change it: scontrol update JobId=JOBID Dependency=",
    ),
    "DependencyNeverSatisfied": (
        "The job depends on a job that did not end as required, so it never starts.",
        "Cancel the job (scancel JOBID), or remove the dependency: scontrol update JobId=JOBID Dependency=",
    ),
    "BeginTime": (
        "The job was submitted with an earliest start time (--begin), or was requeued a moment ago.",
        "Wait until then, or start it now: scontrol update JobId=JOBID StartTime=now",
    ),
    "JobHeldUser": ("The job is held by its user.", _RELEASE),
    "JobHeldAdmin": ("The job is held by an administrator.", f"{_SUPPORT} Only an administrator can release the job."),
    "JobHoldMaxRequeue": (
        "The job failed to start so often that Slurm holds it.",
        f"Find out why it fails to start, then release it: scontrol release JOBID. {_SUPPORT}",
    ),
    "Licenses": ("Not enough licenses are free.", "Wait until other jobs return licenses, or request fewer."),
    "Reservation": (
        "The job waits for the start of its reservation, or for free nodes in it.",
        "Wait until the reservation begins, or submit without --reservation.",
    ),
    "ReservationDeleted": (
        "The reservation of the job was deleted, and the job is held.",
        "Remove it and release the job: scontrol update JobId=JOBID ReservationName= ; scontrol release JOBID",
    ),
    "ReservationInvalid": (
        "The reservation of the job does not exist, or the job may not use it.",
        "Submit without --reservation, or with the name of a reservation that you may use.",
    ),
    "ReqNodeNotAvail": (
        "A node that the job needs is down, drained, or reserved, for example for maintenance.",
        "Wait until the node is available, or set a time limit that ends before the reservation begins.",
    ),
    "NodeDown": ("A node that the job needs is down.", "Wait until the node is available, or request other nodes."),
    "Constraints": ("No available node has the requested features.", "Wait, or change --constraint."),
    "BadConstraints": (
        "No node can ever satisfy the request: features, cores, memory or GPUs of one node.",
        f"Cancel the job and submit it with another request. {_SMALLER}",
    ),
    "PartitionDown": ("The partition is down: jobs may be queued, but do not start.", _OTHER_PARTITION),
    "PartitionInactive": ("The partition is inactive: it accepts and starts no jobs.", _OTHER_PARTITION),
    "PartitionNodeLimit": (
        "The job requests more or fewer nodes than the partition allows, or nodes that are down.",
        "Change the number of nodes: scontrol update JobId=JOBID NumNodes=N, or choose another partition.",
    ),
    "PartitionTimeLimit": (
        "The time limit of the job is longer than the partition allows.",
        "Reduce the time limit: scontrol update JobId=JOBID TimeLimit=HH:MM:SS, or choose another partition.",
    ),
    "PartitionConfig": (
        "The job does not meet the settings of the partition: nodes, time, account or QOS.",
        "Compare the request with scontrol show partition, and change it or choose another partition.",
    ),
    "AccountNotAllowed": (
        "The account of the job may not use the partition.",
        "Submit with another account or partition: scontrol update JobId=JOBID Account=NAME",
    ),
    "QOSNotAllowed": (
        "The QOS of the job may not be used in the partition, or not with this account.",
        "Submit with another QOS or partition: scontrol update JobId=JOBID QOS=NAME",
    ),
    "InvalidAccount": ("The account of the job no longer exists.", "Submit with another account."),
    "InvalidQOS": ("The QOS of the job no longer exists.", "Submit with another QOS."),
    "AccountingPolicy": ("A limit of the account or of the QOS does not allow the job now.", "Wait, or request less."),
    "QOSUsageThreshold": (
        "The account has used so much that its QOS starts no further jobs.",
        "Wait until the usage has decayed, or use another QOS.",
    ),
    "QOSJobLimit": ("The QOS has reached its number of running jobs.", "Wait until jobs of this QOS have ended."),
    "QOSResourceLimit": ("The QOS has reached a limit of resources.", "Wait until jobs of this QOS have ended."),
    "QOSTimeLimit": ("The QOS has used up its time limit.", "Reduce the time limit of the job, or use another QOS."),
    "AssociationJobLimit": (
        "The account has reached its number of running jobs.",
        "Wait until jobs of this account have ended.",
    ),
    "AssociationResourceLimit": (
        "The account has reached a limit of resources.",
        "Wait until jobs of this account have ended.",
    ),
    "AssociationTimeLimit": (
        "The account has used up its time limit.",
        "Reduce the time limit of the job, or use another account.",
    ),
    "JobArrayTaskLimit": (
        "The array runs as many tasks at once as it allows itself (the number after % in --array).",
        "Wait, or raise the number: scontrol update JobId=JOBID ArrayTaskThrottle=N",
    ),
    "MaxMemPerLimit": (
        "The job requests more memory per core or per node than the partition allows.",
        "Request less memory, or more cores for the same memory.",
    ),
    "MaxPoweredUpNodes": (
        "The cluster may not power up further nodes now.",
        "Wait until running jobs have ended, or choose a partition whose nodes are powered up.",
    ),
    "MpiPortsBusy": ("No ports are free for the MPI tasks of the job.", _WAIT),
    "Prolog": ("The job is about to start: its prolog runs.", _WAIT),
    "Cleaning": ("The job was requeued, and its last run is still being cleaned up.", _WAIT),
    "SchedDefer": ("Slurm defers the start of jobs that request it immediately.", "Submit without --immediate."),
    "FrontEndDown": ("No front end node is available.", _SUPPORT),
    "BlockMaxError": ("The block of nodes has too many errors.", _SUPPORT),
    "BlockFreeAction": ("The block of nodes is being freed.", _WAIT),
    "BurstBufferResources": ("Not enough burst buffer space is free.", "Wait, or request less burst buffer space."),
    "BurstBufferStageIn": ("Data is being copied into the burst buffer.", _WAIT),
    "BurstBufferOperation": ("An operation of the burst buffer failed.", _SUPPORT),
    "PowerNotAvail": ("The power budget of the cluster does not allow further jobs now.", _WAIT),
    "PowerReserved": ("Power is reserved for other jobs.", _WAIT),
    "FedJobLock": ("Another cluster of the federation is starting the job.", _WAIT),
    "NonZeroExitCode": ("An earlier run of the job ended with an exit code other than 0.", _RELEASE),
    "JobLaunchFailure": (
        "The job could not be launched: file system, user or node problem.",
        f"Check that the work directory and the output files exist and are writable. {_SUPPORT}",
    ),
    "RaisedSignal": ("An earlier run of the job was ended by a signal.", _RELEASE),
    "TimeLimit": ("An earlier run of the job reached its time limit.", "Submit it again with a longer time limit."),
    "InactiveLimit": ("An earlier run of the job was inactive for too long.", _RELEASE),
    "OutOfMemory": ("An earlier run of the job ran out of memory.", "Submit it again with more memory."),
    "SystemFailure": ("Slurm, a file system or the network failed.", _SUPPORT),
    "DeadLine": ("The job can no longer end before its deadline (--deadline).", "Submit it with a later deadline."),
}
"""By Slurm's word: what it means, and what the user can do."""

_NODES_DOWN_TEXTS = (
    "Nodes that the job needs are down, drained, or reserved for jobs in higher priority partitions.",
    "Wait, request fewer nodes or fewer features, or choose another partition.",
)


def explain_reason(reason: str) -> PendingReason:
    """Explain a reason as Slurm prints it, perhaps with details after a comma; an unknown one is shown as it is."""
    word = reason.partition(",")[0].strip()
    if word.startswith(NODES_DOWN):
        return PendingReason(NODES_DOWN, *_NODES_DOWN_TEXTS)
    if word in REASONS:
        return PendingReason(word, *REASONS[word])
    limit = parse_limit_reason(word)
    if limit is not None:
        return PendingReason(word, *explain_limit(limit))
    return PendingReason(
        word, f"Slurm reports: {reason}." if reason else "Slurm reports no reason.", "", is_known=False
    )
