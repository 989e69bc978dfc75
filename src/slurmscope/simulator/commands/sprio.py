# SPDX-License-Identifier: Apache-2.0
"""Answer like sprio 22.05: the weighted factors of the priority of each pending job that is not held.

Known options: ``-h -o -V``, and ``--local`` which is accepted and ignored. A job that may start in several
partitions has a row for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from slurmscope.simulator.commands.listing import (
    Command,
    CommandResult,
    Field,
    ReadColumn,
    UsageError,
    choose_layout,
    encode,
    header_of,
    name_columns,
    parse_options,
    refuse,
    render_lines,
    version_answer,
)

if TYPE_CHECKING:
    from slurmscope.simulator.cluster.records import SimulatedCluster, SimulatedJob


_NAME = "sprio"
_DEFAULT_FORMAT = "%.15i %9r %.10Y %.10S %.10A %.10F %.10J %.10P %.10Q"
_OPTIONS = {"h": "noheader", "o:": "format", "V": "version", "local": "local"}
_LETTERS = {
    "i": "jobid", "r": "partition", "u": "user", "Y": "priority", "A": "age", "B": "assoc", "F": "fairshare",
    "J": "jobsize", "P": "partitionfactor", "Q": "qos", "S": "site", "T": "tres", "N": "nice",
}  # fmt: skip


class _Row(NamedTuple):
    job: SimulatedJob
    partition: str


def _age(row: _Row) -> int:
    return row.job.priority // 10


def _qos(row: _Row) -> int:
    return row.job.priority // 5 if row.job.qos == "high" else 0


def _fairshare(row: _Row) -> int:
    return row.job.priority - _age(row) - _qos(row)


FIELDS: dict[str, Field[_Row]] = {
    "jobid": Field(header="JOBID", text=lambda row: str(row.job.id)),
    "partition": Field(header="PARTITION", text=lambda row: row.partition),
    "user": Field(header="USER", text=lambda row: row.job.user.name),
    "priority": Field(header="PRIORITY", text=lambda row: str(row.job.priority)),
    "age": Field(header="AGE", text=lambda row: str(_age(row))),
    "assoc": Field(header="ASSOC", text=lambda _row: "0"),
    "fairshare": Field(header="FAIRSHARE", text=lambda row: str(_fairshare(row))),
    "jobsize": Field(header="JOBSIZE", text=lambda _row: "0"),
    "partitionfactor": Field(header="PARTITION", text=lambda _row: "0"),
    "qos": Field(header="QOS", text=lambda row: str(_qos(row))),
    "site": Field(header="SITE", text=lambda _row: "0"),
    "tres": Field(header="TRES", text=lambda _row: ""),
    "nice": Field(header="NICE", text=lambda _row: "0"),
}


def column(cluster: SimulatedCluster, name: str) -> list[bytes]:
    """Return one column of all rows."""
    waiting = (job for job in cluster.jobs if job.state == "PENDING" and job.priority > 0)
    return [encode(FIELDS[name].text(_Row(job, partition))) for job in waiting for partition in job.partitions]


def respond(read: ReadColumn, argv: Sequence[str], environment: Mapping[str, str]) -> CommandResult:  # noqa: ARG001
    """Answer from columns."""
    try:
        options = parse_options(argv, _OPTIONS)
        if "version" in options:
            return version_answer()
        layout, _ = choose_layout(options, _DEFAULT_FORMAT)
    except UsageError as error:
        return refuse(_NAME, error)
    layout, complaints = name_columns(_NAME, layout, FIELDS, _LETTERS)
    header = b"" if "noheader" in options else header_of(layout, FIELDS)
    rows = len(read("jobid"))
    values = [read(one.name) if one.name in FIELDS else [encode(one.name)] * rows for one in layout.columns]
    return 0, header + b"".join(render_lines(layout, values, rows)), complaints


COMMAND = Command(name=_NAME, columns=tuple(FIELDS), column=column, respond=respond)
answer = COMMAND.answer
