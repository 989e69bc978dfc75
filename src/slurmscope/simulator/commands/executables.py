# SPDX-License-Identifier: Apache-2.0
"""Write executables that replace Slurm's commands.

::

    DIR/squeue, DIR/sinfo      the executables
    DIR/current -> columns-2   the cluster they report; written again, the link moves in one step
    DIR/columns-2/squeue/name  one column: its values, each followed by a NUL byte
    DIR/cluster.json           the moment and the shape of the cluster
    DIR/runs/squeue            one byte for each run
    DIR/faults/squeue          what is to go wrong, if anything
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from slurmscope.core.errors import OutputError
from slurmscope.simulator.cluster.records import SimulatedCluster
from slurmscope.simulator.commands import sacct, sacctmgr, scontrol, sdiag, sinfo, sprio, squeue, sshare
from slurmscope.simulator.commands.call import CURRENT, RUNS, SEPARATOR
from slurmscope.simulator.commands.listing import Command

# All commands that have a fake; each is the COMMAND of the module of its name.
COMMANDS: Mapping[str, Command] = {
    module.COMMAND.name: module.COMMAND for module in (squeue, sinfo, sprio, sshare, scontrol, sdiag, sacctmgr, sacct)
}

_COLUMNS = "columns-"

# The kernel reads no more of a "#!" line than this.
_MAX_SHEBANG_BYTES = 255

_SCRIPT = """\
#!{interpreter} -IS
import os, sys
sys.path.insert(0, {source!r})
from slurmscope.simulator.commands.call import run
from slurmscope.simulator.commands.{command} import COMMAND
sys.exit(run(os.path.dirname(os.path.abspath(__file__)), COMMAND, sys.argv[1:], os.environ))
"""


def write_fake_commands(cluster: SimulatedCluster, directory: Path) -> None:
    """Write fake commands for a cluster into a directory of their own, or give existing ones a new cluster.

    Calls that run meanwhile answer from the old cluster or from the new one, never from both.
    """
    directory = directory.absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / RUNS).mkdir(mode=0o700, exist_ok=True)
        _write_cluster(cluster, directory)
        for command in COMMANDS.values():
            _write_script(command.name, directory)
    except OSError as error:
        raise OutputError(f"cannot write fake commands into {directory}: {error}") from error


def count_runs(directory: Path, command: str) -> int:
    """Count how often a fake command was run."""
    path = directory / RUNS / command
    return path.stat().st_size if path.exists() else 0


def _write_cluster(cluster: SimulatedCluster, directory: Path) -> None:
    generations = sorted(int(path.name.removeprefix(_COLUMNS)) for path in directory.glob(_COLUMNS + "*"))
    number = generations[-1] + 1 if generations else 1
    folder = directory / f"{_COLUMNS}{number}"
    for command in COMMANDS.values():
        _write_columns(cluster, command, folder / command.name)
    about = {"now": cluster.now, "name": cluster.name, "shape": asdict(cluster.shape) if cluster.shape else None}
    _replace_text(directory / "cluster.json", json.dumps(about, indent=2) + "\n", mode=0o400)
    link = directory / (CURRENT + ".new")
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    link.replace(directory / CURRENT)
    # The last generation but this one may still be read by a call that began before the link moved.
    for old in generations[:-1]:
        shutil.rmtree(directory / f"{_COLUMNS}{old}")


def _write_columns(cluster: SimulatedCluster, command: Command, folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True)
    for name in command.columns:
        values = command.column(cluster, name)
        (folder / name).write_bytes(b"".join(value + SEPARATOR for value in values))


def _write_script(command: str, directory: Path) -> None:
    source = str(Path(__file__).absolute().parents[3])
    interpreter = sys.executable
    if len(os.fsencode(interpreter)) + 8 > _MAX_SHEBANG_BYTES or any(character.isspace() for character in interpreter):
        raise OutputError(
            f"no script can name the interpreter {interpreter!r}: its path is too long or has a blank in it"
        )
    text = _SCRIPT.format(interpreter=interpreter, source=source, command=command)
    _replace_text(directory / command, text, mode=0o500)


def _replace_text(path: Path, text: str, *, mode: int) -> None:
    aside = path.with_name(path.name + ".new")
    aside.unlink(missing_ok=True)
    aside.write_text(text, encoding="utf-8")
    aside.chmod(mode)
    aside.replace(path)
