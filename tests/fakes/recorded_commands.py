# SPDX-License-Identifier: Apache-2.0
"""Slurm commands that answer what real ones once printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import slurmscope
from slurmscope.simulator.commands.call import CLUSTER, NUL, read_line

SEPARATOR = b"5eparat0r"
"""Stands in recorded answers for the random word of the call."""

_SCRIPT = """\
#!{interpreter} -IS
import os, sys
sys.path.insert(0, {source!r})
from slurmscope.simulator.commands.call import run
sys.exit(run(os.path.dirname(os.path.abspath(__file__)), {command!r}, sys.argv[1:]))
"""


def write_recorded_commands(folder: Path, answers: Mapping[tuple[str, tuple[str, ...]], bytes]) -> None:
    """Write executables that print the answer to each command line, and refuse all others."""
    lines: dict[str, dict[str, tuple[str, str]]] = {}
    for number, ((command, arguments), answer) in enumerate(answers.items()):
        (folder / str(number)).write_bytes(answer.replace(SEPARATOR, NUL))
        lines.setdefault(command, {})[read_line(arguments)[0]] = (str(number), "")
    (folder / CLUSTER).write_text(json.dumps({"name": "lab", "lines": lines}))
    source = str(Path(slurmscope.__file__).absolute().parents[1])
    for command in lines:
        script = folder / command
        script.write_text(_SCRIPT.format(interpreter=sys.executable, source=source, command=command))
        script.chmod(0o700)
