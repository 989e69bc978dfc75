# SPDX-License-Identifier: Apache-2.0
"""Set the generic resources that a node has and those that are in use side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from slurmscope.gres import parse_gres
from slurmscope.model.nodes import NodeGres

# Thousands of nodes have few sets of resources, and the same ones at the next call.
CACHED_TEXTS = 4096


@lru_cache(maxsize=CACHED_TEXTS)
def parse_node_gres(total_text: str, used_text: str) -> tuple[NodeGres, ...] | None:
    """Read both texts of a node; None when one is not what Slurm prints.

    Sites without any resource still have ``gpu:0`` in use: what is nowhere and not used is left out.
    """
    try:
        totals = {(found.name, found.model): found.count for found in parse_gres(total_text)}
        used: Counter[tuple[str, str]] = Counter()
        for found in parse_gres(used_text):
            used[_counterpart(found.name, found.model, totals)] += found.count
    except ValueError:
        return None
    keys = [*totals, *(key for key, count in used.items() if count and key not in totals)]
    return tuple(
        NodeGres(name=name, model=model, total=totals.get((name, model), 0), used=used[name, model])
        for name, model in keys
    )


def _counterpart(name: str, model: str, totals: Mapping[tuple[str, str], int]) -> tuple[str, str]:
    """Find the total that a count in use belongs to: one of the two may name no model."""
    if (name, model) in totals:
        return name, model
    if (name, "") in totals:
        return name, ""
    others = [key for key in totals if key[0] == name]
    return others[0] if len(others) == 1 and not model else (name, model)
