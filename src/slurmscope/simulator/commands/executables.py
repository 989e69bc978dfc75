# SPDX-License-Identifier: Apache-2.0
"""Write executables that answer the command lines of slurmscope in the place of Slurm's commands.

::

    DIR/squeue, DIR/sinfo   the executables
    DIR/cluster.json        the name of the cluster, and the response to each command line
    DIR/responses/3         one response; a NUL byte stands for the separator of the call
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from slurmscope.core.errors import OutputError
from slurmscope.simulator.cluster.records import SimulatedCluster
from slurmscope.simulator.commands import administration, lists, sacct
from slurmscope.simulator.commands.call import CLUSTER, CommandResult, complete, read_line, refuse
from slurmscope.simulator.commands.command_line import CommandLine

_ALL = (*lists.SQUEUE, *lists.SINFO, *administration.LINES, *sacct.LINES)
COMMANDS: Mapping[str, Mapping[str, CommandLine]] = {
    command: {read_line(line.arguments)[0]: line for line in _ALL if line.command == command}
    for command in dict.fromkeys(line.command for line in _ALL)
}
"""All known command lines of each command, by their text."""

_RESPONSES = "responses"

# The kernel reads no more of a "#!" line than this.
_MAX_SHEBANG_BYTES = 255

_SCRIPT = """\
#!{interpreter} -IS
import os, sys
sys.path.insert(0, {source!r})
from slurmscope.simulator.commands.call import run
sys.exit(run(os.path.dirname(os.path.abspath(__file__)), {command!r}, sys.argv[1:]))
"""


def answer(cluster: SimulatedCluster, command: str, argv: Sequence[str], *, now: float | None = None) -> CommandResult:
    """Answer a command line straight from a cluster in memory; ``now`` is for sacct, whose jobs end all the time."""
    text, values = read_line(argv)
    line = COMMANDS[command].get(text)
    if line is None or values.get("clusters", cluster.name) != cluster.name:
        return refuse(command, COMMANDS[command])
    return 0, complete(line.respond(cluster), line.selected_by, argv, values, now), b""


def write_fake_commands(cluster: SimulatedCluster, directory: Path) -> None:
    """Write fake commands for a cluster into a directory of their own, or give existing ones a new cluster."""
    directory = directory.absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_responses(cluster, directory)
        for command in COMMANDS:
            _write_script(command, directory)
    except OSError as error:
        raise OutputError(f"cannot write fake commands into {directory}: {error}") from error


def _write_responses(cluster: SimulatedCluster, directory: Path) -> None:
    (directory / _RESPONSES).mkdir(mode=0o700, exist_ok=True)
    # Several command lines may have the same response.
    files: dict[Callable[[SimulatedCluster], bytes], str] = {}
    for line in _ALL:
        if line.respond not in files:
            files[line.respond] = f"{_RESPONSES}/{len(files)}"
            _replace(directory / files[line.respond], line.respond(cluster), mode=0o400)
    lines = {
        command: {text: (files[line.respond], line.selected_by) for text, line in known.items()}
        for command, known in COMMANDS.items()
    }
    about = json.dumps({"name": cluster.name, "lines": lines}, indent=2) + "\n"
    _replace(directory / CLUSTER, about.encode(), mode=0o400)


def _write_script(command: str, directory: Path) -> None:
    source = str(Path(__file__).absolute().parents[3])
    interpreter = sys.executable
    if len(os.fsencode(interpreter)) + 8 > _MAX_SHEBANG_BYTES or any(character.isspace() for character in interpreter):
        raise OutputError(
            f"no script can name the interpreter {interpreter!r}: its path is too long or has a blank in it"
        )
    text = _SCRIPT.format(interpreter=interpreter, source=source, command=command)
    _replace(directory / command, text.encode(), mode=0o500)


def _replace(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file in one step: a call that runs meanwhile reads the old one or the new one."""
    aside = path.with_name(path.name + ".new")
    aside.unlink(missing_ok=True)
    aside.write_bytes(content)
    aside.chmod(mode)
    aside.replace(path)
