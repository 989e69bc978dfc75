# SPDX-License-Identifier: Apache-2.0
"""Offer the nodes of the cluster to Prometheus as targets: by HTTP, and in a file.

The last good list is offered for as long as Slurm does not answer: targets must not vanish with slurmctld.

Columns and rows end in marks made of a word that is new for each call, as in :mod:`slurmscope.cluster.sinfo`.

::

    {"targets": ["10.0.0.7:9798"], "labels": {"__meta_slurm_node": "n7", "__meta_slurm_partitions": ",cpu,long,", …}}

Lists have a comma at both ends, so that ``.*,long,.*`` matches one whole name.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from slurmscope.cluster.sinfo import NodeGres, can_run_jobs, parse_node_gres, parse_state
from slurmscope.cluster.sources import Sources
from slurmscope.core.clock import run_periodically
from slurmscope.core.config import file_path
from slurmscope.core.errors import ConfigError, MalformedAnswer, SourceError
from slurmscope.core.hostlist import match_hosts
from slurmscope.core.settings import Section, parse_text, setting
from slurmscope.exporter.collector import Reading
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.outputs import remove_stale_parts, write_textfile
from slurmscope.exporter.reading import SharedReading
from slurmscope.http.server.app import Route
from slurmscope.http.server.page_slots import PageSlots
from slurmscope.http.server.request import HttpRequest
from slurmscope.http.server.response import Response, text_response
from slurmscope.slurm.command import random_separator


class DiscoveredNode(NamedTuple):
    """One node: its name in Slurm, the address at which slurmd is reached, and its host name.

    ``gpu_models`` has the GPUs by model, which is empty where the site configured none.
    """

    name: str
    address: str
    host: str
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    base_state: str = "unknown"
    flags: frozenset[str] = frozenset()
    gpus: int = 0
    gpu_models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredNodes:
    """All nodes of the cluster, each once."""

    nodes: tuple[DiscoveredNode, ...]


COLUMNS = ("NodeList", "PartitionName", "NodeAddr", "NodeHost", "StateComplete", "Features", "Gres")
_NONE = "(null)"


def arguments(separator: str) -> tuple[str, ...]:
    """Return the arguments of sinfo; ``separator`` is a random word of letters and digits, new for each call."""
    marks = [f"<{separator}"] * (len(COLUMNS) - 1) + [f">{separator}"]
    columns = (f"{column}:{mark}" for column, mark in zip(COLUMNS, marks, strict=True))
    return ("--noheader", "--Node", "--all", "--local", "--Format=" + ",".join(columns))


def parse_discovery(answer: bytes, separator: str) -> DiscoveredNodes:
    """Read the answer to :func:`arguments` with the same separator.

    A row that cannot be read is skipped, unless there is no other.
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
    if rows and not fields:
        raise MalformedAnswer(f"sinfo: none of {len(rows)} rows has the requested columns")
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


HIGHEST_PORT = 65_535
AGENT_PORT = "9798"
BLOCK_NODES = 100
REQUESTS_LIMIT = 8
"""How many lists are made and sent at the same time; the list of a large cluster takes a good part of a second."""
_BOOLEANS = {"true": True, "false": False}
_LIMIT = 100

Condition = Callable[[DiscoveredNode], bool]


class UnknownFilter(ValueError):
    """A filter has an unknown name or value; the message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The port of targets, and the conditions that a node must meet."""

    port: int
    conditions: Sequence[Condition] = field(default=())

    def accepts(self, node: DiscoveredNode) -> bool:
        return all(condition(node) for condition in self.conditions)


def parse_selection(query: Iterable[tuple[str, str]]) -> Selection:
    """Parse filters; a node needs one of the values of each name. Raise UnknownFilter."""
    values: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in query:
        values[name].append(value)
    port = _parse_port(values.pop("port", [AGENT_PORT])[-1])
    return Selection(port=port, conditions=[_condition(name, wanted) for name, wanted in values.items()])


def write_targets(nodes: Iterable[DiscoveredNode], selection: Selection) -> Iterator[bytes]:
    """Yield the selected nodes in the format of Prometheus, in blocks with one line for each node."""
    found = (
        json.dumps({"targets": [f"{_bracketed(node.address)}:{selection.port}"], "labels": _labels(node)})
        for node in nodes
        if selection.accepts(node)
    )
    yield b"["
    start = "\n"
    while lines := list(itertools.islice(found, BLOCK_NODES)):
        yield (start + ",\n".join(lines)).encode()
        start = ",\n"
    yield b"\n]\n"


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
        is_wanted = _match_nodes(",".join(wanted))
        return lambda node: is_wanted(node.name)
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


