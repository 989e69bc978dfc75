# SPDX-License-Identifier: Apache-2.0
"""Read the jobs that ended within a stretch of time with one sacct call.

With ``--state`` and states that a job can only end in, sacct returns the records whose end lies in the
window, both edges included, whether or not the job was ever eligible; slurmdbd finds them by an index over
end times. ``uts`` times are seconds since 1970: local times are ambiguous for an hour each autumn. None of
the columns holds text that a user can choose freely, and the separator is new for each call.

sacct queries slurmdbd only: the controller has no load from it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from slurmscope.errors import MalformedAnswer
from slurmscope.model.completions import EndedJob
from slurmscope.model.job_states import ENDED_STATES, REQUEUED, REVOKED
from slurmscope.tres import parse_tres

COMMAND = "sacct"
COLUMNS = (
    "JobID", "JobIDRaw", "Submit", "Start", "End", "Partition", "Account", "State", "ExitCode", "ElapsedRaw",
    "CPUTimeRAW", "AllocTRES",
)  # fmt: skip

# Left out: RESIZING ends no job, and the record that follows has the time of the whole run again;
# REVOKED is the copy of a job that another cluster of the federation ran.
STATES = tuple(sorted(ENDED_STATES - {REVOKED} | {REQUEUED}))

_NUMBER = re.compile(r"[0-9]{1,15}\Z")
_EXIT_CODE = re.compile(r"([0-9]{1,10}):([0-9]{1,10})\Z")
# Printed as nothing when no node reported one; the state says how the job ended.
_NO_EXIT_CODE = "0:0"
_INDEXES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?(?=[,%\].]|\Z)")

# Thousands of jobs have few sets of resources.
_CACHED_TEXTS = 4096


def arguments(start: int, end: int, separator: str) -> tuple[str, ...]:
    """Return the arguments of sacct for jobs that ended from ``start`` to ``end``, in seconds since 1970.

    ``separator`` is a random word of letters and digits, new for each call.
    """
    return (
        "--allusers",
        "--allocations",
        "--duplicates",
        "--local",
        "--noheader",
        "--parsable2",
        f"--delimiter={_mark(separator)}",
        f"--starttime=uts{start}",
        f"--endtime=uts{end}",
        "--state=" + ",".join(STATES),
        "--format=" + ",".join(COLUMNS),
    )


def parse_ended_jobs(answer: bytes, separator: str) -> tuple[tuple[EndedJob, ...], int]:
    """Read the answer to :func:`arguments` with the same separator; return the jobs and the count of unreadable rows.

    An invalid row is skipped, but an answer without a single valid row is an error: the next
    window would begin after it, and all its jobs would be lost.
    """
    if answer and not answer.endswith(b"\n"):
        raise MalformedAnswer("sacct: the answer ends in the middle of a line")
    rows = answer.decode("utf-8", "surrogateescape").split("\n")[:-1]
    mark = _mark(separator)
    jobs = [job for job in (_parse_row(row.split(mark)) for row in rows) if job is not None]
    if rows and not jobs:
        raise MalformedAnswer(f"sacct: none of {len(rows)} rows has the {len(COLUMNS)} requested columns")
    return tuple(jobs), len(rows) - len(jobs)


def _mark(separator: str) -> str:
    return f"|{separator}|"


def _parse_row(fields: list[str]) -> EndedJob | None:
    """Return the job of one row, or None when it is not to be understood."""
    if len(fields) != len(COLUMNS):
        return None
    shown_id, job_id, submit, start, end, partition, account, state, exit_text, elapsed, cpu_time, tres = fields
    exit_code = _EXIT_CODE.match(exit_text or _NO_EXIT_CODE)
    if not exit_code or not state or not all(map(_NUMBER.match, (job_id, submit, end, elapsed, cpu_time))):
        return None
    return EndedJob(
        job_id=int(job_id),
        submit_time=int(submit),
        end_time=int(end),
        # A job that never started may still name all the partitions it could have started in.
        partition=partition.partition(",")[0],
        account=account,
        # Who cancelled a job comes after the word: CANCELLED by 1001.
        state=state.partition(" ")[0],
        exit_code=int(exit_code[1]),
        exit_signal=int(exit_code[2]),
        # Seen from 22.05: one that never started has a start, but no allocation (cancelled before accounting knew
        # of it), or the allocation of an earlier run, but no start ("None": requeued, then cancelled).
        elapsed_seconds=int(elapsed) if tres and _NUMBER.match(start) else None,
        cpu_seconds=int(cpu_time),
        gpus=_count_gpus(tres),
        tasks=_count_tasks(shown_id),
    )


@lru_cache(maxsize=_CACHED_TEXTS)
def _count_gpus(tres: str) -> int | None:
    try:
        return sum(gres.count for gres in parse_tres(tres).gres if gres.name == "gpu")
    except ValueError:  # a resource spelled in a new way costs the GPU seconds of its job, not the job
        return None


def _count_tasks(shown_id: str) -> int:
    """Count the tasks of ``7_[1-3,9]``; of a list that was cut (``1,3...``) only those that are left of it."""
    _, bracket, indexes = shown_id.partition("_[")
    if not bracket:
        return 1
    return max(1, sum(_count_range(*found) for found in _INDEXES.findall(indexes.partition("%")[0])))


def _count_range(first: str, last: str, step: str) -> int:
    return max(0, int(last) - int(first)) // int(step or "1") + 1 if last else 1
