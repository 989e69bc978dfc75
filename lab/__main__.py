# SPDX-License-Identifier: Apache-2.0
"""Command a lab from the shell: up, status, env, down."""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lab.errors import LabError
from lab.slurm import SlurmLab

DEFAULT_FOLDER = Path(__file__).resolve().parent.parent / ".lab"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one command and give the exit status."""
    options = _parse(arguments)
    try:
        COMMANDS[options.command](options.folder)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0


def up(folder: Path) -> None:
    """Start a lab and leave it running."""
    begin = time.monotonic()
    SlurmLab(folder, progress=lambda line: print(f"{time.monotonic() - begin:5.1f} s  {line}", flush=True)).start()
    option = "" if folder.resolve() == DEFAULT_FOLDER else f" --folder {shlex.quote(str(folder.resolve()))}"
    print(f'\nNow type:  eval "$(python -m lab env{option})"; squeue\nEnd it by: python -m lab down{option}')


def status(folder: Path) -> None:
    """Show the daemons and the nodes."""
    lab = SlurmLab.attach(folder)
    pids = lab.pids
    for name in lab.daemon_names:
        print(f"{name:16} {pids.get(name, 'ended')}")
    print(lab.run("sinfo"), end="")


def env(folder: Path) -> None:
    """Print shell lines that point Slurm's commands at the lab."""
    for name, value in SlurmLab.attach(folder).environment.items():
        print(f"export {name}={shlex.quote(value)}")


def down(folder: Path) -> None:
    """End the lab and remove its folder."""
    SlurmLab.attach(folder).destroy()
    print("ended; its cgroups and its folder are removed")


COMMANDS = {"up": up, "status": status, "env": env, "down": down}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab", description="A real Slurm cluster on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function in COMMANDS.items():
        command = commands.add_parser(name, help=function.__doc__)
        command.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="where the lab lives (%(default)s)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
