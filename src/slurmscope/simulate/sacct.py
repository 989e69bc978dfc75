# SPDX-License-Identifier: Apache-2.0
"""Answer like sacct 22.05 the question which jobs ended between two moments.

Jobs end at a steady pace, for ever, and never in the future: the same window always has the same ends. Known options:
``-a -X -D -n -P -S -E -s -o -V --local --delimiter``; times are ``uts`` and seconds since 1970.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from slurmscope.simulate.job_states import COMPACT_STATES
from slurmscope.simulate.listing import Answer, Command, ReadColumn, UsageError, parse_options, refuse, version_answer
from slurmscope.simulate.table import STANDARD_TIME, encode, render_times

if TYPE_CHECKING:
    from slurmscope.simulate.records import Job, SimulatedCluster

_NAME = "sacct"
_OPTIONS = {
    "a": "allusers", "X": "allocations", "D": "duplicates", "n": "noheader", "P": "parsable2", "V": "version",
    "S:": "starttime", "E:": "endtime", "s:": "state", "o:": "format", "local": "local", "delimiter:": "delimiter",
}  # fmt: skip
_TIMES = frozenset({"submit", "start", "end"})
_UTS = re.compile(r"uts([0-9]{7,12})\Z")

# Most jobs end well, the others in every way there is.
_ENDINGS = (
    *((b"COMPLETED", b"0:0"),) * 28, *((b"FAILED", b"1:0"),) * 4, (b"FAILED", b"0:11"),
    *((b"CANCELLED by 10001", b"0:0"),) * 2, (b"TIMEOUT", b"0:0"), (b"OUT_OF_MEMORY", b"0:125"), (b"NODE_FAIL", b"0:0"),
    (b"PREEMPTED", b"0:0"), (b"REQUEUED", b"0:0"), (b"BOOT_FAIL", b"0:0"),
)  # fmt: skip
# The last of them never started: it was one of five tasks that waited.
_PENDING_ENDING = (b"CANCELLED by 0", b"0:0")
_PENDING_TASKS = b"_[1-5]"

_MAX_MODELS = 2000
_MAX_ROWS = 1_000_000
_MAX_ELAPSED_SECONDS = 36_000
_MAX_JOB_ID = 60_000_000
_PER_MINUTE = "per-minute"
_MODEL_COLUMNS = ("partition", "account", "alloctres", "elapsedraw", "cputimeraw")
_COLUMNS = (
    "jobid", "jobidraw", "submit", "start", "end", "partition", "account", "state", "exitcode", "elapsedraw",
    "cputimeraw", "alloctres",
)  # fmt: skip


def column(cluster: SimulatedCluster, name: str) -> list[bytes]:
    """Return one column of the jobs that others are modelled on, or how many jobs end in a minute."""
    if name == _PER_MINUTE:
        return [b"%d" % max(1, len(cluster.jobs) // 60)]
    started = (job for job in cluster.jobs if job.start_time is not None and job.node_names)
    return [encode(_model_text(job, name, cluster.now)) for job in islice(started, _MAX_MODELS)]


def _model_text(job: Job, name: str, now: int) -> str:
    from slurmscope.simulate.job_fields import tres_text

    start = now if job.start_time is None else job.start_time
    elapsed = max(0, min(now - start, (job.end_time or now) - start, _MAX_ELAPSED_SECONDS))
    return {
        "partition": job.partitions[0],
        "account": job.account or "",
        "alloctres": tres_text(job),
        "elapsedraw": str(elapsed),
        "cputimeraw": str(elapsed * job.cpus),
    }[name]


def respond(
    read: ReadColumn,
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    wall_clock: Callable[[], float] = time.time,
) -> Answer:
    """Answer for a window, both its edges included."""
    try:
        options = parse_options(argv, _OPTIONS)
        if "version" in options:
            return version_answer()
        if not {"parsable2", "noheader", "starttime", "endtime", "state"} <= options.values.keys():
            raise UsageError("only -n and -P with -S, -E and -s are simulated")
        names = _names(options.values.get("format", "JobID,State,ExitCode"))
        window = _seconds(options.values["starttime"]), min(_seconds(options.values["endtime"]), int(wall_clock()))
    except UsageError as error:
        return refuse(_NAME, error)
    states = _states(options.values["state"])
    rows = [row for row in _rows(read, *window) if row["state"].partition(b" ")[0] in states]
    return 0, _render(rows, names, options.values.get("delimiter", "|"), environment), b""


def _names(given: str) -> list[str]:
    names = [name.partition("%")[0].lower() for name in given.split(",") if name]
    for name in names:
        if name not in _COLUMNS:
            raise UsageError(f'Invalid field requested: "{name}"')
    return names


def _states(given: str) -> frozenset[bytes]:
    long_names = {compact: state for state, compact in COMPACT_STATES.items()}
    return frozenset(encode(long_names.get(word, word)) for word in given.upper().split(","))


def _seconds(given: str) -> int:
    found = _UTS.match(given)
    if not found:
        raise UsageError(f"only times such as uts1794733163 are simulated, not {given}")
    return int(found[1])


def _rows(read: ReadColumn, start: int, end: int) -> Iterator[dict[str, bytes]]:
    """Yield the jobs that ended in the window; job number n ends n steps after the beginning of time."""
    models = [dict(zip(_MODEL_COLUMNS, values, strict=True)) for values in zip(*map(read, _MODEL_COLUMNS), strict=True)]
    per_minute = int(read(_PER_MINUTE)[0])
    first, beyond = _round_up(start * per_minute, 60), _round_up((end + 1) * per_minute, 60)
    for number in range(first, min(beyond, first + _MAX_ROWS)) if models else ():
        yield _row(number, number * 60 // per_minute, models[number % len(models)])


def _round_up(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _row(number: int, end: int, model: Mapping[str, bytes]) -> dict[str, bytes]:
    ending = number % (len(_ENDINGS) + 1)
    has_started = ending < len(_ENDINGS)
    state, exit_code = _ENDINGS[ending] if has_started else _PENDING_ENDING
    elapsed = int(model["elapsedraw"]) if has_started else 0
    job_id = b"%d" % (number % _MAX_JOB_ID + 1)
    return {
        "jobid": job_id if has_started else job_id + _PENDING_TASKS,
        "jobidraw": job_id,
        # Whatever the job is modelled on, this stays: it tells the job from others of its id.
        "submit": b"%d" % (end - _MAX_ELAPSED_SECONDS - number % 3600),
        "start": b"%d" % (end - elapsed) if has_started else b"None",
        "end": b"%d" % end,
        "partition": model["partition"],
        "account": model["account"],
        "state": state,
        "exitcode": exit_code,
        "elapsedraw": b"%d" % elapsed,
        "cputimeraw": model["cputimeraw"] if has_started else b"0",
        "alloctres": model["alloctres"] if has_started else b"",
    }


def _render(
    rows: Sequence[Mapping[str, bytes]], names: Sequence[str], delimiter: str, environment: Mapping[str, str]
) -> bytes:
    time_format = environment.get("SLURM_TIME_FORMAT", STANDARD_TIME)
    columns = [[row[name] for row in rows] for name in names]
    shown = [
        render_times(values, time_format) if name in _TIMES else values
        for name, values in zip(names, columns, strict=True)
    ]
    return b"".join(encode(delimiter).join(fields) + b"\n" for fields in zip(*shown, strict=True))


COMMAND = Command(name=_NAME, columns=(*_MODEL_COLUMNS, _PER_MINUTE), column=column, respond=respond)
answer = COMMAND.answer
