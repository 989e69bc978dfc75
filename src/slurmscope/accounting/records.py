# SPDX-License-Identifier: Apache-2.0
"""Make job records from accounting, by the same rules for sacct and for the database.

Slurm reports values that it does not have: a job cancelled while pending has a start time, a running job an exit
code of 0, a step that was too short to be sampled a MaxRSS of 0. Here these become None.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from slurmscope.accounting.fields import JOB_FIELDS, STEP_FIELDS, Field, SacctRow, split_rows
from slurmscope.accounting.rows import DatabaseRow, decode_text, name_amounts
from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.hostlist import expand_hosts
from slurmscope.core.log import fields
from slurmscope.core.tres import Tres, parse_tres
from slurmscope.jobs.record import MAX_STEPS, JobRecord, StepRecord
from slurmscope.jobs.runs import RESIZED
from slurmscope.slurm.states import ENDED_STATES, REQUEUED, REVOKED, RUNNING

logger = logging.getLogger(__name__)


ENDINGS = ENDED_STATES - {REVOKED} | {REQUEUED}
"""States of a run that has ended. A revoked job ran in another cluster of the federation and is in its records."""

_CACHED_TEXTS = 4096  # thousands of jobs have few different resources and node lists
_NO_ENERGY = 2**64 - 2
_NO_REASONS = frozenset({"", "None"})


def parse_records(output: bytes, columns: Sequence[str], mark: str) -> tuple[JobRecord, ...]:
    """Parse the whole output of sacct; a row that cannot be parsed is skipped and logged.

    Bytes that are no UTF-8 become U+FFFD: all outputs are UTF-8.
    """
    text = output.decode("utf-8", "replace")
    rows = [dict(zip(columns, cells, strict=True)) for cells in split_rows(text, mark, len(columns))]
    records, unreadable = _parse_rows(rows)
    if unreadable:
        logger.warning(
            "rows of sacct could not be parsed", extra=fields("sacct rows", rows=len(unreadable), first=unreadable[0])
        )
        if not records:
            # Without the job: the message is shown to everyone.
            raise MalformedAnswer(f"sacct: none of {len(rows)} rows could be parsed; the log names one")
    return records


def _parse_rows(rows: Iterable[SacctRow]) -> tuple[tuple[JobRecord, ...], list[str]]:
    """Parse jobs with the steps that follow them; return also the ids of rows that could not be parsed."""
    found: list[tuple[dict[str, Any], list[StepRecord]]] = []
    unreadable: list[str] = []
    job: dict[str, Any] | None = None
    for row in rows:
        job_id, _, step_name = row["JobIDRaw"].partition(".")
        try:
            if not step_name:
                job = None  # not of another one, if this row cannot be parsed
                job = _parse(JOB_FIELDS, row)
                found.append((job, []))
            elif job is not None and job_id == str(job["job_id"]):
                found[-1][1].append(_complete_step(**_parse(STEP_FIELDS, row)))
        except ValueError:
            unreadable.append(row["JobIDRaw"][:40])
    return tuple(_complete(steps=steps, **job) for job, steps in found), unreadable


def _parse(declared: Iterable[Field], row: SacctRow) -> dict[str, Any]:
    return {each.name: each.parse(row.get(each.sacct, "")) for each in declared}


def decode_record(
    cluster: str, row: DatabaseRow, step_rows: Iterable[DatabaseRow], tres_names: Mapping[int, str]
) -> JobRecord:
    """Return the record of a row of the job view, with its steps."""
    named = {column: name_amounts(decode_text(row[column]), tres_names) for column in ("tres_alloc", "tres_req")}
    ordered = sorted(step_rows, key=lambda step: (step["id_step"], step["step_het_comp"]))
    return _complete(
        steps=[decode_step({**step, "rpc_version": row["rpc_version"]}) for step in ordered],
        **_decode(JOB_FIELDS, {**row, **named, "cluster": cluster}),
    )


def decode_step(row: DatabaseRow) -> StepRecord:
    return _complete_step(**_decode(STEP_FIELDS, row))


def _decode(declared: Iterable[Field], row: DatabaseRow) -> dict[str, Any]:
    return {each.name: each.decode(row) for each in declared}


def _complete(
    *, allocated: str, requested: str, node_list: str, steps: Sequence[StepRecord], **values: Any
) -> JobRecord:
    """Make a record from what accounting reports, without values that Slurm does not have."""
    record = JobRecord(**values)
    has_ended = record.state in ENDINGS or record.state == RESIZED
    # Seen with 22.05: a job cancelled while pending has a start time but no allocation.
    has_started = record.start_seconds is not None and bool(allocated)
    amounts = parse_amounts(allocated if has_started else requested)
    wanted = parse_amounts(requested)
    known_cpu = [step.cpu_seconds for step in steps if step.cpu_seconds is not None]
    made = replace(
        record,
        user=record.user or ("" if record.uid is None else str(record.uid)),
        # A pending job lists every partition that it may start in.
        partition=record.partition.partition(",")[0],
        start_seconds=record.start_seconds if has_started else None,
        end_seconds=record.end_seconds if has_ended else None,
        suspended_seconds=_check_suspended(record) if has_started else 0,
        nodes=_parse_nodes(node_list) if has_started else (),
        node_count=amounts.nodes or 0,
        cpus=amounts.cpus or None,
        requested_cpus=wanted.cpus or None,
        requested_gpus=sum(gres.count for gres in wanted.gres if gres.name == "gpu") if wanted.cpus else None,
        memory_bytes=amounts.memory_bytes,
        gres=amounts.gres,
        billing=amounts.others.get("billing"),
        consumed_joules=_known_energy(amounts.others.get("energy")) if has_ended and has_started else None,
        exit_code=record.exit_code if has_ended and has_started else None,
        exit_signal=record.exit_signal if has_ended and has_started else None,
        cpu_seconds=sum(known_cpu) if has_ended and known_cpu else None,
        reason="" if has_started or record.reason in _NO_REASONS else record.reason,
        steps=_keep_largest(steps),
    )
    return _complete_partial(made, steps) if made.is_partial else made


def _known_energy(joules: int | None) -> int | None:
    """Return the energy; Slurm writes 0, or nearly 2^64, where no plugin gathers it."""
    return joules if joules and joules < _NO_ENERGY else None


def _complete_partial(record: JobRecord, steps: Sequence[StepRecord]) -> JobRecord:
    """Leave out the placeholders of a partial record; a job with a step runs, whatever slurmdbd assumes."""
    first = min((step.start_seconds for step in steps if step.start_seconds is not None), default=None)
    if record.state != "PENDING" or first is None:
        return replace(record, name="")
    return replace(record, name="", state=RUNNING, start_seconds=first)


def _complete_step(*, is_sampled: bool, **values: Any) -> StepRecord:
    """Make a step from what accounting reports; its usage is known when it has ended."""
    step = StepRecord(**values)
    has_ended = step.end_seconds is not None
    is_known = has_ended and (is_sampled or bool(step.cpu_seconds))
    return replace(
        step,
        cpu_seconds=step.cpu_seconds if is_known else None,
        # No process uses 0 bytes: the step ended before Slurm sampled it.
        max_rss_bytes=step.max_rss_bytes or None,
        exit_code=step.exit_code if has_ended else None,
        exit_signal=step.exit_signal if has_ended else None,
    )


@lru_cache(maxsize=_CACHED_TEXTS)
def parse_amounts(text: str) -> Tres:
    """Parse a list of resources; none for a list in an unknown format."""
    try:
        return parse_tres(text)
    except ValueError:
        return Tres()


@lru_cache(maxsize=_CACHED_TEXTS)
def _parse_nodes(text: str) -> tuple[str, ...]:
    if " " in text:  # None assigned
        return ()
    try:
        return expand_hosts(text)
    except ValueError:
        return ()


def _check_suspended(record: JobRecord) -> int:
    """Return the suspended time; 0 where it exceeds the run, as Slurm leaves it when it missed the resume."""
    if record.start_seconds is None or record.end_seconds is None:
        return record.suspended_seconds
    is_possible = record.suspended_seconds <= record.end_seconds - record.start_seconds
    return record.suspended_seconds if is_possible else 0


def _keep_largest(steps: Sequence[StepRecord]) -> tuple[StepRecord, ...]:
    """Drop the steps with the least memory, where there are too many."""
    if len(steps) <= MAX_STEPS:
        return tuple(steps)
    by_memory = sorted(range(len(steps)), key=lambda index: steps[index].max_rss_bytes or 0, reverse=True)
    return tuple(steps[index] for index in sorted(by_memory[:MAX_STEPS]))
