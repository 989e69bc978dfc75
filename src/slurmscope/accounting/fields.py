# SPDX-License-Identifier: Apache-2.0
"""Declare where each field of a job record comes from: its column of sacct, and its columns of our database views.

A new column needs a field of ``JobRecord`` and one entry here.

Names, command lines and directories may hold anything but a NUL, including line ends. The separator is a random word,
new for each call; the first and the last column hold neither line ends nor text from users. So the rows are found by
counting separators, whatever is between them.

::

    12|12|relax|ada|1001|...|COMPLETED
    12.batch|12.batch|batch|||...|COMPLETED
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from slurmscope.accounting import rows
from slurmscope.accounting.rows import DatabaseRow, decode_text, decode_time
from slurmscope.core.errors import MalformedAnswer
from slurmscope.jobs.js1 import MAX_COMMENT_CHARS, PREFIX
from slurmscope.jobs.submit_line import size_request
from slurmscope.slurm.text import count_tasks

SacctRow = Mapping[str, str]

_NO_TIMES = frozenset({2**32 - 1, 2**32 - 2})
_NUMBER = re.compile(r"[0-9]{1,15}\Z")
_EXIT_CODE = re.compile(r"([0-9]{1,10}):([0-9]{1,10})\Z")
_ARRAY_TASK = re.compile(r"([0-9]{1,10})_([0-9]{1,10})\Z")
_ARRAY_REST = re.compile(r"([0-9]{1,10})_\[")
_HET_PART = re.compile(r"([0-9]{1,10})\+([0-9]{1,10})\Z")
_SACCT_CPU_TIME = re.compile(
    r"(?:(?:(?P<days>\d{1,6})-)?(?P<hours>\d{1,2}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d{1,2}(?:\.\d{1,6})?)\Z"
)


def split_rows(text: str, mark: str, width: int) -> Iterator[list[str]]:
    """Yield the cells of each row; line ends in a row are kept, except in its first and last cell."""
    if not text:
        return
    cells = text.split(mark)
    if not text.endswith("\n") or len(cells) == 1 or (len(cells) - 1) % (width - 1):
        raise MalformedAnswer("sacct: the output was cut, or does not have the requested columns")
    first = cells[0]
    for start in range(1, len(cells), width - 1):
        *middle, joint = cells[start : start + width - 1]
        last, _, following = joint.partition("\n")
        yield [first, *middle, last]
        first = following


def parse_state(text: str) -> str:
    """Parse a state, without the user id that may follow it: CANCELLED by 1001."""
    return text.partition(" ")[0]


def parse_canceller(text: str) -> int | None:
    """Return the user id that follows a state: 1001 of CANCELLED by 1001."""
    _, is_named, uid = text.partition("CANCELLED by ")
    return parse_count(uid) if is_named else None


def parse_time(text: str) -> int | None:
    """Parse a time; Unknown, None, 0 and Slurm's numbers for no value are None."""
    seconds = parse_count(text)
    return seconds if seconds and seconds not in _NO_TIMES else None


def parse_submit_time(text: str) -> int:
    """Parse the submit time, which every job has."""
    seconds = parse_time(text)
    if seconds is None:
        raise ValueError(f"{text[:40]!r} is not a submit time")
    return seconds


def parse_job_id(text: str) -> int:
    if not _NUMBER.match(text):
        raise ValueError(f"{text[:40]!r} is not a job ID")
    return int(text)


def parse_count(text: str) -> int | None:
    """Parse a whole number; None for any other text."""
    return int(text) if _NUMBER.match(text) else None


def parse_time_limit(text: str) -> int | None:
    """Parse minutes into seconds; None for UNLIMITED and Partition_Limit."""
    minutes = parse_count(text)
    return 60 * minutes if minutes else None


def parse_exit_status(text: str) -> tuple[int | None, int | None]:
    """Parse exit code and signal; nothing is printed for a step whose node failed before it could report."""
    if not text:
        return None, None
    found = _EXIT_CODE.match(text)
    if not found:
        raise ValueError(f"{text[:40]!r} is not an exit code such as 0:9")
    return int(found[1]), int(found[2])


def parse_array_ids(shown_id: str) -> tuple[int | None, int | None]:
    """Parse 12_3 into array and task; the pending rest of an array, 12_[4-9], has no task id."""
    if found := _ARRAY_TASK.match(shown_id):
        return int(found[1]), int(found[2])
    if found := _ARRAY_REST.match(shown_id):
        return int(found[1]), None
    return None, None


def parse_array_tasks(shown_id: str) -> int | None:
    """Count the tasks of the pending rest of an array, such as 12_[4-9%2]; None for anything else."""
    try:
        return count_tasks(shown_id.partition("_[")[2].removesuffix("]")) if _ARRAY_REST.match(shown_id) else None
    except ValueError:
        return None


