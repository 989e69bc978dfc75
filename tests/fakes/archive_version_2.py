# SPDX-License-Identifier: Apache-2.0
"""Write an archive as the release with version 2 of the tables did.

The tables with jobs and sums are those of that release. They are not to be changed with those of the archive.
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
from slurmscope.archive.job_rows import finding_values, job_values, node_values
from slurmscope.archive.report_coding import encode_report
from slurmscope.jobs.report import JobReport

# Names differ by upper and lower case and by blanks at their end, on every server.
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
    Column("eligible_seconds", BigInteger),
    Column("wait_seconds", Double),
    Column("time_limit_seconds", BigInteger),
    Column("exit_code", Integer),
    Column("exit_signal", Integer),
    Column("derived_exit_code", Integer),
    Column("derived_exit_signal", Integer),
    Column("het_job_id", BigInteger),
    Column("het_offset", BigInteger),
    Column("tasks", BigInteger),
    Column("blocked_core_seconds", Double),
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
    Index("slurmscope_jobs_user_name", "user", "name", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_het", "het_job_id"),
    Index("slurmscope_jobs_unfinished", "is_unfinished", "submit_seconds"),
    **_OPTIONS,
)

FINDINGS = Table(
    "slurmscope_findings",
    METADATA,
    Column("run_id", _RUN, primary_key=True, autoincrement=False),
    Column("rule", _name(64), primary_key=True),
    Column("severity", _name(32), nullable=False),
    Column("user", _name(), nullable=False),
    Column("account", _name(), nullable=False),
    Column("submit_seconds", BigInteger, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("suggestion", _name(512)),
    Index("slurmscope_findings_rule", "rule", "submit_seconds", "job_id"),
    Index("slurmscope_findings_user", "user", "rule", "submit_seconds", "job_id"),
    Index("slurmscope_findings_account", "account", "rule", "submit_seconds", "job_id"),
    **_OPTIONS,
)

JOB_NODES = Table(
    "slurmscope_job_nodes",
    METADATA,
    Column("run_id", _RUN, primary_key=True, autoincrement=False),
    Column("node", _name(), primary_key=True),
    Column("user", _name(), nullable=False),
    Column("account", _name(), nullable=False),
    Column("submit_seconds", BigInteger, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Index("slurmscope_job_nodes_node", "node", "submit_seconds", "job_id"),
    sqlite_with_rowid=False,
    **_OPTIONS,
)

INCOMPLETE = Table(
    "slurmscope_incomplete",
    METADATA,
    Column("run_id", _RUN, primary_key=True, autoincrement=False),
    Column("end_seconds", BigInteger, nullable=False),
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
    Column("blocked_core_milliseconds", BigInteger),
    Index("slurmscope_daily_user", "user", "rule", "span", "day"),
    Index("slurmscope_daily_account", "account", "rule", "span", "day"),
    sqlite_with_rowid=False,
    **_OPTIONS,
)

WAITS = Table(
    "slurmscope_waits",
    METADATA,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("cluster", _name(64), primary_key=True),
    Column("partition", _name(), primary_key=True),
    Column("cores_class", Integer, primary_key=True, autoincrement=False),
    Column("limit_class", Integer, primary_key=True, autoincrement=False),
    Column("wait_class", Integer, primary_key=True, autoincrement=False),
    Column("jobs", BigInteger, nullable=False),
    sqlite_with_rowid=False,
    **_OPTIONS,
)

ADVICE = Table(
    "slurmscope_advice",
    METADATA,
    Column("run_id", _RUN, primary_key=True, autoincrement=False),
    Column("rule", _name(64), primary_key=True),
    Column("cluster", _name(64), nullable=False),
    Column("suggestion", _name(512), nullable=False),
    Column("is_followed", Boolean),
    Column("is_gone", Boolean),
    Column("is_first", Boolean, nullable=False),
    Column("saved_core_seconds", Double),
    Column("saved_gpu_seconds", Double),
    Column("saved_memory_byte_seconds", Double),
    Column("advised_job_id", BigInteger, nullable=False),
    Column("advised_submit_seconds", BigInteger, nullable=False),
    Column("advised_account", _name(), nullable=False),
    Column("advised_shown_id", _name(64), nullable=False),
    Column("advised_state", _name(32), nullable=False),
    Column("advised_run_seconds", Double, nullable=False),
    Column("advised_nodes", BigInteger, nullable=False),
    Column("advised_cpus", BigInteger, nullable=False),
    Column("advised_gpus", BigInteger, nullable=False),
    Column("advised_memory_bytes", Double),
    Column("advised_time_limit_seconds", BigInteger),
    Index("slurmscope_advice_advised", "advised_job_id", "cluster", "advised_submit_seconds"),
    **_OPTIONS,
)

ADVICE_SUMS = Table(
    "slurmscope_advice_sums",
    METADATA,
    Column("month", Integer, primary_key=True, autoincrement=False),
    Column("rule", _name(64), primary_key=True),
    Column("user", _name(), primary_key=True),
    Column("account", _name(), primary_key=True),
    Column("cluster", _name(64), primary_key=True),
    Column("advised", BigInteger, nullable=False),
    Column("followed", BigInteger, nullable=False),
    Column("ignored", BigInteger, nullable=False),
    Column("gone", BigInteger, nullable=False),
    Column("completed", BigInteger, nullable=False),
    Column("saving_runs", BigInteger, nullable=False),
    Column("saved_core_milliseconds", BigInteger, nullable=False),
    Column("saved_gpu_milliseconds", BigInteger, nullable=False),
    Column("saved_memory_gib_milliseconds", BigInteger, nullable=False),
    sqlite_with_rowid=False,
    **_OPTIONS,
)


def write_version_2(connection: Connection, reports: Sequence[JobReport]) -> None:
    """Create the tables and save reports in them."""
    METADATA.create_all(connection)
    connection.execute(insert(SCHEMA).values(id=1, version=2))
    save_version_2(connection, reports)


def save_version_2(connection: Connection, reports: Sequence[JobReport]) -> None:
    """Save reports of jobs and days that are not in the tables yet, as that release does, which checks no version."""
    changes = SumChanges()
    for report in reports:
        values, encoded = job_values(report), encode_report(report)
        run_id: int = connection.execute(insert(JOBS).values(values).returning(JOBS.c.run_id)).scalar_one()
        for found in finding_values(report, values, run_id):
            _put(connection, FINDINGS, found)
        for node in node_values(report, values, run_id):
            _put(connection, JOB_NODES, node)
        _put(connection, REPORTS, {"run_id": run_id, "version": 1, "body": encoded.body})
        submit_seconds = values["submit_seconds"]
        _put(connection, CURVES, {"run_id": run_id, "submit_seconds": submit_seconds, "body": encoded.curves})
        changes.add([values])
    for row in changes.rows():
        _put(connection, DAILY, row)


def _put(connection: Connection, table: Table, values: dict[str, Any]) -> None:
    connection.execute(insert(table).values({name: values[name] for name in values if name in table.c}))
