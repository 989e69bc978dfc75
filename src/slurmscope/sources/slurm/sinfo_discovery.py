# SPDX-License-Identifier: Apache-2.0
"""Read address, partitions, features, state and GPUs of all nodes with one sinfo call, for service discovery.

Columns and rows end in marks made of a word that is new for each call, as in :mod:`slurmscope.sources.slurm.sinfo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slurmscope.errors import MalformedAnswer
from slurmscope.model.discovery import DiscoveredNode, DiscoveredNodes
from slurmscope.model.nodes import NodeGres
from slurmscope.sources.slurm.node_gres import parse_node_gres
from slurmscope.sources.slurm.sinfo import parse_state

COLUMNS = ("NodeList", "PartitionName", "NodeAddr", "NodeHost", "StateComplete", "Features", "Gres")
_NONE = "(null)"


def arguments(separator: str) -> tuple[str, ...]:
    """Return the arguments of sinfo; ``separator`` is a random word of letters and digits, new for each call."""
    marks = [f"<{separator}"] * (len(COLUMNS) - 1) + [f">{separator}"]
    columns = (f"{column}:{mark}" for column, mark in zip(COLUMNS, marks, strict=True))
    return ("--noheader", "--Node", "--all", "--local", "--Format=" + ",".join(columns))


def parse_discovery(answer: bytes, separator: str) -> DiscoveredNodes:
    """Read the answer to :func:`arguments` with the same separator.

    A cluster has nodes: an answer without any is a failure, or all targets would vanish.
    """
    rows = answer.decode("utf-8", "replace").split(f">{separator}\n")
    if rows.pop():
        raise MalformedAnswer("sinfo: the answer ends in the middle of a line")
    partitions: dict[str, list[str]] = {}
    fields: dict[str, Sequence[str]] = {}
    for row in rows:
        name, *values = row.split(f"<{separator}")
        if len(values) == len(COLUMNS) - 1 and name.split() == [name]:
            partitions.setdefault(name, []).append(values[0])
            fields[name] = values[1:]
    if not fields:
        raise MalformedAnswer("sinfo: no node is listed")
    return DiscoveredNodes(nodes=tuple(_make_node(name, partitions[name], fields[name]) for name in sorted(fields)))


def _make_node(name: str, partitions: Iterable[str], fields: Sequence[str]) -> DiscoveredNode:
    address, host, state, features, gres = fields
    base_state, flags = parse_state(state)
    gpus = _gpus(gres)
    return DiscoveredNode(
        name=name,
        address=address if address not in {"", _NONE} else name,
        host=host or name,
        partitions=tuple(sorted({partition for partition in partitions if partition})),
        features=() if features == _NONE else tuple(feature for feature in features.split(",") if feature),
        base_state=base_state,
        flags=flags,
        gpus=sum(gpu.total for gpu in gpus),
        gpu_models=tuple(sorted({gpu.model for gpu in gpus if gpu.model})),
    )


def _gpus(gres: str) -> tuple[NodeGres, ...]:
    found = parse_node_gres(gres, "")
    return tuple(each for each in found or () if each.name == "gpu" and each.total)
