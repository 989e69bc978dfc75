# SPDX-License-Identifier: Apache-2.0
"""Ask for jobs and nodes by the commands of Slurm, in JSON."""

from __future__ import annotations

import re

from slurmscope.errors import MalformedAnswer
from slurmscope.log import escape
from slurmscope.model.jobs import Jobs
from slurmscope.model.nodes import Nodes
from slurmscope.sources.slurm.commands import RunCommand
from slurmscope.sources.slurm.json import jobs as json_jobs
from slurmscope.sources.slurm.json import nodes as json_nodes
from slurmscope.sources.slurm.squeue import StartWindow

# "slurm 24.11.5", and in Debian "slurm-wlm 22.05.8".
_VERSION = re.compile(rb"slurm\S* ([0-9]{1,3})\.([0-9]{1,2})[.\n]")
_FIRST_SCONTROL_JSON = (23, 2)


class JsonCommands:
    """Run squeue and scontrol, or sinfo where scontrol has no JSON."""

    def __init__(self, run: RunCommand) -> None:
        """Take what runs a command."""
        self._run = run
        self._release: tuple[int, int] | None = None

    def read_jobs(self, window: StartWindow, now_seconds: float, *, with_owners: bool = False) -> Jobs:
        """Ask squeue."""
        answer = self._run("squeue", json_jobs.SQUEUE_ARGUMENTS)
        return json_jobs.parse_jobs(answer, taken_at_seconds=now_seconds, window=window, with_owners=with_owners)

    def read_nodes(self) -> Nodes:
        """Return all nodes from scontrol, or from sinfo for 22.05; the version is checked once."""
        if self._release is None:
            self._release = parse_release(self._run("sinfo", ("--version",)))
        if self._release >= _FIRST_SCONTROL_JSON:
            return json_nodes.parse_nodes(self._run("scontrol", json_nodes.SCONTROL_ARGUMENTS))
        return json_nodes.parse_nodes(self._run("sinfo", json_nodes.SINFO_ARGUMENTS))


def parse_release(answer: bytes) -> tuple[int, int]:
    """Read the release from what a command of Slurm prints as its version."""
    found = _VERSION.match(answer)
    if not found:
        said = escape(answer[:100].decode("utf-8", "replace"))
        raise MalformedAnswer(f"sinfo --version: {said!r} is not a version such as slurm 24.11.5")
    return int(found[1]), int(found[2])
