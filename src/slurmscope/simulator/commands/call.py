# SPDX-License-Identifier: Apache-2.0
"""Parse the call of a simulated command, and inject faults into its response.

A fake command runs nothing but this module, so it is kept fast: no cluster is simulated, only the requested columns
are read, and pathlib and json stay out until they are needed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence

from slurmscope.simulator.commands.listing import Command, CommandResult

# Between the values of a stored column. Nothing that Slurm prints can hold it.
SEPARATOR = b"\0"

CURRENT = "current"
RUNS = "runs"
FAULTS = "faults"
OTHER_CLUSTERS = "clusters"
"""Where the fake commands of other clusters are, by name."""


def run(directory: str, command: Command, argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Answer on standard output and standard error, and return the exit code."""
    _count_run(directory, command.name)
    code, out, complaints = answer(directory, command, argv, environment)
    try:
        _write(sys.stderr.fileno(), complaints)
        _write(sys.stdout.fileno(), out)
    except BrokenPipeError:
        return 1
    return code


def answer(directory: str, command: Command, argv: Sequence[str], environment: Mapping[str, str]) -> CommandResult:
    """Answer from the columns in the directory, late or wrongly where a fault says so."""
    if argv[:1] == ["-M"] and len(argv) > 1:
        return _answer_in_cluster(directory, command, argv, environment)
    # A name is resolved once, so that a cluster written meanwhile cannot mix its columns into this answer.
    folder = os.path.join(directory, os.readlink(os.path.join(directory, CURRENT)), command.name)  # noqa: PTH115, PTH118

    def read(name: str) -> list[bytes]:
        with open(os.path.join(folder, name), "rb") as file:  # noqa: PTH118, PTH123
            content = file.read()
        return content.split(SEPARATOR)[:-1]

    # The arguments as typed, whatever the locale made of them.
    words = [os.fsencode(word).decode("utf-8", "surrogateescape") for word in argv]
    found = command.respond(read, words, environment)
    if not os.path.exists(os.path.join(directory, FAULTS, command.name)):  # noqa: PTH110, PTH118
        return found

    from slurmscope.simulator.commands.faults import read_fault

    fault = read_fault(directory, command.name)
    if fault is None:
        return found
    time.sleep(fault.delay_seconds)
    return fault.apply(found)


def _answer_in_cluster(
    directory: str, command: Command, argv: Sequence[str], environment: Mapping[str, str]
) -> CommandResult:
    """Answer for the cluster that ``-M`` names; squeue prints its name first."""
    name = argv[1]
    there = os.path.join(directory, OTHER_CLUSTERS, name)  # noqa: PTH118
    if "/" in name or not os.path.isdir(there):  # noqa: PTH112
        return 1, b"", os.fsencode(f"{command.name}: error: '{name}' can't be reached now\n")
    code, out, complaints = answer(there, command, argv[2:], environment)
    title = os.fsencode(f"CLUSTER: {name}\n") if command.name == "squeue" else b""
    return code, title + out, complaints


def _count_run(directory: str, command: str) -> None:
    """Add one byte to the file that counts the runs; parallel runs cannot lose one another's."""
    path = os.path.join(directory, RUNS, command)  # noqa: PTH118
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, b".")
    finally:
        os.close(descriptor)


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
