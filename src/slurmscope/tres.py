# SPDX-License-Identifier: Apache-2.0
"""Read trackable resources as Slurm's commands print them.

::

    cpu=4,mem=200M,node=1,billing=4,gres/gpu=2,gres/gpu:a100=2,license/matlab=1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurmscope.gres import NOTHING, Gres, as_gres
from slurmscope.units import parse_bytes

LONGEST_AMOUNT = 30
"""Characters of the longest amount: a number of 64 bits, a fraction, a unit."""

_GRES_PREFIX = "gres/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tres:
    """Hold the amounts of one TRES list; None means that the list does not name the resource.

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
    amounts = dict(_parse_entry(entry) for entry in text.split(","))
    if len(amounts) != text.count(",") + 1:
        raise ValueError(f"{text!r} names a resource twice")
    return Tres(
        cpus=amounts.pop("cpu", None),
        memory_bytes=amounts.pop("mem", None),
        nodes=amounts.pop("node", None),
        gres=_count_once({name: amounts.pop(name) for name in tuple(amounts) if name.startswith(_GRES_PREFIX)}),
        others=amounts,
    )


def _parse_entry(entry: str) -> tuple[str, int]:
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
