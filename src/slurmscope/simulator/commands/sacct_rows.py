# SPDX-License-Identifier: Apache-2.0
"""List jobs as sacct does: those that ended between two moments, that have these IDs, or that a user had.

Jobs end at a steady pace, for ever, and never in the future: the same window always has the same ends. A fake command
runs this from a table of the jobs in the queue: ended jobs are made after the ``model`` rows, and the ``current`` rows
are jobs that have not ended. Without ``--allocations``, each job that started has one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from slurmscope.simulator.commands.call import NUL, encode

SacctRow = dict[str, bytes]

# Most jobs end well, the others in every way there is.
_ENDINGS = (
    *((b"COMPLETED", b"0:0"),) * 28, *((b"FAILED", b"1:0"),) * 4, (b"FAILED", b"0:11"),
    *((b"CANCELLED by 10001", b"0:0"),) * 2, (b"TIMEOUT", b"0:0"), (b"OUT_OF_MEMORY", b"0:125"), (b"NODE_FAIL", b"0:0"),
    (b"PREEMPTED", b"0:0"), (b"REQUEUED", b"0:0"), (b"BOOT_FAIL", b"0:0"),
)  # fmt: skip
# The last of them never started: it was one of five tasks that waited.
_PENDING_ENDING = (b"CANCELLED by 0", b"0:0")
_PENDING_TASKS = b"_[1-5]"

_MAX_ROWS = 1_000_000
_MAX_JOB_ID = 60_000_000
MAX_ELAPSED_SECONDS = 36_000
_STEP_COPIES = ("cluster", "account", "start", "end", "alloctres", "nodelist", "exitcode", "totalcpu")


def pack_rows(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> bytes:
    """Store a table; what a row does not have is empty."""
    cells = [" ".join(columns), *(row.get(column, "") for row in rows for column in columns)]
    return NUL.join(map(encode, cells))


def unpack_rows(content: bytes) -> list[SacctRow]:
    """Read a table."""
    names, *cells = content.split(NUL)
    columns = names.decode().split(" ")
    width = len(columns)
    return [dict(zip(columns, cells[at : at + width], strict=True)) for at in range(0, len(cells), width)]


def list_jobs(content: bytes, argv: Sequence[str], values: Mapping[str, str], now: int) -> bytes:
    """Return the response to a call for a window, for IDs or for a user."""
    rows = unpack_rows(content)
    models = [row for row in rows if row["kind"] == b"model"]
    current = [row for row in rows if row["kind"] == b"current"]
    if "jobs" in values:
        jobs = _with_ids(models, current, {int(word) for word in values["jobs"].split(",")}, now)
    elif "user" in values:
        jobs = _of_user(models, current, values, now)
    else:
        option = next(word for word in argv if word.startswith("--state="))
        states = encode(option.removeprefix("--state=")).split(b",")
        ended = _ended(models, _seconds(values["starttime"]), min(_seconds(values["endtime"]), now))
        jobs = (row for row in ended if row["state"].partition(b" ")[0] in states)
    columns = argv[-1].partition("=")[2].split(",")
    return render_jobs(jobs, columns, encode(values["delimiter"]), has_steps="--allocations" not in argv)


def render_jobs(jobs: Iterable[SacctRow], columns: Sequence[str], delimiter: bytes, *, has_steps: bool) -> bytes:
    """Print these columns of the jobs, and of their steps."""
    names = [column.lower() for column in columns]
    rows = _with_steps(jobs) if has_steps else jobs
    return b"".join(delimiter.join(row[name] for name in names) + b"\n" for row in rows)


def _seconds(given: str) -> int:
    return int(given.removeprefix("uts"))


def _numbers(models: Sequence[SacctRow], start: int, end: int) -> range:
    """Return the numbers of the jobs that end in a window; job number n ends n steps after the beginning of time."""
    per_minute = int(models[0]["perminute"]) if models else 0
    first, beyond = -(-start * per_minute // 60), -(-(end + 1) * per_minute // 60)
    return range(first, min(beyond, first + _MAX_ROWS))


def _ended(models: Sequence[SacctRow], start: int, end: int) -> Iterator[SacctRow]:
    return (_ended_row(number, models) for number in _numbers(models, start, end))


def _with_ids(
    models: Sequence[SacctRow], current: Iterable[SacctRow], wanted: set[int], now: int
) -> Iterator[SacctRow]:
    """Yield the jobs that have not ended, and else the last that ended with the ID."""
    found = [row for row in current if int(row["jobidraw"]) in wanted]
    yield from found
    if models:
        last = now * int(models[0]["perminute"]) // 60
        for job_id in sorted(wanted - {int(row["jobidraw"]) for row in found}):
            yield _ended_row(last - (last - job_id + 1) % _MAX_JOB_ID, models)


def _of_user(
    models: Sequence[SacctRow], current: Iterable[SacctRow], values: Mapping[str, str], now: int
) -> Iterator[SacctRow]:
    """Yield the jobs of a user that were pending or running at any time in a window."""
    user, until = encode(values["user"]), _seconds(values["endtime"])
    numbers = _numbers(models, _seconds(values["starttime"]), now)
    own = (_ended_row(number, models) for number in numbers if models[number % len(models)]["user"] == user)
    yield from (row for row in own if int(row["submit"]) <= until)
    yield from (row for row in current if row["user"] == user and int(row["submit"]) <= until)


def _with_steps(jobs: Iterable[SacctRow]) -> Iterator[SacctRow]:
    """Put behind each job that started the step of its script."""
    for job in jobs:
        yield job
        if job["start"].isdigit():
            yield {
                **dict.fromkeys(job, b""),
                **{name: job[name] for name in _STEP_COPIES},
                "submit": job["start"], "eligible": job["start"], "maxrss": job["stepmaxrss"],
                "jobid": job["jobid"] + b".batch", "jobidraw": job["jobidraw"] + b".batch", "jobname": b"batch",
                "nnodes": b"1", "ntasks": b"1", "state": job["state"].partition(b" ")[0],
            }  # fmt: skip


def _ended_row(number: int, models: Sequence[SacctRow]) -> SacctRow:
    model = models[number % len(models)]
    end = number * 60 // int(model["perminute"])
    ending = number % (len(_ENDINGS) + 1)
    if ending == len(_ENDINGS):
        elapsed, (state, exit_code) = 0, _PENDING_ENDING
    else:
        elapsed, (state, exit_code) = int(model["elapsedraw"]), _ENDINGS[ending]
    job_id = b"%d" % (number % _MAX_JOB_ID + 1)
    # Whatever the job is modelled on, this stays: it distinguishes the job from others of its id.
    submit = b"%d" % (end - MAX_ELAPSED_SECONDS - number % 3600)
    row = {
        **model, "jobid": job_id, "jobidraw": job_id, "submit": submit, "eligible": submit,
        "start": b"%d" % (end - elapsed), "end": b"%d" % end, "state": state, "exitcode": exit_code,
    }  # fmt: skip
    return _never_started(row) if ending == len(_ENDINGS) else {**row, **_use(number, model)}


def _never_started(row: SacctRow) -> SacctRow:
    return {
        **row, "jobid": row["jobid"] + _PENDING_TASKS, "start": b"None", "elapsedraw": b"0", "cputimeraw": b"0",
        "alloctres": b"", "nodelist": b"None assigned", "totalcpu": b"00:00:00",
    }  # fmt: skip


def _use(number: int, model: Mapping[str, bytes]) -> SacctRow:
    """Make up what the job used: between a twentieth and nearly all of what it had."""
    cpu_seconds = int(model["cputimeraw"]) * (5 + number * 37 % 91) / 100
    memory = int(model["memory"]) * (5 + number * 53 % 86) // 100
    return {"totalcpu": _render_cpu_time(cpu_seconds), "stepmaxrss": b"%d" % memory}


def _render_cpu_time(seconds: float) -> bytes:
    """Write a CPU time as sacct does: 03:04.567, 02:03:04 or 1-02:03:04."""
    minutes, rest = divmod(seconds, 60)
    hours, minute = divmod(int(minutes), 60)
    if not hours:
        return b"%02d:%06.3f" % (minute, rest)
    days, hour = divmod(hours, 24)
    return (b"%d-" % days if days else b"") + b"%02d:%02d:%02d" % (hour, minute, int(rest))