def parse_het_ids(shown_id: str) -> tuple[int | None, int | None]:
    """Parse 12+1 into heterogeneous job and offset."""
    found = _HET_PART.match(shown_id)
    return (int(found[1]), int(found[2])) if found else (None, None)


def parse_cpu_time(text: str) -> float:
    """Parse 1-02:03:04, 02:03:04 or 03:04.567; raise ValueError for anything else."""
    found = _SACCT_CPU_TIME.match(text)
    if not found:
        raise ValueError(f"{text[:40]!r} is not a time such as 02:03:04")
    days, hours, minutes = (int(found[name] or 0) for name in ("days", "hours", "minutes"))
    return ((24 * days + hours) * 60 + minutes) * 60 + float(found["seconds"])


def parse_suspended(text: str) -> int:
    """Parse 00:00:07 or 1-01:01:01; 0 for any other text."""
    return int(parse_cpu_time(text)) if _SACCT_CPU_TIME.match(text) else 0


def parse_jobstats_comment(text: str) -> str:
    """Return an AdminComment that jobstats wrote; an empty text for any other one."""
    return text if text.startswith(PREFIX) and len(text) <= MAX_COMMENT_CHARS else ""


@dataclass(frozen=True, slots=True)
class Field:
    """Declare where accounting has one field of a record."""

    name: str
    sacct: str
    parse: Callable[[str], Any]
    """Parse the cell of sacct."""
    view: Mapping[str, str]
    """Columns of the view that it needs, with their SQL expressions."""
    decode: Callable[[DatabaseRow], Any]
    """Decode the row of the view."""
    is_later: bool = False
    """Whether older releases of sacct do not have the column."""
    is_optional: bool = False
    """Whether the database of some releases does not have the columns."""


def _text(
    name: str, sacct: str, column: str, source: str, *, is_later: bool = False, is_optional: bool = False
) -> Field:
    return Field(name, sacct, str, {column: source}, lambda row: decode_text(row[column]), is_later, is_optional)


def _time(name: str, sacct: str, column: str, table: str = "j") -> Field:
    return Field(name, sacct, parse_time, {column: f"{table}.{column}"}, lambda row: decode_time(row[column]))


def _number(name: str, sacct: str, parse: Callable[[str], Any], source: str) -> Field:
    """Declare a number that both sources have as it is."""
    column = source.partition(".")[2]
    return Field(name, sacct, parse, {column: source}, lambda row: row[column])


def _pair(
    names: tuple[str, str],
    sacct: str,
    parse: Callable[[str], tuple[Any, Any]],
    view: Mapping[str, str],
    decode: Callable[[DatabaseRow], tuple[Any, Any]],
) -> tuple[Field, Field]:
    """Declare two fields that are written as one."""
    first = Field(names[0], sacct, lambda cell: parse(cell)[0], view, lambda row: decode(row)[0])
    return first, Field(names[1], sacct, lambda cell: parse(cell)[1], view, lambda row: decode(row)[1])


_ARRAY = {"id_array_job": "j.id_array_job", "id_array_task": "j.id_array_task"}
_HET = {"het_job_id": "j.het_job_id", "het_job_offset": "j.het_job_offset"}
_EXIT = ("exit_code", "exit_signal")

