# SPDX-License-Identifier: Apache-2.0
"""Answer a command line that slurmscope sends, from the responses that were written for it.

A fake command runs nothing but this module, so it is kept fast: no cluster is simulated, and no reader is imported.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypedDict

CLUSTER = "cluster.json"
"""The name of the cluster, and for each command the known command lines."""
OTHER_CLUSTERS = "clusters"
"""Where the fake commands of other clusters are, by name."""

NUL = b"\0"
"""In a stored response the separator of the call; nothing that Slurm prints can hold it."""

_SEPARATOR = re.compile("[0-9a-f]{16}|\0")
_VARYING = frozenset({
    "--delimiter", "--starttime", "--endtime", "--jobs", "--user", "--clusters", "clusters", "nodes", "start", "name",
})  # fmt: skip
"""Words whose values differ from call to call."""

CommandResult: TypeAlias = tuple[int, bytes, bytes]
"""Exit code, standard output, standard error."""


class _About(TypedDict):
    name: str
    lines: dict[str, dict[str, tuple[str, str]]]
    """For each command, the file of the response to a line, and what selects its rows."""


def run(directory: str, command: str, argv: Sequence[str]) -> int:
    """Answer on standard output and standard error, and return the exit code."""
    code, out, complaint = answer(directory, command, argv)
    try:
        _write(sys.stderr.fileno(), complaint)
        _write(sys.stdout.fileno(), out)
    except BrokenPipeError:
        return 1
    return code


def answer(directory: str, command: str, argv: Sequence[str]) -> CommandResult:
    """Answer for the cluster that the command line names, or else for the own one."""
    title = b""
    if len(argv) > 1 and argv[0] == "-M":
        cluster, argv = argv[1], argv[2:]
        title = f"CLUSTER: {cluster}\n".encode() if command == "squeue" else b""
        line, values = read_line(argv)
    else:
        line, values = read_line(argv)
        cluster = values.get("clusters", "")
    about = _read_about(directory)
    if cluster not in ("", about["name"]):
        directory = os.path.join(directory, OTHER_CLUSTERS, cluster)  # noqa: PTH118 - pathlib is slow to import
        if "/" in cluster or not os.path.isdir(directory):  # noqa: PTH112
            return 1, b"", encode(f"{command}: error: there is no simulated cluster {cluster!r}\n")
        about = _read_about(directory)
    known = about["lines"][command]
    if line not in known:
        return refuse(command, known)
    file, selected_by = known[line]
    with open(os.path.join(directory, file), "rb") as content:  # noqa: PTH118, PTH123
        return 0, title + complete(content.read(), selected_by, argv, values), b""


def read_line(argv: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Return a command line as text, without what differs from call to call, and those values by their names."""
    values: dict[str, str] = {}
    words: list[str] = []
    for word in argv:
        name, sign, value = word.partition("=")
        if name in _VARYING and sign:
            values[name.lstrip("-")] = value
            words.append(name + sign)
        else:
            if found := _SEPARATOR.search(word):
                values["separator"] = found[0]
            words.append(_SEPARATOR.sub("SEPARATOR", word))
    return " ".join(words).encode("unicode_escape").decode("ascii"), values


def complete(
    content: bytes, selected_by: str, argv: Sequence[str], values: Mapping[str, str], now: float | None = None
) -> bytes:
    """Make the response to one call; ``selected_by`` names the value that selects rows, or the jobs of sacct."""
    if selected_by == "jobs":
        from slurmscope.simulator.commands.sacct_rows import list_jobs

        return list_jobs(content, argv, values, int(time.time() if now is None else now))
    if selected_by:
        start = encode(values[selected_by]) + b"|"
        return b"".join(row.removeprefix(start) + b"\n" for row in content.split(NUL) if row.startswith(start))
    return content.replace(NUL, encode(values.get("delimiter") or values.get("separator", "")))


def refuse(command: str, known: Iterable[str]) -> CommandResult:
    lines = "; ".join(f"{command} {line}".rstrip() for line in known)
    return 1, b"", encode(f"{command}: error: only the command lines that slurmscope sends are simulated: {lines}\n")


def encode(text: str) -> bytes:
    """Turn text into the bytes a user typed, also where they were no valid UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _read_about(directory: str) -> _About:
    with open(os.path.join(directory, CLUSTER), encoding="utf-8") as file:  # noqa: PTH118, PTH123
        about: _About = json.load(file)
    return about


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
