# SPDX-License-Identifier: Apache-2.0
"""Answer like sacct 22.05: which jobs ended between two moments, run or wait now, or have these numbers.

Jobs end at a steady pace, for ever, and never in the future: the same window always has the same ends. Known options:
``-a -X -D -n -P -S -E -s -j -o -e -V --local --noconvert --delimiter``; times are ``uts`` and seconds since 1970, and
``-S now`` asks for jobs that have not ended. Without ``-X``, each job that started has one step.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from slurmscope.simulator.cluster.job_states import COMPACT_STATES, ENDED_STATES
from slurmscope.simulator.commands.job_fields import FIELDS, tres_text
from slurmscope.simulator.commands.listing import (
    STANDARD_TIME,
    Command,
    CommandResult,
    Options,
    ReadColumn,
    UsageError,
    encode,
    parse_options,
    refuse,
    render_times,
    version_answer,
)
from slurmscope.slurm.states import WAITING_STATES

if TYPE_CHECKING:
    from slurmscope.simulator.cluster.records import SimulatedCluster, SimulatedJob


_NAME = "sacct"
_OPTIONS = {
    "a": "allusers", "X": "allocations", "D": "duplicates", "n": "noheader", "P": "parsable2", "V": "version",
    "S:": "starttime", "E:": "endtime", "s:": "state", "o:": "format", "local": "local", "delimiter:": "delimiter",
    "j:": "jobs", "e": "helpformat", "noconvert": "noconvert", "M:": "clusters", "L": "allclusters",
}  # fmt: skip
_TIMES = frozenset({"submit", "eligible", "start", "end"})
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
MAX_ELAPSED_SECONDS = 36_000
_MAX_JOB_ID = 60_000_000
_PER_MINUTE = "per-minute"
_CURRENT = "current-"
_MODEL_COLUMNS = (
    "jobname", "user", "uid", "account", "qos", "timelimitraw", "reqtres", "nnodes", "workdir", "partition",
    "alloctres", "nodelist", "memory", "elapsedraw", "cputimeraw",
)  # fmt: skip
_CURRENT_COLUMNS = (
    "jobname", "user", "uid", "account", "qos", "timelimitraw", "reqtres", "nnodes", "workdir", "jobidraw", "jobid",
    "partition", "submit", "eligible", "start", "alloctres", "nodelist", "reason", "state",
)  # fmt: skip
_FIELDS = (
    "JobID", "JobIDRaw", "JobName", "Cluster", "User", "UID", "Account", "Partition", "QOS", "Submit", "Eligible",
    "Start", "End", "TimelimitRaw", "AllocTRES", "ReqTRES", "NodeList", "NNodes", "NTasks", "State", "ExitCode",
    "ElapsedRaw", "CPUTimeRAW", "TotalCPU", "MaxRSS", "Reason", "WorkDir", "SubmitLine",
)  # fmt: skip
_COLUMNS = frozenset(name.lower() for name in _FIELDS)
_CLUSTER = "cluster"
_MODEL_COPIES = (
    "jobname", "user", "uid", "account", "qos", "timelimitraw", "reqtres", "nnodes", "workdir", "partition",
)  # fmt: skip
_STEP_COPIES = ("cluster", "account", "start", "end", "alloctres", "nodelist", "exitcode", "totalcpu")

SacctColumns = dict[str, bytes]


def column(cluster: SimulatedCluster, name: str) -> list[bytes]:
    """Return one column of the jobs that others are modelled on, or of those that have not ended, or a number."""

    if name == _PER_MINUTE:
        return [b"%d" % max(1, len(cluster.jobs) // 60)]
    if name == _CLUSTER:
        return [encode(cluster.name)]
    if name.startswith(_CURRENT):
        field = name.removeprefix(_CURRENT)
        return [encode(current_text(job, field)) for job in cluster.jobs if is_current(job)]
    started = (job for job in cluster.jobs if job.start_time is not None and job.node_names)
    return [encode(model_text(job, name, cluster.now)) for job in islice(started, _MAX_MODELS)]


def respond(
    read: ReadColumn,
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    wall_clock: Callable[[], float] = time.time,
) -> CommandResult:
    """Answer for a window, both its edges included, for the present, or for some jobs."""
    try:
        options = parse_options(argv, _OPTIONS)
        if "version" in options:
            return version_answer()
        if "helpformat" in options:
            return 0, encode("\n".join(_FIELDS) + "\n"), b""
        names = _names(options.values.get("format", "JobID,State,ExitCode"))
        jobs = _choose(read, options, int(wall_clock()))
    except UsageError as error:
        return refuse(_NAME, error)
    rows = list(jobs if "allocations" in options else _with_steps(jobs))
    return 0, _render(rows, names, options.values.get("delimiter", "|"), environment), b""


def _choose(read: ReadColumn, options: Options, now: int) -> Iterable[SacctColumns]:
    given = options.values
    if unknown := {*given.get("clusters", "").split(",")} - {"", read(_CLUSTER)[0].decode()}:
        raise UsageError(f"No cluster '{min(unknown)}' known by database.")
    if not {"parsable2", "noheader"} <= given.keys():
        raise UsageError("only -n and -P are simulated")
    if "jobs" in given:
        return _rows_of(read, given["jobs"], now)
    if given.get("starttime") == "now" and "state" not in given:
        return _current_rows(read)
    if not {"starttime", "endtime", "state"} <= given.keys():
        raise UsageError("only -S, -E and -s together, -S now without -s, or -j are simulated")
    states = _states(given["state"])
    window = _seconds(given["starttime"]), min(_seconds(given["endtime"]), now)
    return (row for row in _rows(read, *window) if row["state"].partition(b" ")[0] in states)


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


def _rows(read: ReadColumn, start: int, end: int) -> Iterator[SacctColumns]:
    """Yield the jobs that ended in the window; job number n ends n steps after the beginning of time."""
    make = _make_rows(read)
    per_minute = int(read(_PER_MINUTE)[0])
    first, beyond = _round_up(start * per_minute, 60), _round_up((end + 1) * per_minute, 60)
    yield from make(range(first, min(beyond, first + _MAX_ROWS)))


def _make_rows(read: ReadColumn) -> Callable[[Iterable[int]], Iterator[SacctColumns]]:
    models = [dict(zip(_MODEL_COLUMNS, values, strict=True)) for values in zip(*map(read, _MODEL_COLUMNS), strict=True)]
    per_minute, (cluster,) = int(read(_PER_MINUTE)[0]), read(_CLUSTER)

    def make(numbers: Iterable[int]) -> Iterator[SacctColumns]:
        for number in numbers if models else ():
            row = _row(number, number * 60 // per_minute, models[number % len(models)])
            yield {**row, "cluster": cluster}

    return make


def _rows_of(read: ReadColumn, given: str, now: int) -> Iterator[SacctColumns]:
    """Yield the jobs of these numbers: those that have not ended, and else the last that ended under the number."""
    if not all(word.isascii() and word.isdecimal() and len(word) < 12 for word in given.split(",")):
        raise UsageError(f"only numbers of jobs are simulated, not {given}")
    wanted = {int(word) for word in given.split(",")}
    current = [row for row in _current_rows(read) if int(row["jobidraw"]) in wanted]
    last = now * int(read(_PER_MINUTE)[0]) // 60
    gone = sorted(wanted - {0} - {int(row["jobidraw"]) for row in current})
    return iter([*current, *_make_rows(read)(last - (last - job_id + 1) % _MAX_JOB_ID for job_id in gone)])


def _current_rows(read: ReadColumn) -> Iterator[SacctColumns]:
    columns = [read(_CURRENT + name) for name in _CURRENT_COLUMNS]
    same = {
        "cluster": read(_CLUSTER)[0], "end": b"Unknown", "exitcode": b"0:0", "elapsedraw": b"0", "cputimeraw": b"0",
        "totalcpu": b"00:00:00", "maxrss": b"", "ntasks": b"", "submitline": b"sbatch job.sh",
    }  # fmt: skip
    for values in zip(*columns, strict=True):
        yield {**same, **dict(zip(_CURRENT_COLUMNS, values, strict=True))}


def _with_steps(jobs: Iterable[SacctColumns]) -> Iterator[SacctColumns]:
    """Put behind each job that started the step of its script."""
    for job in jobs:
        yield job
        if job["start"].isdigit():
            yield {
                **dict.fromkeys(_COLUMNS, b""),
                **{name: job[name] for name in _STEP_COPIES},
                "submit": job["start"], "eligible": job["start"], "maxrss": job.get("step-maxrss", b""),
                "jobid": job["jobid"] + b".batch", "jobidraw": job["jobidraw"] + b".batch", "jobname": b"batch",
                "nnodes": b"1", "ntasks": b"1", "state": job["state"].partition(b" ")[0],
            }  # fmt: skip


def _round_up(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _row(number: int, end: int, model: Mapping[str, bytes]) -> SacctColumns:
    ending = number % (len(_ENDINGS) + 1)
    has_started = ending < len(_ENDINGS)
    state, exit_code = _ENDINGS[ending] if has_started else _PENDING_ENDING
    elapsed = int(model["elapsedraw"]) if has_started else 0
    job_id = b"%d" % (number % _MAX_JOB_ID + 1)
    # Whatever the job is modelled on, this stays: it distinguishes the job from others of its id.
    submit = b"%d" % (end - MAX_ELAPSED_SECONDS - number % 3600)
    row = {
        **{name: model[name] for name in _MODEL_COPIES},
        "jobid": job_id if has_started else job_id + _PENDING_TASKS,
        "jobidraw": job_id,
        "submit": submit,
        "eligible": submit,
        "start": b"%d" % (end - elapsed) if has_started else b"None",
        "end": b"%d" % end,
        "state": state,
        "exitcode": exit_code,
        "elapsedraw": b"%d" % elapsed,
        "cputimeraw": model["cputimeraw"] if has_started else b"0",
        "alloctres": model["alloctres"] if has_started else b"",
        "nodelist": model["nodelist"] if has_started else b"None assigned",
        "reason": b"None",
        "submitline": b"sbatch job.sh",
        "ntasks": b"",
        "maxrss": b"",
    }
    return {**row, **_use(number, model, has_started=has_started)}


def _use(number: int, model: Mapping[str, bytes], *, has_started: bool) -> SacctColumns:
    """Make up what the job used: between a twentieth and nearly all of what it had."""
    if not has_started:
        return {"totalcpu": b"00:00:00"}
    cpu_seconds = int(model["cputimeraw"]) * (5 + number * 37 % 91) / 100
    memory = int(model["memory"]) * (5 + number * 53 % 86) // 100
    return {"totalcpu": _render_cpu_time(cpu_seconds), "step-maxrss": b"%d" % memory}


def _render_cpu_time(seconds: float) -> bytes:
    """Write a CPU time as sacct does: 03:04.567, 02:03:04 or 1-02:03:04."""
    minutes, rest = divmod(seconds, 60)
    hours, minute = divmod(int(minutes), 60)
    if not hours:
        return b"%02d:%06.3f" % (minute, rest)
    days, hour = divmod(hours, 24)
    return (b"%d-" % days if days else b"") + b"%02d:%02d:%02d" % (hour, minute, int(rest))


def _render(
    rows: Sequence[SacctColumns], names: Sequence[str], delimiter: str, environment: Mapping[str, str]
) -> bytes:
    time_format = environment.get("SLURM_TIME_FORMAT", STANDARD_TIME)
    columns = [[row[name] for row in rows] for name in names]
    shown = [
        render_times(values, time_format) if name in _TIMES else values
        for name, values in zip(names, columns, strict=True)
    ]
    return b"".join(encode(delimiter).join(fields) + b"\n" for fields in zip(*shown, strict=True))


COMMAND = Command(
    name=_NAME,
    columns=(*_MODEL_COLUMNS, *(_CURRENT + name for name in _CURRENT_COLUMNS), _PER_MINUTE, _CLUSTER),
    column=column,
    respond=respond,
)
answer = COMMAND.answer


_NOTHING = frozenset({"", "(null)", "N/A"})


def model_text(job: SimulatedJob, name: str, now: int) -> str:
    """Return one text about a job that ended jobs are modelled on."""
    if name == "elapsedraw":
        return str(_elapsed(job, now))
    if name == "cputimeraw":
        return str(_elapsed(job, now) * job.cpus)
    return _MODEL_TEXTS[name](job)


def current_text(job: SimulatedJob, name: str) -> str:
    """Return one text about a job that runs or waits."""
    return _CURRENT_TEXTS[name](job)


def is_current(job: SimulatedJob) -> bool:
    """Return whether accounting has no end time for the job."""
    return job.state not in ENDED_STATES


def _elapsed(job: SimulatedJob, now: int) -> int:
    start = now if job.start_time is None else job.start_time
    return max(0, min(now - start, (job.end_time or now) - start, MAX_ELAPSED_SECONDS))


def _as_squeue(name: str, nothing: str = "") -> Callable[[SimulatedJob], str]:
    """Print a field as squeue does, but for what is not known."""

    def text(job: SimulatedJob) -> str:
        shown = FIELDS[name].text(job)
        return nothing if shown in _NOTHING else shown

    return text


def _limit_text(job: SimulatedJob) -> str:
    return "UNLIMITED" if job.time_limit_seconds is None else str(job.time_limit_seconds // 60)


def _has_started(job: SimulatedJob) -> bool:
    return job.start_time is not None and job.state not in WAITING_STATES


def _state_text(job: SimulatedJob) -> str:
    """Return the state in accounting's words; it has fewer states than the controller."""
    if not _has_started(job):
        return "PENDING"
    return "SUSPENDED" if job.state == "SUSPENDED" else "RUNNING"


