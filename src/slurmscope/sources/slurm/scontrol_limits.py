# SPDX-License-Identifier: Apache-2.0
"""Read limits, and what is used of them, from the controller's own memory.

One request gives both: the controller prints each limit as ``limit(used)``, ``N`` for no limit.
``sacctmgr`` would show only the limits and load the accounting database. An ordinary user gets
all records too, unless ``PrivateData`` has ``usage`` or ``users``: then only his own associations.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping

from slurmscope.errors import MalformedAnswer
from slurmscope.model.limits import AssociationLimits, Limit, LimitKind, Limits, Qos, QosLimits
from slurmscope.sources.slurm.scontrol_records import cut, parse_whole, split_lines, words
from slurmscope.sources.slurm.tres_amounts import unit_of

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
