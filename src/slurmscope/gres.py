# SPDX-License-Identifier: Apache-2.0
"""Read generic resources (GPUs, shares of GPUs, bandwidth) as Slurm's commands print them.

::

    gpu:2    gpu:a100:4(S:0-1)    gpu:a100:2(IDX:0-1),shard:a100:3(1/8,2/8)    mps:200    bandwidth:lustre:no_consume:4G
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

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
        name, model, count = _parse_entry(found[1])
        counts[name, model] += count
        end = found.end()
    return as_gres(counts.items())


def as_gres(counts: Iterable[tuple[tuple[str, str], int]]) -> tuple[Gres, ...]:
    """Make resources of counts by name and model."""
    return tuple(Gres(name=name, model=model, count=count) for (name, model), count in counts)


def _parse_entry(entry: str) -> tuple[str, str, int]:
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
