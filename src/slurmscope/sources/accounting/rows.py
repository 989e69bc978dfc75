# SPDX-License-Identifier: Apache-2.0
"""Read rows of our views in Slurm's accounting database into records of jobs, as sacct would show them.

The database holds numbers where sacct prints words: states, reasons, resources, exit codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from slurmscope.model.job_record import JobRecord, StepRecord
from slurmscope.model.job_states import BASE_STATES, SUSPENDED
from slurmscope.sources.accounting.job_records import RESIZED, AccountingRow, AccountingStep, make_record, make_step

DatabaseRow = Mapping[str, Any]

NOW = "UNIX_TIMESTAMP()"
"""Column with the moment of the answer by the clock of the server, which is asked for beside those of the job view."""

_NO_VALUE = 2**32 - 2
_UNLIMITED = 2**32 - 1
_NO_AMOUNT = 2**64 - 2
_MEMORY_ID = 2
_AMOUNT = re.compile(r"(?<![^,])([0-9]{1,10})=([0-9]{1,20})(?![^,])")

# What a run is called that was interrupted, whatever it was before.
_STATE_BITS = ((10, "REQUEUED"), (11, "REQUEUE_HOLD"), (12, "SPECIAL_EXIT"), (13, RESIZED), (19, "REVOKED"),
               (20, "REQUEUE_FED"), (21, "RESV_DEL_HOLD"))  # fmt: skip
_STEP_NAMES = {-6: "interactive", -5: "batch", -4: "extern", -3: "pending"}
# The beginning of a list that only ever grew at its end; of the limits that follow, 23.11 renamed some.
_REASONS = (
    "None", "Priority", "Dependency", "Resources", "PartitionNodeLimit", "PartitionTimeLimit", "PartitionDown",
    "PartitionInactive", "JobHeldAdmin", "BeginTime", "Licenses", "AssociationJobLimit", "AssociationResourceLimit",
    "AssociationTimeLimit", "Reservation", "ReqNodeNotAvail", "JobHeldUser", "FrontEndDown", "SchedDefer",
    "PartitionDown", "NodeDown", "BadConstraints", "SystemFailure", "JobLaunchFailure", "NonZeroExitCode", "TimeLimit",
    "InactiveLimit", "InvalidAccount", "InvalidQOS", "QOSUsageThreshold", "QOSJobLimit", "QOSResourceLimit",
    "QOSTimeLimit", "BlockMaxError", "BlockFreeAction", "Cleaning", "Prolog", "QOSNotAllowed", "AccountNotAllowed",
    "DependencyNeverSatisfied",
)  # fmt: skip
_LATER_REASONS = {
    71: "JobHoldMaxRequeue", 72: "JobArrayTaskLimit", 167: "DeadLine", 178: "PartitionConfig", 179: "AccountingPolicy",
    181: "OutOfMemory", 182: "MaxMemPerLimit", 198: "ReservationDeleted",
}  # fmt: skip


def read_record(
    cluster: str, row: DatabaseRow, step_rows: Iterable[DatabaseRow], tres_names: Mapping[int, str]
) -> JobRecord | None:
    """Return the record of one row of the job view, or None for one that ended no job."""
    state = name_state(row["state"])
    if state == RESIZED:
        return None
    code, signal = read_status(row["exit_code"])
    is_part = bool(row["het_job_id"]) and row["het_job_offset"] != _NO_VALUE
    told = AccountingRow(
        cluster=cluster,
        job_id=row["id_job"],
        name=_text(row["job_name"]),
        user=_text(row["user_name"]),
        uid=row["id_user"],
        account=_text(row["account"]),
        partition=_text(row["partition_name"]),
        qos=_text(row["qos_name"]),
        state=state,
        submit_seconds=row["time_submit"],
        eligible_seconds=_moment(row["time_eligible"]),
        start_seconds=_moment(row["time_start"]),
        end_seconds=_moment(row["time_end"]),
        time_limit_minutes=None if row["timelimit"] in (_NO_VALUE, _UNLIMITED) else row["timelimit"],
        node_list=_text(row["nodelist"]),
        allocated=name_amounts(_text(row["tres_alloc"]), tres_names),
        asked=name_amounts(_text(row["tres_req"]), tres_names),
        exit_code=code,
        exit_signal=signal,
        suspended_seconds=_read_suspended(row, state),
        array_job_id=row["id_array_job"] or None,
        array_task_id=row["id_array_task"] if row["id_array_job"] and row["id_array_task"] != _NO_VALUE else None,
        het_job_id=row["het_job_id"] if is_part else None,
        het_offset=row["het_job_offset"] if is_part else None,
        restarts=row["restart_cnt"],
        reason=_name_reason(row["state_reason_prev"] or 0),
        submit_line=_text(row["submit_line"]),
        work_dir=_text(row["work_dir"]),
    )
    ordered = sorted(step_rows, key=lambda step: (step["id_step"], step["step_het_comp"]))
    return make_record(told, [read_step(step) for step in ordered])


def read_step(row: DatabaseRow) -> StepRecord:
    """Return the record of one row of the step view."""
    code, signal = read_status(row["exit_code"])
    usage = _text(row["tres_usage_in_max"])
    return make_step(
        AccountingStep(
            name=_STEP_NAMES.get(row["id_step"], str(row["id_step"])),
            state=name_state(row["state"]),
            start_seconds=_moment(row["time_start"]),
            end_seconds=_moment(row["time_end"]),
            tasks=row["task_cnt"],
            nodes=row["nodes_alloc"],
            cpu_seconds=row["user_sec"] + row["sys_sec"] + (row["user_usec"] + row["sys_usec"]) / 1e6,
            max_rss_bytes=dict(_pairs(usage)).get(_MEMORY_ID, 0),
            is_sampled=bool(usage),
            exit_code=code,
            exit_signal=signal,
        )
    )


def name_state(number: int) -> str:
    """Return the word for a state; one that later releases may add is UNKNOWN."""
    for bit, word in _STATE_BITS:
        if number & 1 << bit:
            return word
    base = number & 0xFF
    return BASE_STATES[base] if base < len(BASE_STATES) else "UNKNOWN"


def read_status(status: int) -> tuple[int, int]:
    """Split what wait() returned into exit code and signal.

    As in sacct, 128 is taken from a code above it: it comes from a shell that tells of a signal.
    """
    signal, code = status & 0x7F, status >> 8 & 0xFF
    return code - 128 if code >= 128 else code, 0 if signal == 0x7F else signal


def name_amounts(text: str, names: Mapping[int, str]) -> str:
    """Write ``1=4,2=200,1001=2`` in words: ``cpu=4,mem=200,gres/gpu=2``; what has no name or amount is left out."""
    return ",".join(f"{names[number]}={amount}" for number, amount in _pairs(text) if number in names)


def name_tres(rows: Iterable[Sequence[Any]]) -> dict[int, str]:
    """Read rows of number, type and name of resources: 1, cpu, '' and 1001, gres, gpu."""
    return {number: f"{_text(kind)}/{_text(name)}" if name else _text(kind) for number, kind, name in rows}


def _read_suspended(row: DatabaseRow, state: str) -> int:
    """Return how long a job was suspended, up to now for one that still is.

    As long as it is suspended, the table holds the moment since which it would have been, all times taken together.
    """
    told = row["time_suspended"] or 0
    return max(0, row[NOW] - told) if state == SUSPENDED and told else told


def _pairs(text: str) -> Iterator[tuple[int, int]]:
    for number, amount in _AMOUNT.findall(text):
        if int(amount) < _NO_AMOUNT:
            yield int(number), int(amount)


def _name_reason(number: int) -> str:
    return _REASONS[number] if number < len(_REASONS) else _LATER_REASONS.get(number, "")


def _moment(seconds: int) -> int | None:
    return seconds or None


def _text(value: object) -> str:
    """Return text as text; a column of bytes, or none at all, is possible in every release."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)
