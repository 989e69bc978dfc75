# SPDX-License-Identifier: Apache-2.0
"""Select nodes for service discovery, and describe them as targets with labels for relabelling.

::

    {"targets": ["10.0.0.7:9798"], "labels": {"__meta_slurm_node": "n7", "__meta_slurm_partitions": ",cpu,long,", …}}

Lists have a comma at both ends, so that ``.*,long,.*`` matches one whole name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurmscope.hostlist import expand_hosts
from slurmscope.model.discovery import DiscoveredNode
from slurmscope.model.nodes import can_run_jobs

HIGHEST_PORT = 65_535
_BOOLEANS = {"true": True, "false": False}
_LIMIT = 100

Condition = Callable[[DiscoveredNode], bool]


class UnknownFilter(ValueError):
    """A filter has an unknown name or value; the message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Hold the port of targets, and the conditions that a node must meet."""

    port: int
    conditions: Sequence[Condition] = field(default=())

    def accepts(self, node: DiscoveredNode) -> bool:
        """Return whether a node meets all conditions."""
        return all(condition(node) for condition in self.conditions)


def parse_selection(query: Iterable[tuple[str, str]], port: int) -> Selection:
    """Parse filters; a node needs one of the values of each name. Raise UnknownFilter."""
    values: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in query:
        values[name].append(value)
    if ports := values.pop("port", None):
        port = _parse_port(ports[-1])
    return Selection(port=port, conditions=[_condition(name, wanted) for name, wanted in values.items()])


def make_targets(nodes: Iterable[DiscoveredNode], selection: Selection) -> list[dict[str, object]]:
    """Return the selected nodes in the format of Prometheus."""
    return [
        {"targets": [f"{_bracketed(node.address)}:{selection.port}"], "labels": _labels(node)}
        for node in nodes
        if selection.accepts(node)
    ]


def _labels(node: DiscoveredNode) -> Mapping[str, str]:
    return {
        "__meta_slurm_node": node.name,
        "__meta_slurm_host": node.host,
        "__meta_slurm_partitions": _joined(node.partitions),
        "__meta_slurm_features": _joined(node.features),
        "__meta_slurm_state": node.base_state,
        "__meta_slurm_flags": _joined(sorted(node.flags)),
        "__meta_slurm_usable": str(can_run_jobs(node.base_state, node.flags)).lower(),
        "__meta_slurm_gpus": str(node.gpus),
        "__meta_slurm_gpu_models": _joined(node.gpu_models),
    }


def _joined(words: Sequence[str]) -> str:
    return f",{','.join(words)}," if words else ""


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _condition(name: str, wanted: Sequence[str]) -> Condition:
    values = frozenset(wanted)
    if name == "node":
        names = frozenset(_expand(wanted))
        return lambda node: node.name in names
    if name == "partition":
        return lambda node: not values.isdisjoint(node.partitions)
    if name == "feature":
        return lambda node: not values.isdisjoint(node.features)
    if name == "state":
        states = frozenset(value.lower() for value in wanted)
        return lambda node: node.base_state in states or not states.isdisjoint(node.flags)
    if name in {"usable", "gpu"}:
        choices = frozenset(_parse_boolean(name, value) for value in wanted)
        if name == "gpu":
            return lambda node: (node.gpus > 0) in choices
        return lambda node: can_run_jobs(node.base_state, node.flags) in choices
    raise UnknownFilter(
        f"There is no filter {name[:_LIMIT]!a}; use node, partition, feature, state, usable, gpu or port."
    )


def _expand(wanted: Iterable[str]) -> Iterable[str]:
    """Expand all values together: the number of nodes of one request is limited, not that of each value."""
    text = ",".join(wanted)
    try:
        return expand_hosts(text)
    except ValueError as error:
        raise UnknownFilter(f"{text[:_LIMIT]!a} is not a list of nodes, or names too many.") from error


def _parse_boolean(name: str, text: str) -> bool:
    if text not in _BOOLEANS:
        raise UnknownFilter(f"The filter {name} is true or false, not {text[:_LIMIT]!a}.")
    return _BOOLEANS[text]


def _parse_port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= HIGHEST_PORT):
        raise UnknownFilter(f"The port is a number from 1 to {HIGHEST_PORT}, not {text[:_LIMIT]!a}.")
    return int(text)
