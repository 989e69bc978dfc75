# SPDX-License-Identifier: Apache-2.0
"""Find the job and the user of a process.

slurmstepd writes its job ID into its process title, which all users may read unless /proc is mounted with hidepid.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path

TITLE = re.compile(rb"slurmstepd: \[([0-9]{1,10})\.[^\]\0]{1,64}\]")
REAL_UID = re.compile(rb"^Uid:\s+([0-9]{1,10})\s", re.MULTILINE)
MOST_BYTES = 1 << 20
# Processes per job that are checked.
MAX_PROCESSES = 16


class ProcessOwners:
    """Read the files of a process that identify its job and user."""

    def __init__(self, procfs_root: Path) -> None:
        """Set the root of /proc."""
        self.refused = 0
        self._root = procfs_root
        self._trusted_uids = (0, os.geteuid())

    def find_stepd(self, pids: Iterable[int]) -> int | None:
        """Return the process that is slurmstepd: it is the oldest in its folder, so the first that is checked."""
        return next((pid for pid in sorted(pids) if self.titled_job(pid) is not None), None)

    def titled_job(self, pid: int) -> int | None:
        """Return the job ID in the title of a slurmstepd; None for any other process.

        Users can give their processes any title, even those of a setuid program: only the real user identifies them.
        """
        match = TITLE.match(self._read(pid, "cmdline"))
        return int(match[1]) if match and self._real_user(pid) in self._trusted_uids else None

    def common_user(self, pids: Iterable[int]) -> int | None:
        """Return the first user other than root: the sleep process of the extern step always runs as root."""
        for pid in sorted(pids)[:MAX_PROCESSES]:
            uid = self._real_user(pid)
            if uid:
                return uid
        return None

    def _real_user(self, pid: int) -> int | None:
        match = REAL_UID.search(self._read(pid, "status"))
        return int(match[1]) if match else None

    def _read(self, pid: int, name: str) -> bytes:
        try:
            with (self._root / str(pid) / name).open("rb", buffering=0) as file:
                return file.read(MOST_BYTES) or b""
        except OSError as error:
            self.refused += error.errno in (errno.EACCES, errno.EPERM)
            return b""
