# SPDX-License-Identifier: Apache-2.0
"""Read all pending jobs one by one, with the start that Slurm expects, by one squeue call.

For pending jobs ``StartTime`` is the estimate of the scheduler that ``squeue --start`` prints, and ``tres-alloc`` is
what they request. Pending tasks of an array are one row. Job names are chosen by users, so columns and rows are
separated by a random text that is new for every call.
"""

from __future__ import annotations

import re

from slurmscope.errors import MalformedAnswer
from slurmscope.model.waiting import WaitingJob, WaitingQueue
from slurmscope.sources.slurm.commands import RunCommand
from slurmscope.sources.slurm.json.arrays import parse_tasks
from slurmscope.tres import parse_tres

COLUMNS = (
    "JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "HetJobOffset", "UserName", "Account", "Partition", "QOS",
    "State", "Reason", "SubmitTime", "EligibleTime", "StartTime", "LastSchedEval", "TimeLimit", "NumNodes", "NumCPUs",
    "tres-alloc", "PriorityLong", "Dependency", "Licenses", "Reservation", "Feature", "SchedNodes", "Name",
)  # fmt: skip
MAX_JOBS = 200_000
"""Rows that are kept; Slurm's MaxJobCount is rarely above it."""

_NOTHING = frozenset({"", "N/A", "(null)", "NONE", "None assigned"})
_LIMIT = re.compile(r"(?:(?P<days>[0-9]{1,6})-)?(?P<clock>[0-9]{1,6}(?::[0-9]{2}){0,2})", re.ASCII)
_MAX_TIME = 1 << 33


def read_waiting(run: RunCommand, separator: str, *, now_seconds: float, cluster: str = "") -> WaitingQueue:
    """Run squeue and return the queue; ``now_seconds`` is the time to put on it."""
    return parse_waiting(run("squeue", arguments(separator)), separator, now_seconds=now_seconds, cluster=cluster)


def arguments(separator: str) -> tuple[str, ...]:
    """Return the arguments of one call; a row ends with the mark twice."""
    mark = _mark(separator)
    columns = ",".join(f"{column}:{mark}" for column in COLUMNS)
    return ("--noheader", "--all", "--states=PENDING", "--local", f"--Format={columns}{mark}")


def parse_waiting(answer: bytes, separator: str, *, now_seconds: float, cluster: str = "") -> WaitingQueue:
    """Split rows and columns by the separator alone; an invalid row is counted and skipped."""
    mark = _mark(separator)
    rows = answer.decode("utf-8", "surrogateescape").split(f"{mark}{mark}\n")
    if rows.pop():
        raise MalformedAnswer("squeue: the answer ends in the middle of a row")
    jobs: list[WaitingJob] = []
    for row in rows[:MAX_JOBS]:
        try:
            jobs.append(_parse_row(row.split(mark)))
        except ValueError:
            continue
    return WaitingQueue(
        jobs=tuple(sorted(jobs, key=lambda job: (job.submit_seconds, job.job_id), reverse=True)),
        cluster=cluster,
        taken_at_seconds=now_seconds,
        unreadable_rows=len(rows) - len(jobs),
    )


def parse_limit(text: str) -> int | None:
    """Parse a time limit such as 1-02:00:00 or 30:00 into seconds; None if it is unlimited or not set."""
    found = _LIMIT.fullmatch(text)
    if not found:
        return None
    parts = [int(part) for part in found["clock"].split(":")]
    if found["days"] is not None:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return int(found["days"]) * 86_400 + hours * 3600 + minutes * 60 + seconds
    hours, minutes, seconds = (0, 0, *parts)[-3:]
    return hours * 3600 + minutes * 60 + seconds


def _mark(separator: str) -> str:
    # Begins with a byte that is nowhere else in it, so the end of a name can never be taken for its beginning.
    return f"\x1f{separator}"


def _parse_row(fields: list[str]) -> WaitingJob:
    values = dict(zip(COLUMNS, fields, strict=True))
    tres = parse_tres(_text(values["tres-alloc"]))
    tasks = _text(values["ArrayTaskID"])
    return WaitingJob(
        job_id=int(values["JobID"]),
        name=values["Name"],
        user=values["UserName"],
        account=_text(values["Account"]),
        partitions=tuple(values["Partition"].split(",")),
        qos=_text(values["QOS"]),
        state=values["State"],
        reason=values["Reason"],
        submit_seconds=_need_time(values["SubmitTime"]),
        eligible_seconds=_parse_time(values["EligibleTime"]),
        start_seconds=_parse_time(values["StartTime"]),
        evaluated_seconds=_parse_time(values["LastSchedEval"]),
        time_limit_seconds=parse_limit(values["TimeLimit"]),
        nodes=int(values["NumNodes"]),
        cpus=int(values["NumCPUs"]),
        memory_bytes=tres.memory_bytes,
        gpus=sum(gres.count for gres in tres.gres if gres.name == "gpu"),
        priority=int(values["PriorityLong"]),
        array_job_id=int(values["ArrayJobID"]) if tasks else None,
        tasks=parse_tasks(tasks) if tasks else (),
        tasks_text=tasks,
        het_job_id=_parse_number(values["HetJobID"]) or None,
        het_offset=_parse_number(values["HetJobOffset"]),
        dependency=_text(values["Dependency"]),
        licenses=_text(values["Licenses"]),
        reservation=_text(values["Reservation"]),
        features=_text(values["Feature"]),
        planned_nodes=_text(values["SchedNodes"]),
    )


def _text(value: str) -> str:
    return "" if value in _NOTHING else value


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _parse_time(text: str) -> int | None:
    """Parse seconds since 1970; 0 and texts such as Unknown are None."""
    number = _parse_number(text)
    return number if number and number < _MAX_TIME else None


def _need_time(text: str) -> int:
    if (seconds := _parse_time(text)) is None:
        raise ValueError(f"{text!r} is not a time")
    return seconds
