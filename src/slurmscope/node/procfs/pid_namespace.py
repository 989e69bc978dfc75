# SPDX-License-Identifier: Apache-2.0
"""Tell whether the processes of jobs are visible to this process.

In a PID namespace of its own, as in a container without ``--pid=host``, a process sees no process of the host: the
kernel leaves them out of ``cgroup.procs``, so that the cgroup of a running job looks as empty as a leftover.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from slurmscope.core.errors import SourceError
from slurmscope.node.procfs.reader import ProcessReader
from slurmscope.node.procfs.stepd_jobs import COMMAND, DAEMON

# PID_NS_INIT_INO of the kernel's header linux/nsfs.h.
_INITIAL = "pid:[4026531836]"
_MOST_PROCESSES = 20_000


class PidNamespace:
    """The PID namespace of this process, and whether jobs can run in it."""

    def __init__(self, reader: ProcessReader) -> None:
        self._reader = reader
        self._shows_jobs = False

    def shows_jobs(self) -> bool:
        """Return whether processes of jobs are visible, if there are any; True also where that is not known.

        Where slurmd runs in the same container, the namespace is not the initial one, and yet shows its jobs.
        """
        self._shows_jobs = self._shows_jobs or self._find()
        return self._shows_jobs

    def _find(self) -> bool:
        own = self._reader.root / "self"
        try:
            numbers = re.search(r"(?m)^NSpid:(.*)$", (own / "status").read_text("utf-8", "replace"))
            namespace = str((own / "ns" / "pid").readlink())
        except OSError:
            return True
        # With the procfs of the host, this process has a number in each namespace: slurmd there is not in ours.
        if numbers is not None and len(numbers[1].split()) > 1:
            return False
        return namespace == _INITIAL or self._has_slurmd()

    def _has_slurmd(self) -> bool:
        try:
            pids = self._reader.process_ids()
        except SourceError:
            return False
        folders = (self._reader.root / str(pid) for pid in itertools.islice(pids, _MOST_PROCESSES))
        return any(_command(folder) in (COMMAND, DAEMON) for folder in folders)


def _command(folder: Path) -> str:
    try:
        return (folder / "comm").read_text("utf-8", "replace").rstrip("\n")
    except OSError:
        return ""
