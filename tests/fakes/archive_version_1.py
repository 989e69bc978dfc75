# SPDX-License-Identifier: Apache-2.0
"""Write an archive as the release with version 1 of the tables did.

The tables are those of that release, word for word. They are not to be changed with those of the archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    insert,
)
from sqlalchemy.dialects.mysql import LONGBLOB

from slurmscope.archive.daily_sums import SumChanges
from slurmscope.archive.job_rows import finding_values, job_values
from slurmscope.archive.report_coding import encode_report
from slurmscope.jobs.report import JobReport

_OPTIONS: dict[str, Any] = {
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
    "mariadb_engine": "InnoDB",
}
_RUN = BigInteger().with_variant(Integer, "sqlite")
_BODY = LargeBinary().with_variant(LONGBLOB, "mysql", "mariadb")

METADATA = MetaData()


def _name(length: int = 128) -> String:
    return String(length).with_variant(String(length, collation="C"), "postgresql")


SCHEMA = Table(
    "slurmscope_schema",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    **_OPTIONS,
)

JOBS = Table(
    "slurmscope_jobs",
    METADATA,
    Column("run_id", _RUN, primary_key=True),
    Column("cluster", _name(64), nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("submit_seconds", BigInteger, nullable=False),
    Column("shown_id", _name(64), nullable=False),
    Column("array_job_id", BigInteger),
    Column("name", _name(512), nullable=False),
    Column("user", _name(), nullable=False),
    Column("account", _name(), nullable=False),
    Column("partition", _name(), nullable=False),
    Column("state", _name(32), nullable=False),
    Column("start_seconds", BigInteger),
    Column("end_seconds", BigInteger),
    Column("is_unfinished", Boolean, nullable=False),
    Column("run_seconds", Double, nullable=False),
    Column("nodes", BigInteger, nullable=False),
    Column("cpus", BigInteger, nullable=False),
    Column("gpus", BigInteger, nullable=False),
    Column("memory_bytes", Double),
    Column("cpu_ratio", Double),
    Column("memory_ratio", Double),
    Column("gpu_ratio", Double),
    Column("time_ratio", Double),
    Column("core_seconds", Double, nullable=False),
    Column("used_core_seconds", Double),
    Column("wasted_core_seconds", Double),
    Column("gpu_seconds", Double, nullable=False),
    Column("used_gpu_seconds", Double),
    Column("wasted_gpu_seconds", Double),
    Column("worst", _name(32)),
    Column("rules", Text, nullable=False),
    Index("slurmscope_jobs_run", "job_id", "cluster", "submit_seconds", unique=True),
    Index("slurmscope_jobs_submit", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_user", "user", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_account", "account", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_partition", "partition", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_state", "state", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_user_state", "user", "state", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_account_state", "account", "state", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_partition_state", "partition", "state", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_worst", "worst", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_array", "array_job_id", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_shown", "shown_id"),
    Index("slurmscope_jobs_name", "name", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_unfinished", "is_unfinished", "submit_seconds"),
    **_OPTIONS,
)

FINDINGS = Table(
    "slurmscope_findings",
    METADATA,
    Column("run_id", _RUN, primary_key=True, autoincrement=False),
    Column("rule", _name(64), primary_key=True),
    Column("severity", _name(32), nullable=False),
    # The names and the order of the job once more: a page of one rule is found without looking at other jobs.
    Column("user", _name(), nullable=False),
    Column("account", _name(), nullable=False),
    Column("submit_seconds", BigInteger, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Index("slurmscope_findings_rule", "rule", "submit_seconds", "job_id"),
    Index("slurmscope_findings_user", "user", "rule", "submit_seconds", "job_id"),
    Index("slurmscope_findings_account", "account", "rule", "submit_seconds", "job_id"),
    **_OPTIONS,
)

REPORTS = Table(
    "slurmscope_reports",
    METADATA,
    Column("run_id", _RUN, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("body", _BODY, nullable=False),
    **_OPTIONS,
)

CURVES = Table(
    "slurmscope_curves",
    METADATA,
    Column("run_id", _RUN, primary_key=True, autoincrement=False),
    Column("submit_seconds", BigInteger, nullable=False),
    Column("body", _BODY, nullable=False),
    Index("slurmscope_curves_submit", "submit_seconds"),
    **_OPTIONS,
)

# Sums of ``span`` days from a day on, counted from 1970: single days, and blocks of them.
# Thousandths of seconds, as whole numbers: what is added and subtracted again leaves exactly nothing.
DAILY = Table(
    "slurmscope_daily",
    METADATA,
    Column("rule", _name(64), primary_key=True),
    Column("span", Integer, primary_key=True, autoincrement=False),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("cluster", _name(64), primary_key=True),
    Column("user", _name(), primary_key=True),
    Column("account", _name(), primary_key=True),
    Column("partition", _name(), primary_key=True),
    Column("state", _name(32), primary_key=True),
    Column("jobs", BigInteger, nullable=False),
    Column("core_milliseconds", BigInteger, nullable=False),
    Column("measured_core_milliseconds", BigInteger, nullable=False),
    Column("used_core_milliseconds", BigInteger, nullable=False),
    Column("gpu_milliseconds", BigInteger, nullable=False),
    Column("measured_gpu_milliseconds", BigInteger, nullable=False),
    Column("used_gpu_milliseconds", BigInteger, nullable=False),
    Column("jobs_with_findings", BigInteger, nullable=False),
    Index("slurmscope_daily_user", "user", "rule", "span", "day"),
    Index("slurmscope_daily_account", "account", "rule", "span", "day"),
    sqlite_with_rowid=False,
    **_OPTIONS,
)


def write_version_1(connection: Connection, reports: Sequence[JobReport]) -> None:
    """Create the tables and save reports in them."""
    METADATA.create_all(connection)
    connection.execute(insert(SCHEMA).values(id=1, version=1))
    changes = SumChanges()
    for run_id, report in enumerate(reports, 1):
        values, encoded = job_values(report), encode_report(report)
        _put(connection, JOBS, {"run_id": run_id, **values})
        for found in finding_values(report, values, run_id):
            _put(connection, FINDINGS, found)
        _put(connection, REPORTS, {"run_id": run_id, "version": 1, "body": encoded.body})
        submit_seconds = values["submit_seconds"]
        _put(connection, CURVES, {"run_id": run_id, "submit_seconds": submit_seconds, "body": encoded.curves})
        changes.add([values])
    for row in changes.rows():
        _put(connection, DAILY, row)


def _put(connection: Connection, table: Table, values: dict[str, Any]) -> None:
    connection.execute(insert(table).values({name: values[name] for name in values if name in table.c}))
