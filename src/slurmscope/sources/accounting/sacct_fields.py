# SPDX-License-Identifier: Apache-2.0
"""Read the columns of sacct into records of jobs with their steps.

Names, command lines and folders may hold anything but a NUL, line ends included. The separator is a word that nobody
knew before the call; the first and the last column hold neither line ends nor anything that users write. So the rows
are found again by counting separators, whatever is between them.

::

    12|12|relax|ada|1001|...|COMPLETED
    12.batch|12.batch|batch|||...|COMPLETED
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from slurmscope.errors import MalformedAnswer
from slurmscope.log import fields
from slurmscope.model.job_record import JobRecord, StepRecord
from slurmscope.sources.accounting.job_records import RESIZED, AccountingRow, AccountingStep, make_record, make_step

COLUMNS = (
    "JobIDRaw", "JobID", "JobName", "Cluster", "User", "UID", "Account", "Partition", "QOS", "Submit", "Eligible",
    "Start", "End", "TimelimitRaw", "AllocTRES", "ReqTRES", "NodeList", "NNodes", "NTasks", "ExitCode", "TotalCPU",
    "MaxRSS", "Reason", "WorkDir",
)  # fmt: skip
"""Columns that every release has; State is asked for behind all others."""
LATER_COLUMNS = ("Suspended", "SubmitLine", "Restarts")
"""Columns that are asked for where sacct knows them: 20.11 has neither of the last two, 22.05 no Restarts."""
LAST_COLUMN = "State"

logger = logging.getLogger(__name__)

_NUMBER = re.compile(r"[0-9]{1,15}\Z")
_EXIT_CODE = re.compile(r"([0-9]{1,10}):([0-9]{1,10})\Z")
_ARRAY_TASK = re.compile(r"([0-9]{1,10})_([0-9]{1,10})\Z")
_ARRAY_REST = re.compile(r"([0-9]{1,10})_\[")
_HET_PART = re.compile(r"([0-9]{1,10})\+([0-9]{1,10})\Z")
_CPU_TIME = re.compile(
    r"(?:(?:(?P<days>\d{1,6})-)?(?P<hours>\d{1,2}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d{1,2}(?:\.\d{1,6})?)\Z"
)

SacctRow = Mapping[str, str]


def parse_records(answer: bytes, columns: Sequence[str], mark: str) -> tuple[JobRecord, ...]:
    """Read a whole answer; a row that is not to be understood costs itself and is logged.

    Bytes that are no UTF-8 become U+FFFD: everybody behind us writes UTF-8.
    """
    text = answer.decode("utf-8", "replace")
    rows = [dict(zip(columns, cells, strict=True)) for cells in split_rows(text, mark, len(columns))]
    unreadable: list[str] = []
    records = tuple(_fold(rows, unreadable))
    if unreadable:
        if not records:
            raise MalformedAnswer(f"sacct: none of {len(rows)} rows could be read, such as that of {unreadable[0]}")
        logger.warning(
            "rows of sacct could not be read", extra=fields("sacct rows", rows=len(unreadable), first=unreadable[0])
        )
    return records


def split_rows(text: str, mark: str, width: int) -> Iterator[list[str]]:
    """Yield the cells of each row; line ends inside of a row, but for its first and last cell, are kept."""
    if not text:
        return
    cells = text.split(mark)
    if not text.endswith("\n") or len(cells) == 1 or (len(cells) - 1) % (width - 1):
        raise MalformedAnswer("sacct: the answer was cut, or does not have the columns that were asked for")
    first = cells[0]
    for start in range(1, len(cells), width - 1):
        *middle, joint = cells[start : start + width - 1]
        last, _, following = joint.partition("\n")
        yield [first, *middle, last]
        first = following


def _fold(rows: Iterable[SacctRow], unreadable: list[str]) -> Iterator[JobRecord]:
    """Put steps into the job that stands before them."""
    told: AccountingRow | None = None
    steps: list[StepRecord] = []
    for row in rows:
        number, _, step_name = row["JobIDRaw"].partition(".")
        try:
            if step_name:
                if told is not None and number == str(told.job_id):
                    steps.append(_read_step(row, step_name))
                continue
            if told is not None:
                yield make_record(told, steps)
            told, steps = None, []
            told = _read_job(row) if row[LAST_COLUMN] != RESIZED else None
        except ValueError:
            unreadable.append(row["JobIDRaw"][:40])
    if told is not None:
        yield make_record(told, steps)


def _read_job(row: SacctRow) -> AccountingRow:
    exit_code, exit_signal = _exit(row["ExitCode"])
    submit = _moment(row["Submit"])
    if submit is None:
        raise ValueError("a job without a time of submission")
    return AccountingRow(
        cluster=row["Cluster"],
        job_id=_whole(row["JobIDRaw"]),
        name=row["JobName"],
        user=row["User"],
        uid=_count(row["UID"]),
        account=row["Account"],
        partition=row["Partition"],
        qos=row["QOS"],
        # Who cancelled it comes after the word: CANCELLED by 1001.
        state=row["State"].partition(" ")[0],
        submit_seconds=submit,
        eligible_seconds=_moment(row["Eligible"]),
        start_seconds=_moment(row["Start"]),
        end_seconds=_moment(row["End"]),
        time_limit_minutes=_count(row["TimelimitRaw"]),  # or UNLIMITED, Partition_Limit
        node_list=row["NodeList"],
        allocated=row["AllocTRES"],
        asked=row["ReqTRES"],
        exit_code=exit_code,
        exit_signal=exit_signal,
        suspended_seconds=_read_suspended(row.get("Suspended", "")),
        restarts=_count(row.get("Restarts", "")),
        reason=row["Reason"],
        submit_line=row.get("SubmitLine", ""),
        work_dir=row["WorkDir"],
        **_parents(row["JobID"]),
    )


def _parents(shown_id: str) -> dict[str, int]:
    """Read 12_3 and 12+1. What is left of an array that waits, 12_[4-9], is one record without a task number."""
    if found := _ARRAY_TASK.match(shown_id):
        return {"array_job_id": int(found[1]), "array_task_id": int(found[2])}
    if found := _ARRAY_REST.match(shown_id):
        return {"array_job_id": int(found[1])}
    if found := _HET_PART.match(shown_id):
        return {"het_job_id": int(found[1]), "het_offset": int(found[2])}
    return {}


def _read_step(row: SacctRow, name: str) -> StepRecord:
    exit_code, exit_signal = _exit(row["ExitCode"])
    return make_step(
        AccountingStep(
            name=name,
            state=row["State"].partition(" ")[0],
            start_seconds=_moment(row["Start"]),
            end_seconds=_moment(row["End"]),
            tasks=_count(row["NTasks"]),
            nodes=_count(row["NNodes"]),
            cpu_seconds=parse_cpu_time(row["TotalCPU"]),
            max_rss_bytes=_count(row["MaxRSS"]) or 0,
            is_sampled=bool(row["MaxRSS"]),
            exit_code=exit_code,
            exit_signal=exit_signal,
        )
    )


def parse_cpu_time(text: str) -> float:
    """Read 1-02:03:04, 02:03:04 or 03:04.567; raises ValueError for anything else."""
    found = _CPU_TIME.match(text)
    if not found:
        raise ValueError(f"{text[:40]!r} is not a time such as 02:03:04")
    days, hours, minutes = (int(found[name] or 0) for name in ("days", "hours", "minutes"))
    return ((24 * days + hours) * 60 + minutes) * 60 + float(found["seconds"])


def _read_suspended(text: str) -> int:
    """Read 00:00:07 or 1-01:01:01; what is no time is none."""
    return int(parse_cpu_time(text)) if _CPU_TIME.match(text) else 0


def _exit(text: str) -> tuple[int, int]:
    found = _EXIT_CODE.match(text)
    if not found:
        raise ValueError(f"{text[:40]!r} is not an exit code such as 0:9")
    return int(found[1]), int(found[2])


def _moment(text: str) -> int | None:
    """Read a time; None and Unknown are none, and neither is 0."""
    return (_count(text) or None) if text not in ("Unknown", "None", "") else None


def _whole(text: str) -> int:
    if not _NUMBER.match(text):
        raise ValueError(f"{text[:40]!r} is not a number")
    return int(text)


def _count(text: str) -> int | None:
    return int(text) if _NUMBER.match(text) else None