_COMMON: Mapping[str, Callable[[SimulatedJob], str]] = {
    "jobname": lambda job: job.name,
    "user": lambda job: job.user.name,
    "uid": lambda job: str(job.user.uid),
    "account": lambda job: job.account or "",
    "qos": lambda job: job.qos,
    "timelimitraw": _limit_text,
    "reqtres": tres_text,
    "nnodes": lambda job: str(job.nodes),
    "workdir": lambda job: f"/home/{job.user.name}",
}
_MODEL_TEXTS: Mapping[str, Callable[[SimulatedJob], str]] = {
    **_COMMON,
    "partition": lambda job: job.partitions[0],
    "alloctres": tres_text,
    "nodelist": _as_squeue("nodelist"),
    "memory": lambda job: str(job.memory_per_node_bytes),
}
_CURRENT_TEXTS: Mapping[str, Callable[[SimulatedJob], str]] = {
    **_COMMON,
    "jobidraw": lambda job: str(job.id),
    "jobid": _as_squeue("jobarrayid"),
    "partition": lambda job: ",".join(job.partitions),
    "submit": lambda job: str(job.submit_time),
    "eligible": lambda job: str(job.submit_time),
    "start": lambda job: str(job.start_time) if _has_started(job) else "Unknown",
    "alloctres": lambda job: tres_text(job) if _has_started(job) else "",
    "nodelist": lambda job: _as_squeue("nodelist")(job) if _has_started(job) else "None assigned",
    "reason": lambda job: job.reason,
    "state": _state_text,
}
