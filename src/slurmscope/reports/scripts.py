# SPDX-License-Identifier: Apache-2.0
"""Read job scripts for their owners, with what to check in them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from slurmscope.accounting.sacct import read_environment, read_script
from slurmscope.core.errors import SourceError
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.script import JobScript, lint_script, show_environment
from slurmscope.reports.live_cache import LiveCache
from slurmscope.slurm.cluster_names import run_in_cluster
from slurmscope.slurm.command import RunCommand

KNOWN_SECONDS = 600.0
"""How long it is known whether Slurm stores scripts."""

SOON_SECONDS = 1.0
"""How long a page waits for a script that it can do without."""
POLL_SECONDS = 0.02

_FLAGS = re.compile(rb"^AccountingStoreFlags\s*=.*\bjob_script\b", re.MULTILINE)


@dataclass(slots=True)
class _Stored:
    """Whether a cluster stores scripts, and when that was looked up."""

    is_stored: bool = False
    checked_at: float = -KNOWN_SECONDS
    checking: threading.Lock = field(default_factory=threading.Lock)


class JobScripts(Protocol):
    """Read the scripts of jobs: those that Slurm stored, or simulated ones."""

    def read(self, record: JobRecord) -> JobScript | None:
        """Return the script of a job; None if it is not stored. Raises SourceError if accounting cannot be read."""
        ...

    def read_soon(self, record: JobRecord) -> JobScript | None:
        """Return the script of a job; None also where reading it takes longer than a page can wait, or fails."""
        ...

    def is_stored(self, cluster: str = "") -> bool:
        """Return at once whether a cluster stores scripts; without a name it is that of this host."""
        ...


class ScriptReader:
    """Read the scripts of jobs, each at most once in a few seconds; thread-safe."""

    def __init__(self, run: RunCommand, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._clock = clock
        self._cache = LiveCache(self._read)
        self._stored: dict[str, _Stored] = {}

    def read(self, record: JobRecord) -> JobScript | None:
        script = self._cache.get(_key(record))
        return None if script is None else add_findings(script, record)

    def read_soon(self, record: JobRecord) -> JobScript | None:
        key = _key(record)
        for _ in range(round(SOON_SECONDS / POLL_SECONDS)):
            if not self._cache.begin(key):
                break
            time.sleep(POLL_SECONDS)
        try:
            return self.read(record) if self._cache.is_ready(key) else None
        except SourceError:
            return None

    def is_stored(self, cluster: str = "") -> bool:
        """Return at once whether a cluster stores scripts, as far as is known; that is looked up in the background.

        ``cluster`` is one whose controller is read; without a name it is that of this host.
        """
        stored = self._stored.setdefault(cluster, _Stored())
        if self._clock() - stored.checked_at >= KNOWN_SECONDS and stored.checking.acquire(blocking=False):
            threading.Thread(target=self._check, args=(cluster, stored), name="script flags", daemon=True).start()
        return stored.is_stored

    def _check(self, cluster: str, stored: _Stored) -> None:
        try:
            run = run_in_cluster(self._run, cluster) if cluster else self._run
            stored.is_stored = _FLAGS.search(run("scontrol", ("show", "config"))) is not None
        except SourceError:
            # What was known before still holds.
            return
        finally:
            stored.checked_at = self._clock()
            stored.checking.release()

    def _read(self, key: str) -> JobScript | None:
        cluster, shown_id, user = key.split(" ", 2)
        stored = read_script(self._run, cluster, shown_id, user)
        if stored is None:
            return None
        text, is_cut = stored
        environment = show_environment(read_environment(self._run, cluster, shown_id, user))
        return JobScript(text=text, is_cut=is_cut, environment=environment)


def _key(record: JobRecord) -> str:
    return f"{record.cluster} {record.shown_id} {record.user}"


def add_findings(script: JobScript, record: JobRecord) -> JobScript:
    """Return a script with what to check in it, given how it was submitted."""
    return replace(script, findings=lint_script(script.text, record.submit_line))
