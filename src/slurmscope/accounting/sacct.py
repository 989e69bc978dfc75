# SPDX-License-Identifier: Apache-2.0
"""Read jobs, and their scripts, from accounting: with sacct, unless a database is configured.

sacct queries slurmdbd only: the controller has no load. Long stretches of time are read in windows, each one call,
which grow while little happens and shrink where much does or where sacct is too slow.

sacct omits jobs that were never eligible (held ones), unless they are requested by ID or have ended.

Slurm stores them if AccountingStoreFlags of slurm.conf has ``job_script`` and ``job_env``. slurmdbd shows them to the
owner of the job and to operators. One job of one user is requested at a time: what follows the heading is their own
text, and a job ID that was used again for another user's job does not show that one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from slurmscope.accounting.fields import COLUMNS, LAST_COLUMN, LATER_COLUMNS
from slurmscope.accounting.records import ENDINGS, parse_records
from slurmscope.accounting.settings import ALL_CLUSTERS, AccountingSettings
from slurmscope.core.errors import CommandFailed, CommandTimedOut
from slurmscope.jobs.record import JobAccounting, JobRecord
from slurmscope.jobs.runs import join_resized, whole_runs
from slurmscope.slurm.cluster_names import NAME, ClusterNames, read_all_names, read_own_name
from slurmscope.slurm.command import RunCommand, random_separator
from slurmscope.slurm.config import SLURMDBD, JobVisibility

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
        return self._names.get()

    def of(self, cluster: str) -> SacctAccounting:
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
        return tuple(join_resized([found[key] for key in sorted(found)]))

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
            yield from whole_runs(records, self.read_jobs)
            start, length = end + 1, _next_length(length, len(records))

    def read_current(self) -> Iterator[JobRecord]:
        """Yield jobs that run or wait now, but for those that never were eligible."""
        for record in whole_runs(self._ask("--starttime=now", f"--endtime=uts{_FOREVER}"), self.read_jobs):
            if record.state not in ENDINGS:
                yield record

    def read_user(self, user: str, since_seconds: int, until_seconds: int) -> Iterator[JobRecord]:
        """Yield the runs of a user that were pending or running at any time in this period."""
        period = (f"--starttime=uts{since_seconds}", f"--endtime=uts{until_seconds}")
        yield from whole_runs(self._ask(f"--user={user}", *period), self.read_jobs)

    def _ask(self, *which: str) -> tuple[JobRecord, ...]:
        columns = (*COLUMNS, *self._known_later_columns(), LAST_COLUMN)
        mark = f"|{random_separator()}|"
        answer = self._run(COMMAND, arguments(self._which, mark, columns, *which))
        self._require_all_jobs()
        return parse_records(answer, columns, mark)

    def _known_later_columns(self) -> tuple[str, ...]:
        """Query once which columns this sacct has; an unknown column would fail the whole call."""
        if self._later_columns is None:
            known = set(self._run(COMMAND, ["--helpformat"]).decode("utf-8", "replace").lower().split())
            self._later_columns = tuple(name for name in LATER_COLUMNS if name.lower() in known)
        return self._later_columns


def arguments(clusters: str, mark: str, columns: Sequence[str], *which: str) -> tuple[str, ...]:
    """Return the arguments of sacct; ``clusters`` and ``which`` are the options that choose the jobs."""
    # With --allusers, sacct would ignore --user.
    return (
        *(() if which[0].startswith("--user=") else ("--allusers",)),
        "--duplicates",  # every run of a job that was requeued
        clusters,
        "--noheader",
        "--noconvert",  # 65785856, not 62.74M
        "--parsable2",
        f"--delimiter={mark}",
        *which,
        "--format=" + ",".join(columns),
    )


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


LIMIT_BYTES = 256 * 1024
"""How much of a script is read; what users keep in scripts is far shorter, but programs also make some."""

_HEADING = re.compile(rb"[^\n]{1,200}\n-{20,200}\n")
_NONE = b"NONE"
_USER = re.compile(r"[A-Za-z0-9_.@+-]{1,256}")
"""Without a comma, which separates users."""
_UNKNOWN_OPTION = re.compile(r"unrecognized option|invalid option|unknown option", re.IGNORECASE)


def read_script(run: RunCommand, cluster: str, shown_id: str, user: str) -> tuple[str, bool] | None:
    """Return the script of a job and whether it was cut; None if Slurm did not store it, or does not show it."""
    body = _read(run, cluster, shown_id, user, "--batch-script")
    if body is None:
        return None
    return body[:LIMIT_BYTES].decode("utf-8", "replace"), len(body) > LIMIT_BYTES


def read_environment(run: RunCommand, cluster: str, shown_id: str, user: str) -> tuple[str, ...]:
    """Return the lines of the environment with which a job was submitted; none if it is not stored."""
    body = _read(run, cluster, shown_id, user, "--env-vars")
    return () if body is None else tuple(body[:LIMIT_BYTES].decode("utf-8", "replace").split("\n"))


def _read(run: RunCommand, cluster: str, shown_id: str, user: str, what: str) -> bytes | None:
    if not _USER.fullmatch(user) or not NAME.match(cluster):
        return None
    try:
        answer = run(COMMAND, (f"--clusters={cluster}", f"--user={user}", f"--jobs={shown_id}", what))
    except CommandFailed as error:
        if _UNKNOWN_OPTION.search(str(error)):  # before Slurm 21.08
            return None
        raise
    heading = _HEADING.match(answer)
    body = answer[heading.end() :] if heading else b""
    return None if body.strip() in {b"", _NONE} else body


def open_accounting(settings: AccountingSettings, run: RunCommand, *, must_see_all: bool = False) -> JobAccounting:
    """Return the configured source of job records; ``run`` runs a Slurm command, as ``SlurmCommands.run`` does.

    With ``must_see_all``, reads raise CommandRefused if sacct hides jobs of others from this user.
    No query is sent yet, and there is nothing to close.
    """
    if not settings.uses_database:
        visibility = JobVisibility(run, SLURMDBD) if must_see_all else None
        return SacctAccounting(run, visibility.require if visibility else None, clusters=settings.clusters)
    from slurmscope.accounting.database import DatabaseAccounting

    return DatabaseAccounting(settings)