def _match_nodes(text: str) -> Callable[[str], bool]:
    try:
        return match_hosts(text)
    except ValueError as error:
        raise UnknownFilter(f"{text[:_LIMIT]!a} is not a list of nodes, or has too many brackets.") from error


def _parse_boolean(name: str, text: str) -> bool:
    if text not in _BOOLEANS:
        raise UnknownFilter(f"The filter {name} is true or false, not {text[:_LIMIT]!a}.")
    return _BOOLEANS[text]


def _parse_port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= HIGHEST_PORT):
        raise UnknownFilter(f"The port is a number from 1 to {HIGHEST_PORT}, not {text[:_LIMIT]!a}.")
    return int(text)


PATH = "/sd/nodes"
WAIT_SECONDS = 10.0
"""How long a request waits for sinfo; then it gets the last good list."""

FILE_SECONDS = 60.0
"""Interval between updates of the file."""

_RETRY = ("Retry-After", "10")
_HEADERS = (("Content-Type", "application/json"), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))


def parse_filter(given: object) -> str:
    """Parse the filter of the file, which is written as in the address."""
    text = parse_text(given)
    parse_selection(parse_qsl(text, keep_blank_values=True))
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySettings:
    """The nodes of the cluster as targets for Prometheus, on the path /sd/nodes and in a file."""

    file: Path | None = file_path(
        None, "File with the targets, for file_sd_configs of Prometheus; its name ends in .json."
    )
    file_filter: str = setting(
        "", "Filters for the file, as in the address: partition=gpu&port=9100.", parse=parse_filter, metavar="FILTER"
    )


def read_nodes(slurm: Sources) -> DiscoveredNodes:
    separator = random_separator()
    return parse_discovery(slurm.run("sinfo", arguments(separator)), separator)


# Targets must not vanish with slurmctld.
NODE_TARGETS = Reading(name="node_targets", read=read_nodes, keep_seconds=math.inf)


class Discovery:
    """Answer the path, and keep the file up to date."""

    def __init__(
        self, settings: DiscoverySettings, reading: SharedReading, *, file_seconds: float = FILE_SECONDS
    ) -> None:
        """Check the settings; raise ConfigError if one cannot be used."""
        if settings.file is not None and settings.file.suffix != ".json":
            raise ConfigError(
                f"sd.file is {str(settings.file)!a}; its name must end in .json, which Prometheus requires"
            )
        self._settings = settings
        self._reading = reading
        self._file_seconds = file_seconds
        self._slots = PageSlots(REQUESTS_LIMIT)
        link_text = "Nodes of the cluster, for http_sd_configs of Prometheus."
        self.routes: Mapping[str, Route] = {
            PATH: Route(answer=self.answer, find_upload=lambda _: None, methods=("GET", "HEAD"), link_text=link_text)
        }

    def answer(self, request: HttpRequest) -> Response:
        try:
            selection = parse_selection(request.query)
        except UnknownFilter as problem:
            return text_response(400, str(problem))
        try:
            nodes = self._nodes()
        except SourceError as error:
            return text_response(503, f"The nodes are not known: {error}.", _RETRY)
        if (page := self._slots.take(request.group)) is None:
            return text_response(503, "Too many requests for nodes at the same time.", _RETRY)
        first = page.start(write_targets(nodes, selection))
        return Response(headers=_HEADERS, body=itertools.chain((first,), page), close=page.close)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep the file up to date, if there is one."""
        path = self._settings.file
        if path is None:
            yield
            return
        selection = parse_selection(parse_qsl(self._settings.file_filter, keep_blank_values=True))
        remove_stale_parts(path)

        def write() -> None:
            write_textfile(path, write_targets(self._nodes(), selection))

        with run_periodically("file_sd", self._file_seconds, write):
            yield

    def _nodes(self) -> tuple[DiscoveredNode, ...]:
        """Return all nodes; a cluster has some, so that a list without any must not end the targets."""
        self._reading.request()
        snapshot = self._reading.wait(time.monotonic() + WAIT_SECONDS)
        if not isinstance(snapshot.value, DiscoveredNodes):
            raise SourceError(snapshot.error or "sinfo has not answered yet")
        if not snapshot.value.nodes:
            raise SourceError("sinfo lists no nodes")
        return snapshot.value.nodes


def _open(host: Host) -> Running:
    discovery = Discovery(host.config.of(DiscoverySettings), host.readings[NODE_TARGETS.name])
    stack = ExitStack()
    return Running(
        routes=lambda: discovery.routes,
        start=lambda _: stack.enter_context(discovery.open()),
        close=stack.close,
    )


DISCOVERY = Feature(
    name="discovery", sections=(Section(name="sd", type=DiscoverySettings),), readings=(NODE_TARGETS,), open=_open
)
