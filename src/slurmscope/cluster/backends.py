# SPDX-License-Identifier: Apache-2.0
"""Read jobs and nodes through one interface, whichever backend is configured.

The same cluster gives the same jobs and nodes through every backend, as far as Slurm reports the same; what it does
not is listed in ``tests/e2e/test_backends.py``.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable

from slurmscope.cluster import scontrol_nodes, sinfo, squeue
from slurmscope.cluster.sinfo import Nodes
from slurmscope.cluster.sources import Backend, Sources
from slurmscope.cluster.squeue import Jobs, QueueReader, StartWindow
from slurmscope.core.errors import CommandFailed, CommandTimedOut, MissingExtraError
from slurmscope.exporter.collector import Read, Reading
from slurmscope.slurm.command import RunCommand, SlurmCommands, SlurmSettings, random_separator

MANY_NODES = 2_000
"""With this many nodes in three partitions sinfo 22.05 takes some two seconds of CPU; with 10,000 half a minute."""


class TextCommands:
    """Run the commands of Slurm for columns of text: far cheaper than JSON."""

    def __init__(self, run: RunCommand, make_word: Callable[[], str] = random_separator) -> None:
        """Set the function that runs a command, and the one that makes a random separator."""
        self._run = run
        self._make_word = make_word
        self._is_large = False

    def read_jobs(self, window: StartWindow, now_seconds: float, *, with_owners: bool = False) -> Jobs:
        answer = self._run("squeue", squeue.ARGUMENTS_WITH_IDS if with_owners else squeue.ARGUMENTS)
        return squeue.parse_jobs(answer, taken_at_seconds=now_seconds, window=window, with_owners=with_owners)

    def read_nodes(self) -> Nodes:
        """Query sinfo, or scontrol where there are many nodes: sinfo's time grows with the square of its rows."""
        if self._is_large:
            # The controller may be restarting, or this scontrol knows no nodes: sinfo tells them apart.
            with contextlib.suppress(CommandFailed):
                return self._query_scontrol()
        try:
            nodes = self._query_sinfo()
        except CommandTimedOut:
            if self._is_large:
                raise
            self._is_large = True
            return self._query_scontrol()
        self._is_large = len(nodes.nodes) > MANY_NODES
        return nodes

    def _query_scontrol(self) -> Nodes:
        return scontrol_nodes.parse_nodes(self._run(scontrol_nodes.COMMAND, scontrol_nodes.ARGUMENTS))

    def _query_sinfo(self) -> Nodes:
        """Return all nodes; columns are separated by a random text that cannot occur in a drain reason."""
        separator = self._make_word()
        return sinfo.parse_nodes(self._run("sinfo", sinfo.arguments(separator)), separator)


def _has_package(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def open_backend(
    settings: SlurmSettings, commands: SlurmCommands, *, has_package: Callable[[str], bool] = _has_package
) -> Backend:
    """Return the backend that is set; raise ConfigError or MissingExtraError when it cannot work."""
    if settings.backend == "text":
        return TextCommands(commands.run)
    if not has_package("msgspec"):
        raise MissingExtraError(f"--slurm.backend {settings.backend}", "rest")
    if settings.backend == "json":
        from slurmscope.cluster.json.backends import JsonCommands

        return JsonCommands(commands.run)
    from slurmscope.cluster.json.backends import Slurmrestd

    return Slurmrestd(settings)


def _open_jobs(slurm: Sources) -> Read:
    queue = QueueReader(
        lambda window, now_seconds: slurm.backend.read_jobs(window, now_seconds, with_owners=slurm.with_owners),
        slurm.wall_clock,
    )

    def read() -> Jobs:
        jobs = queue.read()
        slurm.require_all_jobs()
        return jobs

    return read


def _read_nodes(slurm: Sources) -> Nodes:
    return slurm.backend.read_nodes()


JOBS = Reading(
    name="jobs",
    open=_open_jobs,
    older_duration="slurm_job_scrape_duration",
    older_errors=("slurm_job_scrape_error", "job_scrape_errors"),
)
NODES = Reading(
    name="nodes",
    read=_read_nodes,
    older_duration="slurm_node_scrape_duration",
    older_errors=("slurm_node_scrape_error",),
)
