# SPDX-License-Identifier: Apache-2.0
"""Answer like sinfo 22.05.

Known options: ``-h -N -a -O -o -V -p -F``, and ``-e --local --noconvert`` which are taken and change nothing.
Without ``-N`` rows that agree in all columns but counts and names are joined, as sinfo does with ``--exact``: "4000+"
and "0.11-0.13" never appear. FUTURE nodes are listed with ``-F`` only, an option that sinfo has since 23.02.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from slurmscope.simulator.cluster.texts import hosts_text
from slurmscope.simulator.commands.listing import (
    STANDARD_TIME,
    ColumnLayout,
    Command,
    CommandResult,
    Options,
    ReadColumn,
    UsageError,
    choose_layout,
    encode,
    header_of,
    name_columns,
    parse_options,
    refuse,
    render_lines,
    render_times,
    version_answer,
)
from slurmscope.simulator.commands.node_fields import FIELDS, Member

if TYPE_CHECKING:
    from slurmscope.simulator.cluster.records import SimulatedCluster


_NAME = "sinfo"
_DEFAULT_FORMAT = "%9P %.5a %.10l %.6D %.6t %N"
_DEFAULT_NODE_FORMAT = "%10N %.6D %.9P %6t"
_OPTIONS = {
    "h": "noheader", "a": "all", "N": "Node", "V": "version", "O:": "Format", "o:": "format", "p:": "partition",
    "F": "future", "e": "exact", "local": "local", "noconvert": "noconvert",
}  # fmt: skip
_LETTERS = {
    "a": "available", "A": "nodeai", "b": "features_act", "c": "cpus", "C": "cpusstate", "d": "disk", "D": "nodes",
    "e": "freemem", "E": "reason", "f": "features", "F": "nodeaiot", "G": "gres", "H": "timestamp", "l": "time",
    "m": "memory", "n": "nodehost", "N": "nodelist", "o": "nodeaddr", "O": "cpusload", "p": "prioritytier",
    "P": "partition", "R": "partitionname", "t": "statecompact", "T": "statelong", "u": "user", "U": "userlong",
    "v": "version", "w": "weight",
}  # fmt: skip

# Columns that a joined row sums or lists; all others must agree.
_SUMMED = frozenset({"cpusstate", "nodeai", "nodeaiot", "nodes"})
_LISTED = frozenset({"nodelist"})

_PARTITION_NUMBER = "partition_number"


def column(cluster: SimulatedCluster, name: str) -> list[bytes]:
    """Return one column of all nodes, once for each partition they are in."""
    partitions = {partition.name: (number, partition) for number, partition in enumerate(cluster.partitions)}
    members = (
        Member(node=node, partition=partitions[home][1], partition_number=partitions[home][0])
        for node in cluster.nodes
        for home in node.partitions
    )
    if name == _PARTITION_NUMBER:
        return [b"%d" % member.partition_number for member in members]
    return [encode(FIELDS[name].of(member, cluster.now)) for member in members]


def respond(read: ReadColumn, argv: Sequence[str], environment: Mapping[str, str]) -> CommandResult:
    """Answer from columns; unknown fields cost an empty column, unknown options the answer."""
    try:
        options = parse_options(argv, _OPTIONS)
        if "version" in options:
            return version_answer()
        layout, has_letters = choose_layout(options, _DEFAULT_NODE_FORMAT if "Node" in options else _DEFAULT_FORMAT)
    except UsageError as error:
        return refuse(_NAME, error)
    layout, complaints = name_columns(_NAME, layout, FIELDS, _LETTERS if has_letters else None)
    keep = _keep(read, options)
    values = [_values(read, column.name, keep, environment) for column in layout.columns]
    rows = sum(keep)
    if "Node" not in options:
        values, rows = _join(read, layout, values, keep)
    header = b"" if "noheader" in options else header_of(layout, FIELDS)
    return 0, header + b"".join(render_lines(layout, values, rows)), complaints


def _keep(read: ReadColumn, options: Options) -> list[bool]:
    names = options.names("partition")
    wanted = None if names is None else {encode(name) for name in names}
    return [
        (wanted is None or partition in wanted) and ("future" in options or not state.startswith(b"future"))
        for partition, state in zip(read("partitionname"), read("statecomplete"), strict=True)
    ]


def _values(read: ReadColumn, name: str, keep: list[bool], environment: Mapping[str, str]) -> list[bytes]:
    if name not in FIELDS:
        return [encode(name)] * sum(keep)
    values = list(compress(read(name), keep))
    return render_times(values, environment.get("SLURM_TIME_FORMAT", STANDARD_TIME)) if FIELDS[name].is_time else values


def _join(
    read: ReadColumn, layout: ColumnLayout, values: list[list[bytes]], keep: list[bool]
) -> tuple[list[list[bytes]], int]:
    """Join rows that agree, partition by partition; a node counts once in a row even if two of its partitions do."""
    names = [column.name for column in layout.columns]
    is_key = [name not in _SUMMED | _LISTED for name in names]
    nodes = list(compress(read("nodelist"), keep))
    numbers = [int(number) for number in compress(read(_PARTITION_NUMBER), keep)]
    groups: dict[tuple[bytes, ...], dict[bytes, int]] = {}
    for row in sorted(range(len(nodes)), key=numbers.__getitem__):
        key = tuple(column[row] for column, is_part in zip(values, is_key, strict=True) if is_part)
        groups.setdefault(key, {}).setdefault(nodes[row], row)
    members = [list(group.values()) for group in groups.values()]
    joined = [
        [_summary(name, [column[row] for row in rows]) for rows in members]
        for name, column in zip(names, values, strict=True)
    ]
    return joined, len(members)


def _summary(name: str, values: list[bytes]) -> bytes:
    """Sum, list or simply take the values of a joined row."""
    if name in _LISTED:
        return encode(hosts_text(sorted(value.decode() for value in values)))
    if name in _SUMMED:
        counts = zip(*([int(count) for count in value.split(b"/")] for value in values), strict=True)
        return b"/".join(b"%d" % sum(column) for column in counts)
    return values[0]


COMMAND = Command(name=_NAME, columns=(*FIELDS, _PARTITION_NUMBER), column=column, respond=respond)
answer = COMMAND.answer
