# SPDX-License-Identifier: Apache-2.0
"""Decode cells of our views in Slurm's accounting database into what sacct prints.

The database holds numbers where sacct prints names: states, reasons, resources, exit codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from slurmscope.slurm.states import BASE_STATES, SUSPENDED

DatabaseRow = Mapping[str, Any]

NOW = "UNIX_TIMESTAMP()"
"""Column with the current time by the clock of the server, selected beside those of the job view."""

_NO_VALUE = 2**32 - 2
_UNLIMITED = 2**32 - 1
_NO_AMOUNT = 2**64 - 2
_MEMORY_ID = 2
_AMOUNT = re.compile(r"(?<![^,])([0-9]{1,10})=([0-9]{1,20})(?![^,])")

# These bits override the base state.
_STATE_BITS = ((10, "REQUEUED"), (11, "REQUEUE_HOLD"), (12, "SPECIAL_EXIT"), (13, "RESIZING"), (19, "REVOKED"),
               (20, "REQUEUE_FED"), (21, "RESV_DEL_HOLD"))  # fmt: skip
_STEP_NAMES = {-6: "interactive", -5: "batch", -4: "extern", -3: "pending"}
# The beginning of a list that grew at its end; of the limits that follow, 23.11 renamed some.
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
# Numbers of machines that Slurm no longer supports: Cray's and IBM's.
_REUSED_REASONS = {17: "NvidiaImexChannels", 33: "RaisedSignal"}
# Versions of the protocol that slurmctld registered with.
_RELEASE_25_11 = 44 << 8


def name_state(number: int) -> str:
    """Return the name of a state; UNKNOWN for one of a later release."""
    for bit, word in _STATE_BITS:
        if number & 1 << bit:
            return word
    base = number & 0xFF
    return BASE_STATES[base] if base < len(BASE_STATES) else "UNKNOWN"


def decode_exit_status(row: DatabaseRow) -> tuple[int | None, int | None]:
    """Split a wait status into exit code and signal, as sacct of the cluster's release does; None where there is none.

    Before 25.11, sacct subtracts 128 from higher codes: a shell adds it for a signal.
    """
    status = row["exit_code"]
    if status is None or status % 2**32 == _NO_VALUE:  # a node failed before it could report: the column holds -2
        return None, None
    signal, code = status & 0x7F, status >> 8 & 0xFF
    if code >= 128 and not _is_from(row, _RELEASE_25_11):
        code -= 128
    return code, 0 if signal == 0x7F else signal


def name_amounts(text: str, names: Mapping[int, str]) -> str:
    """Name TRES: ``1=4,1001=2`` becomes ``cpu=4,gres/gpu=2``; those without name or amount are left out."""
    return ",".join(f"{names[number]}={amount}" for number, amount in _pairs(text) if number in names)


def name_tres(rows: Iterable[Sequence[Any]]) -> dict[int, str]:
    """Return TRES names by number, from rows such as 1, cpu, '' and 1001, gres, gpu."""
    return {
        number: f"{decode_text(kind)}/{decode_text(name)}" if name else decode_text(kind) for number, kind, name in rows
    }


def name_step(number: int) -> str:
    return _STEP_NAMES.get(number, str(number))


def name_reason(row: DatabaseRow) -> str:
    """Return the name of a pending reason; empty for one of a later release."""
    number = row["state_reason_prev"] or 0
    if number in _REUSED_REASONS and _is_from(row, _RELEASE_25_11):
        return _REUSED_REASONS[number]
    return _REASONS[number] if number < len(_REASONS) else _LATER_REASONS.get(number, "")


def decode_time(seconds: int | None) -> int | None:
    """Return a time; None for those that Slurm writes where it knows none."""
    return seconds if seconds and seconds % 2**32 not in (_NO_VALUE, _UNLIMITED) else None


def decode_suspended(row: DatabaseRow) -> int:
    """Return how long a job was suspended, up to now for one that still is.

    While it is suspended, the table holds the time since which it would have been suspended without interruption.
    """
    seconds = row["time_suspended"] or 0
    return max(0, row[NOW] - seconds) if name_state(row["state"]) == SUSPENDED and seconds else seconds


def decode_canceller(row: DatabaseRow) -> int | None:
    """Return the user id of who cancelled a job, as sacct shows it; None for other jobs, and where it is not known."""
    uid = row["kill_requid"]
    is_known = uid is not None and 0 <= uid < _NO_VALUE and name_state(row["state"]) == "CANCELLED"
    return uid if is_known else None


def decode_time_limit(minutes: int) -> int | None:
    """Return the time limit in seconds; None for none."""
    return None if minutes in (_NO_VALUE, _UNLIMITED, 0) else 60 * minutes


def decode_array_ids(row: DatabaseRow) -> tuple[int | None, int | None]:
    """Return array and task id; the pending rest of an array has no task id."""
    if not row["id_array_job"]:
        return None, None
    return row["id_array_job"], None if row["id_array_task"] == _NO_VALUE else row["id_array_task"]


def decode_het_ids(row: DatabaseRow) -> tuple[int | None, int | None]:
    if not row["het_job_id"] or row["het_job_offset"] == _NO_VALUE:
        return None, None
    return row["het_job_id"], row["het_job_offset"]


def decode_cpu_seconds(row: DatabaseRow) -> float:
    """Return user and system CPU time of a step."""
    return float(row["user_sec"] + row["sys_sec"] + (row["user_usec"] + row["sys_usec"]) / 1e6)


def decode_max_rss(row: DatabaseRow) -> int:
    """Return MaxRSS of a step in bytes; 0 where it was not sampled."""
    return dict(_pairs(decode_text(row["tres_usage_in_max"]))).get(_MEMORY_ID, 0)


def decode_text(value: object) -> str:
    """Return text; a column may hold bytes or NULL in every release."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _pairs(text: str) -> Iterator[tuple[int, int]]:
    for number, amount in _AMOUNT.findall(text):
        if int(amount) < _NO_AMOUNT:
            yield int(number), int(amount)


def _is_from(row: DatabaseRow, release: int) -> bool:
    """Return whether the cluster runs this release or a later one; None is that of one that never registered."""
    return (row["rpc_version"] or 0) >= release
