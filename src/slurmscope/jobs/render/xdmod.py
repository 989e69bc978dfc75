# SPDX-License-Identifier: Apache-2.0
"""Render accounting records in the lines of sacct that ``xdmod-shredder -f slurm`` of Open XDMoD reads.

::

    12_3|15|lab|batch|normal|physics|users|100|ada|1001|2026-01-31T23:50:00|...|2-00:00:00|n1,n2|relax

Times are UTC. What the archive does not have is empty: the requested memory and the requested resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.render.formatting import format_elapsed

MARK = "|"
_UNITS = "MGTP"
_CONTROLS = dict.fromkeys((*range(32), 127), "?")


def render_xdmod_line(record: JobRecord, *, gid: str = "", group: str = "") -> str:
    """Return the line of a job that ran and has ended; accounting does not have the group of its user for us."""
    # The name is the last column, so it alone may contain the mark.
    cells = (cell.replace(MARK, "?") for cell in _cells(record, gid, group))
    return MARK.join((*cells, record.name)).translate(_CONTROLS)


def _cells(record: JobRecord, gid: str, group: str) -> tuple[str, ...]:
    """Return all columns but the last, in the order in which the shredder reads them."""
    run_seconds = (record.end_seconds or 0) - (record.start_seconds or 0) - record.suspended_seconds
    return (
        record.shown_id,
        str(record.job_id),
        record.cluster,
        record.partition,
        record.qos,
        record.account,
        group,
        gid,
        record.user,
        _number(record.uid),
        *(
            _time(each)
            for each in (
                record.submit_seconds,
                record.eligible_seconds,
                record.start_seconds,
                record.end_seconds,
            )
        ),
        format_elapsed(run_seconds),
        "" if record.exit_code is None else f"{record.exit_code}:{record.exit_signal or 0}",
        _state(record),
        str(record.node_count),
        _number(record.cpus),
        _number(record.requested_cpus),
        "",
        "",
        ",".join(f"{name}={amount}" for name, amount in sorted(_allocated(record))),
        "UNLIMITED" if record.time_limit_seconds is None else format_elapsed(record.time_limit_seconds),
        ",".join(record.nodes),
    )


def _number(number: int | None) -> str:
    return "" if number is None else str(number)


def _time(seconds: int | None) -> str:
    return "Unknown" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def _state(record: JobRecord) -> str:
    is_known = record.state == "CANCELLED" and record.cancelled_by_uid is not None
    return f"{record.state} by {record.cancelled_by_uid}" if is_known else record.state


def _allocated(record: JobRecord) -> Iterator[tuple[str, str]]:
    """Yield the amounts of AllocTRES. XDMoD counts the first GPU entry only, so the total precedes the models."""
    amounts = {
        "billing": record.billing,
        "cpu": record.cpus,
        "energy": record.consumed_joules,
        "node": record.node_count or None,
    }
    totals: Counter[str] = Counter()
    for gres in record.gres:
        totals[f"gres/{gres.name}"] += gres.count
        if gres.model:
            totals[f"gres/{gres.name}:{gres.model}"] += gres.count
    yield from ((name, str(amount)) for name, amount in (*amounts.items(), *totals.items()) if amount is not None)
    if record.memory_bytes is not None:
        yield "mem", _memory(record.memory_bytes)


def _memory(size_bytes: int) -> str:
    """Format memory as sacct does, in the largest unit without a fraction."""
    size, unit = size_bytes >> 20, 0
    while size and size % 1024 == 0 and unit < len(_UNITS) - 1:
        size, unit = size // 1024, unit + 1
    return f"{size}{_UNITS[unit]}"
