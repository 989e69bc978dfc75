# SPDX-License-Identifier: Apache-2.0
"""Describe a command line that slurmscope sends, and its response."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from slurmscope.simulator.cluster.records import SimulatedCluster
from slurmscope.simulator.commands.call import encode

WORD = "\0"
"""Stands for the random separator in arguments and responses."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line with samples of what differs from call to call, and its response for a cluster.

    With ``selected_by``, a response has rows after the value that selects them, or the jobs of sacct.
    """

    command: str
    arguments: Sequence[str]
    respond: Callable[[SimulatedCluster], bytes]
    selected_by: str = ""


def read_columns(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Return the columns of the format, which comes last: ``Field:suffix,...`` or ``%fsuffix...``."""
    text = arguments[-1].partition("=")[2]
    if text.startswith("%"):
        return [(column[0], column[1:]) for column in text.split("%")[1:]]
    parts = (column.partition(":") for column in text.split(","))
    return [(name, suffix) for name, _, suffix in parts]


def join_lines(lines: Iterable[str]) -> bytes:
    """Put each line on a line of its own."""
    return encode("".join(f"{line}\n" for line in lines))
