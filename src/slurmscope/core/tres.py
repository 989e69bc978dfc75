# SPDX-License-Identifier: Apache-2.0
"""Read trackable and generic resources as Slurm's commands print them: cores, memory, GPUs, shares of GPUs.

::

    gpu:2    gpu:a100:4(S:0-1)    gpu:a100:2(IDX:0-1),shard:a100:3(1/8,2/8)    mps:200    bandwidth:lustre:no_consume:4G

::

    cpu=4,mem=200M,node=1,billing=4,gres/gpu=2,gres/gpu:a100=2,license/matlab=1
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurmscope.core.units import MIB, parse_bytes

NOTHING = frozenset({"", "(null)", "N/A", "none"})
"""What Slurm prints where there is no resource."""

# One entry; what stands in parentheses (sockets, indexes, shares of a device) may hold commas of its own.
_ENTRY = re.compile(r"([^,()]+)(?:\([^()]*\))?(?:,(?!\Z)|\Z)")
_COUNT = re.compile(r"([0-9]{1,19})([KMGTP]?)\Z", re.IGNORECASE)
_FACTORS = {unit: 1 << 10 * power for power, unit in enumerate(("", "K", "M", "G", "T", "P"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gres:
    """Count one generic resource; ``model`` is empty where the site names none."""

    name: str
    model: str = ""
    count: int


def parse_gres(text: str) -> tuple[Gres, ...]:
    """Read a list of resources; the same name and model twice, as on two sockets, is added up.

    Raises ValueError for text that Slurm does not print.
    """
    if text in NOTHING:
        return ()
    # GresUsed names the model "(null)" where gres.conf has none: gpu:(null):2(IDX:0-1).
    text = text.replace(":(null)", "")
    counts: Counter[tuple[str, str]] = Counter()
    end = 0
    while end < len(text):
        found = _ENTRY.match(text, end)
        if not found:
            raise ValueError(f"{text!r} is not a list of generic resources")
        name, model, count = _parse_gres_entry(found[1])
        counts[name, model] += count
        end = found.end()
    return as_gres(counts.items())


def as_gres(counts: Iterable[tuple[tuple[str, str], int]]) -> tuple[Gres, ...]:
    return tuple(Gres(name=name, model=model, count=count) for (name, model), count in counts)


def _parse_gres_entry(entry: str) -> tuple[str, str, int]:
    """Split ``name[:model][:no_consume][:count]``; without a count there is one, as in slurm.conf."""
    name, *rest = entry.split(":")
    found = _COUNT.match(rest[-1]) if rest else None
    if found:
        rest.pop()
    if rest and rest[-1] == "no_consume":
        rest.pop()
    if not name or len(rest) > 1 or "" in rest:
        raise ValueError(f"{entry!r} is not a generic resource such as gpu:a100:4")
    count = int(found[1]) * _FACTORS[found[2].upper()] if found else 1
    return name, rest[0] if rest else "", count


LONGEST_AMOUNT = 30
"""Characters of the longest amount: a number of 64 bits, a fraction, a unit."""

_GRES_PREFIX = "gres/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tres:
    """The amounts of one TRES list; None means that the list does not name the resource.

    Sites may account for typed resources beside the untyped total of the same name. ``gres`` counts
    every device once: typed ones under their model, the rest of the total under an empty model.
    ``others`` holds all that has no field of its own, such as ``billing`` or ``license/matlab``.
    """

    cpus: int | None = None
    memory_bytes: int | None = None
    nodes: int | None = None
    gres: tuple[Gres, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)


def parse_tres(text: str) -> Tres:
    """Read a TRES list; memory without a unit is in MiB. Raises ValueError for text that Slurm does not print."""
    if text in NOTHING:
        return Tres()
    amounts = dict(_parse_tres_entry(entry) for entry in text.split(","))
    if len(amounts) != text.count(",") + 1:
        raise ValueError(f"{text!r} names a resource twice")
    return Tres(
        cpus=amounts.pop("cpu", None),
        memory_bytes=amounts.pop("mem", None),
        nodes=amounts.pop("node", None),
        gres=_count_once({name: amounts.pop(name) for name in tuple(amounts) if name.startswith(_GRES_PREFIX)}),
        others=amounts,
    )


def _parse_tres_entry(entry: str) -> tuple[str, int]:
    name, equals, amount = entry.rpartition("=")
    if not equals or not name or len(amount) > LONGEST_AMOUNT:
        raise ValueError(f"{entry!r} is not a trackable resource such as cpu=4")
    return name, parse_bytes(amount, default_unit="M" if name == "mem" else "")


def _count_once(amounts: Mapping[str, int]) -> tuple[Gres, ...]:
    """Take typed counts out of the untyped total of the same name."""
    totals: dict[str, int] = {}
    typed: dict[tuple[str, str], int] = {}
    for full_name, count in amounts.items():
        name, _, model = full_name.removeprefix(_GRES_PREFIX).partition(":")
        if model:
            typed[name, model] = count
        else:
            totals[name] = count
    sums: Counter[str] = Counter()
    for (name, _), count in typed.items():
        sums[name] += count
    for name, total in totals.items():
        if total > sums[name] or name not in sums:
            typed[name, ""] = total - sums[name]
    return as_gres(typed.items())


def unit_of(tres: str) -> int:
    """Return what one counted piece of a resource is in base units: 1 MiB of memory is 1,048,576 bytes.

    These three are the resources whose numbers Slurm prints with M, G or T where it prints units.
    """
    return MIB if tres in ("mem", "gres/gpumem") or tres.startswith("bb/") else 1


def parse_minutes(text: str) -> dict[str, float]:
    """Read ``cpu=600,mem=4096`` (in minutes) into seconds; raises ValueError for anything else."""
    amounts: dict[str, float] = {}
    for entry in text.split(",") if text else ():
        name, _, minutes = entry.rpartition("=")
        if not name or not minutes.isascii() or not minutes.isdecimal() or len(minutes) > 20:
            raise ValueError(f"{entry!r} is not a trackable resource such as cpu=4")
        amounts[name] = int(minutes) * 60.0 * unit_of(name)
    return amounts