JOB_FIELDS = (
    _number("job_id", "JobIDRaw", parse_job_id, "j.id_job"),
    *_pair(("array_job_id", "array_task_id"), "JobID", parse_array_ids, _ARRAY, rows.decode_array_ids),
    # The view of the database does not have it; the queue does.
    Field("array_tasks", "JobID", parse_array_tasks, {}, lambda _row: None),
    *_pair(("het_job_id", "het_offset"), "JobID", parse_het_ids, _HET, rows.decode_het_ids),
    # In the database, each cluster has its own view.
    Field("cluster", "Cluster", str, {}, lambda row: row["cluster"]),
    _text("name", "JobName", "job_name", "j.job_name"),
    _text("user", "User", "user_name", "a.user"),
    _number("uid", "UID", parse_count, "j.id_user"),
    _text("account", "Account", "account", "COALESCE(NULLIF(a.acct, ''), j.account)"),
    _text("partition", "Partition", "partition_name", "j.`partition`"),
    _text("qos", "QOS", "qos_name", "q.name"),
    Field("state", "State", parse_state, {"state": "j.state"}, lambda row: rows.name_state(row["state"])),
    _number("submit_seconds", "Submit", parse_submit_time, "j.time_submit"),
    _time("eligible_seconds", "Eligible", "time_eligible"),
    _time("start_seconds", "Start", "time_start"),
    _time("end_seconds", "End", "time_end"),
    Field(
        "suspended_seconds", "Suspended", parse_suspended, {"time_suspended": "j.time_suspended"},
        rows.decode_suspended, is_later=True,
    ),
    Field(
        "time_limit_seconds", "TimelimitRaw", parse_time_limit, {"timelimit": "j.timelimit"},
        lambda row: rows.decode_time_limit(row["timelimit"]),
    ),
    _text("node_list", "NodeList", "nodelist", "j.nodelist"),
    _text("allocated", "AllocTRES", "tres_alloc", "j.tres_alloc"),
    _text("requested", "ReqTRES", "tres_req", "j.tres_req"),
    *_pair(_EXIT, "ExitCode", parse_exit_status, {"exit_code": "j.exit_code"}, rows.decode_exit_status),
    replace(_number("restarts", "Restarts", parse_count, "j.restart_cnt"), is_later=True, is_optional=True),
    Field("reason", "Reason", str, {"state_reason_prev": "j.state_reason_prev"}, rows.name_reason, is_optional=True),
    _text("submit_line", "SubmitLine", "submit_line", "j.submit_line", is_later=True, is_optional=True),
    _text("work_dir", "WorkDir", "work_dir", "j.work_dir", is_optional=True),
    _text("stdout", "StdOut", "std_out", "j.std_out", is_later=True, is_optional=True),
    _text("stderr", "StdErr", "std_err", "j.std_err", is_later=True, is_optional=True),
    Field(
        "jobstats_comment", "AdminComment", parse_jobstats_comment, {"admin_comment": "j.admin_comment"},
        lambda row: parse_jobstats_comment(decode_text(row["admin_comment"])), is_later=True, is_optional=True,
    ),
    _text("failed_node", "FailedNode", "failed_node", "j.failed_node", is_later=True, is_optional=True),
    Field(
        "cancelled_by_uid", "State", parse_canceller, {"kill_requid": "j.kill_requid"}, rows.decode_canceller,
        is_optional=True,
    ),
)  # fmt: skip
"""Fields of ``JobRecord``, and the texts that have its nodes and resources: node_list, allocated, requested."""

_CPU_TIME = {name: f"s.{name}" for name in ("user_sec", "user_usec", "sys_sec", "sys_usec")}
_USAGE = {"tres_usage_in_max": "s.tres_usage_in_max"}

STEP_FIELDS = (
    Field(
        "name", "JobIDRaw", lambda cell: cell.partition(".")[2], {"id_step": "s.id_step"},
        lambda row: rows.name_step(row["id_step"]),
    ),
    Field("state", "State", parse_state, {"state": "s.state"}, lambda row: rows.name_state(row["state"])),
    _time("start_seconds", "Start", "time_start", "s"),
    _time("end_seconds", "End", "time_end", "s"),
    _number("tasks", "NTasks", parse_count, "s.task_cnt"),
    _number("nodes", "NNodes", parse_count, "s.nodes_alloc"),
    Field("cpu_seconds", "TotalCPU", parse_cpu_time, _CPU_TIME, rows.decode_cpu_seconds),
    Field("max_rss_bytes", "MaxRSS", parse_count, _USAGE, rows.decode_max_rss),
    Field("is_sampled", "MaxRSS", bool, _USAGE, lambda row: bool(row["tres_usage_in_max"])),
    *_pair(_EXIT, "ExitCode", parse_exit_status, {"exit_code": "s.exit_code"}, rows.decode_exit_status),
    _text("node_list", "NodeList", "nodelist", "s.nodelist"),
    Field(
        "request", "SubmitLine", size_request, {"submit_line": "s.submit_line"},
        lambda row: size_request(decode_text(row["submit_line"])), is_later=True, is_optional=True,
    ),
)  # fmt: skip
"""Fields of ``StepRecord``, and whether the step was sampled."""

LAST_COLUMN = "State"
_SACCT_COLUMNS = {each.sacct: each.is_later for each in (*JOB_FIELDS, *STEP_FIELDS) if each.sacct != LAST_COLUMN}
COLUMNS = tuple(column for column, is_later in _SACCT_COLUMNS.items() if not is_later)
"""Columns that every release of sacct has; the state comes after all others."""
LATER_COLUMNS = tuple(column for column, is_later in _SACCT_COLUMNS.items() if is_later)
"""Columns to request where sacct has them: 20.11 lacks SubmitLine and Restarts, 22.05 Restarts, 23.11 StdOut."""


def columns_of_view(declared: Iterable[Field]) -> dict[str, str]:
    return {column: expression for each in declared for column, expression in each.view.items()}
