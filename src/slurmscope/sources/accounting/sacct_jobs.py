# SPDX-License-Identifier: Apache-2.0
"""Ask sacct for jobs: by number, by the time they ended, or those that run and wait now.

sacct queries slurmdbd only: the controller has no load. Long stretches of time are read in windows, each one call,
which grow while little happens and shrink where much does or where sacct is too slow.

sacct omits jobs that were never eligible (held ones), unless they are requested by ID or have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from slurmscope.errors import CommandTimedOut
from slurmscope.model.job_record import JobRecord
from slurmscope.sources.accounting.job_fields import COLUMNS, LAST_COLUMN, LATER_COLUMNS
from slurmscope.sources.accounting.job_records import ENDINGS, parse_records
from slurmscope.sources.accounting.settings import ALL_CLUSTERS
from slurmscope.sources.slurm.cluster_names import ClusterNames, read_all_names, read_own_name
from slurmscope.sources.slurm.commands import RunCommand, random_separator

COMMAND = "sacct"
MAX_JOB_ID = 2**32 - 1
_IDS_PER_CALL = 500
_FIRST_WINDOW_SECONDS = 3600
_LONGEST_WINDOW_SECONDS = 86_400
_SHORTEST_WINDOW_SECONDS = 60
_FEW_JOBS = 5_000
_MANY_JOBS = 20_000
# After any start of a job: the last second that sacct accepts.
_FOREVER = 2**32 - 2


class SacctAccounting:
    """Read the accounting of this host's cluster, or of some others; safe to use from several threads."""

    def __init__(
        self,
        run: RunCommand,
        require_all_jobs: Callable[[], None] | None = None,
        *,
        clusters: Sequence[str] = (),
    ) -> None:
        """Take what runs a command of Slurm, such as ``SlurmCommands.run``, and the clusters as in the settings.

        ``require_all_jobs`` raises SourceError if jobs of others are hidden; it is called after each call of sacct.
        """
        self._run = run
        self._require_all_jobs = require_all_jobs or (lambda: None)
        self._later_columns: tuple[str, ...] | None = None
        self._which = _option(tuple(clusters))
        self._names = ClusterNames(partial(_read_names, run, tuple(clusters)))

    def clusters(self) -> tuple[str, ...]:
        """Return the names of the clusters."""
        return self._names.get()

    def of(self, cluster: str) -> SacctAccounting:
        """Return the accounting of one cluster."""
        if self._which == "--local":
            return self
        return SacctAccounting(self._run, self._require_all_jobs, clusters=(cluster,))

    def read_jobs(self, job_ids: Sequence[int]) -> tuple[JobRecord, ...]:
        """Return every run of these jobs; the ID of an array or heterogeneous job selects all its parts."""
        possible = sorted({job_id for job_id in job_ids if 0 < job_id < MAX_JOB_ID})
        found: dict[tuple[int, int, str, str], JobRecord] = {}
        for first in range(0, len(possible), _IDS_PER_CALL):
            some = possible[first : first + _IDS_PER_CALL]
            for record in self._ask("--jobs=" + ",".join(map(str, some))):
                found[record.job_id, record.submit_seconds, record.state, record.cluster] = record
        return tuple(found[key] for key in sorted(found))

    def read_ended(self, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield runs that ended in this time, both edges included, window by window."""
        states = "--state=" + ",".join(sorted(ENDINGS))
        start, length = since_seconds, _FIRST_WINDOW_SECONDS
        while start <= until_seconds:
            end = min(start + length - 1, until_seconds)
            try:
                records = self._ask(f"--starttime=uts{start}", f"--endtime=uts{end}", states)
            except CommandTimedOut:
                if length <= _SHORTEST_WINDOW_SECONDS:
                    raise
                length = max(_SHORTEST_WINDOW_SECONDS, length // 8)
                continue
            yield from records
            start, length = end + 1, _next_length(length, len(records))

    def read_current(self) -> Iterator[JobRecord]:
        """Yield jobs that run or wait now, but for those that never were eligible."""
        for record in self._ask("--starttime=now", f"--endtime=uts{_FOREVER}"):
            if record.state not in ENDINGS:
                yield record

    def read_user(self, user: str, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield the runs of a user that were pending or running at any time in this period."""
        yield from self._ask(f"--user={user}", f"--starttime=uts{since_seconds}", f"--endtime=uts{until_seconds}")

    def _ask(self, *which: str) -> tuple[JobRecord, ...]:
        columns = (*COLUMNS, *self._known_later_columns(), LAST_COLUMN)
        mark = f"|{random_separator()}|"
        # With --allusers, sacct would ignore --user.
        arguments = (
            *(() if which[0].startswith("--user=") else ("--allusers",)),
            "--duplicates",  # every run of a job that was requeued
            self._which,
            "--noheader",
            "--noconvert",  # 65785856, not 62.74M
            "--parsable2",
            f"--delimiter={mark}",
            *which,
            "--format=" + ",".join(columns),
        )
        answer = self._run(COMMAND, arguments)
        self._require_all_jobs()
        return parse_records(answer, columns, mark)

    def _known_later_columns(self) -> tuple[str, ...]:
        """Query once which columns this sacct has; an unknown column would fail the whole call."""
        if self._later_columns is None:
            known = set(self._run(COMMAND, ["--helpformat"]).decode("utf-8", "replace").lower().split())
            self._later_columns = tuple(name for name in LATER_COLUMNS if name.lower() in known)
        return self._later_columns


def _option(clusters: tuple[str, ...]) -> str:
    if not clusters:
        return "--local"
    return "--allclusters" if clusters == (ALL_CLUSTERS,) else f"--clusters={','.join(clusters)}"


def _read_names(run: RunCommand, clusters: tuple[str, ...]) -> tuple[str, ...]:
    if not clusters:
        return (read_own_name(run),)
    return read_all_names(run) if clusters == (ALL_CLUSTERS,) else clusters


def _next_length(length: int, jobs: int) -> int:
    if jobs < _FEW_JOBS:
        return min(2 * length, _LONGEST_WINDOW_SECONDS)
    return max(length // 2, _SHORTEST_WINDOW_SECONDS) if jobs > _MANY_JOBS else length
