# SPDX-License-Identifier: Apache-2.0
"""Define the tables of the archive.

Lists read only the narrow table of jobs; reports and curves lie apart. Every index of a list ends in the order of the
list, newest submission first, so that a page is read from the index and nothing is sorted. ``daily_sums`` has the sums.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    event,
    text,
)
from sqlalchemy.dialects.mysql import LONGBLOB
from sqlalchemy.types import TypeEngine

from slurmscope.archive.interface import SortColumn
from slurmscope.archive.job_columns import ARCHIVED_COLUMNS, EDGE_SECONDS, ColumnType, JobColumn
from slurmscope.archive.texts import CLUSTER_LENGTH, NAME_LENGTH, RULE_LENGTH, SHOWN_LENGTH, STATE_LENGTH, TITLE_LENGTH

# Names differ by upper and lower case and by blanks at their end, on every server.
TABLE_OPTIONS: dict[str, Any] = {
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
    "mariadb_engine": "InnoDB",
}
# Retention drops partitions.
PARTITION_OPTIONS: dict[str, Any] = {
    "mariadb_partition_by": "RANGE (run_id) (PARTITION rest VALUES LESS THAN MAXVALUE)",
    "postgresql_partition_by": "RANGE (run_id)",
}
RUN_TYPE = BigInteger().with_variant(Integer, "sqlite")
BODY_TYPE = LargeBinary().with_variant(LONGBLOB, "mysql", "mariadb")

METADATA = MetaData()


def name_type(length: int = NAME_LENGTH) -> String:
    return String(length).with_variant(String(length, collation="C"), "postgresql")


def make_table(name: str, *parts: Column[Any] | Index, **options: Any) -> Table:
    """Declare a table; of one with partitions, PostgreSQL creates that for all rows that have no other with it."""
    made = Table(f"slurmscope_{name}", METADATA, *parts, **TABLE_OPTIONS, **options)
    if "postgresql_partition_by" in options:
        event.listen(made, "after_create", _create_rest)
    return made


def _create_rest(table: Table, connection: Connection, **_: object) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"CREATE TABLE {table.name}_rest PARTITION OF {table.name} DEFAULT"))


SCHEMA_VERSION = 1

SCHEMA = make_table(
    "schema",
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
)

_TYPES: Mapping[ColumnType, TypeEngine[Any]] = {
    ColumnType.TEXT: Text(),
    ColumnType.WHOLE: BigInteger(),
    ColumnType.SMALL: Integer(),
    ColumnType.NUMBER: Double(),
}


def _type_of(column: JobColumn) -> TypeEngine[Any]:
    return _TYPES.get(column.type) or name_type(column.length)


JOBS = make_table(
    "jobs",
    Column("run_id", RUN_TYPE, primary_key=True),
    *(Column(name, _type_of(column), nullable=column.is_nullable) for name, column in ARCHIVED_COLUMNS.items()),
    Column("is_unfinished", Boolean, nullable=False),
    Column("used_core_seconds", Double),
    Column("gpu_seconds", Double, nullable=False),
    Column("used_gpu_seconds", Double),
    *(Column(name, Double) for name in EDGE_SECONDS),
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
    Index("slurmscope_jobs_cluster", "cluster", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_cluster_user", "cluster", "user", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_cluster_partition", "cluster", "partition", "submit_seconds", "job_id"),
    Index("slurmscope_jobs_cluster_state", "cluster", "state", "submit_seconds", "job_id"),
    *(
        Index(f"slurmscope_jobs_by_{column.key}", column.value, "submit_seconds", "job_id")
        for column in SortColumn
        if not column.is_text and column is not SortColumn.SUBMIT
    ),
)

FINDINGS = make_table(
    "findings",
    Column("run_id", RUN_TYPE, primary_key=True, autoincrement=False),
    Column("rule", name_type(RULE_LENGTH), primary_key=True),
    Column("severity", name_type(STATE_LENGTH), nullable=False),
    # The names and the order of the job once more: a page of one rule is found without looking at other jobs.
    Column("user", name_type(), nullable=False),
    Column("account", name_type(), nullable=False),
    Column("submit_seconds", BigInteger, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("suggestion", name_type(TITLE_LENGTH), nullable=False),
    Index("slurmscope_findings_rule", "rule", "submit_seconds", "job_id"),
    Index("slurmscope_findings_user", "user", "rule", "submit_seconds", "job_id"),
    Index("slurmscope_findings_account", "account", "rule", "submit_seconds", "job_id"),
)

# Which nodes a job ran on. A page of one node is found without looking at other jobs.
JOB_NODES = make_table(
    "job_nodes",
    Column("run_id", RUN_TYPE, primary_key=True, autoincrement=False),
    Column("node", name_type(), primary_key=True),
    Column("user", name_type(), nullable=False),
    Column("account", name_type(), nullable=False),
    Column("submit_seconds", BigInteger, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Index("slurmscope_job_nodes_node", "node", "submit_seconds", "job_id"),
    sqlite_with_rowid=False,
)

# Ended runs without numbers that the time series server may return later.
INCOMPLETE = make_table(
    "incomplete",
    Column("run_id", RUN_TYPE, primary_key=True, autoincrement=False),
    Column("end_seconds", BigInteger, nullable=False),
)

REPORTS = make_table(
    "reports",
    Column("run_id", RUN_TYPE, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("body", BODY_TYPE, nullable=False),
    **PARTITION_OPTIONS,
)

CURVES = make_table(
    "curves",
    Column("run_id", RUN_TYPE, primary_key=True, autoincrement=False),
    Column("submit_seconds", BigInteger, nullable=False),
    Column("body", BODY_TYPE, nullable=False),
    Index("slurmscope_curves_submit", "submit_seconds"),
    **PARTITION_OPTIONS,
)

# What the later of two runs of the same name made of the advice that the earlier one got.
ADVICE = make_table(
    "advice",
    Column("run_id", RUN_TYPE, primary_key=True, autoincrement=False),
    Column("rule", name_type(RULE_LENGTH), primary_key=True),
    Column("cluster", name_type(CLUSTER_LENGTH), nullable=False),
    Column("suggestion", name_type(TITLE_LENGTH), nullable=False),
    Column("is_followed", Boolean),
    Column("is_gone", Boolean),
    Column("is_first", Boolean, nullable=False),
    Column("saved_core_seconds", Double),
    Column("saved_gpu_seconds", Double),
    Column("saved_memory_byte_seconds", Double),
    # The advised run; it may be deleted before the later one.
    Column("advised_job_id", BigInteger, nullable=False),
    Column("advised_submit_seconds", BigInteger, nullable=False),
    Column("advised_account", name_type(), nullable=False),
    Column("advised_shown_id", name_type(SHOWN_LENGTH), nullable=False),
    Column("advised_state", name_type(STATE_LENGTH), nullable=False),
    Column("advised_run_seconds", Double, nullable=False),
    Column("advised_nodes", BigInteger, nullable=False),
    Column("advised_cpus", BigInteger, nullable=False),
    Column("advised_gpus", BigInteger, nullable=False),
    Column("advised_memory_bytes", Double),
    Column("advised_time_limit_seconds", BigInteger),
    Index("slurmscope_advice_advised", "advised_job_id", "cluster", "advised_submit_seconds"),
)

CHECKPOINTS = make_table(
    "checkpoints",
    Column("name", name_type(), primary_key=True),
    Column("value", Text, nullable=False),
)

MAILS = make_table(
    "mails",
    Column("recipient", name_type(), primary_key=True),
    Column("subject", name_type(), primary_key=True),
    Column("sent_seconds", BigInteger, nullable=False),
)

OPT_OUTS = make_table(
    "opt_outs",
    Column("user", name_type(), primary_key=True),
)

TOKENS = make_table(
    "tokens",
    Column("token_id", RUN_TYPE, primary_key=True),
    Column("token_hash", name_type(64), nullable=False, unique=True),
    Column("name", name_type(), nullable=False),
    Column("role", name_type(STATE_LENGTH), nullable=False),
    Column("purpose", name_type(), nullable=False),
    Column("created_seconds", BigInteger, nullable=False),
    Column("last_used_seconds", BigInteger),
    Column("expires_seconds", BigInteger),
)

AUDIT = make_table(
    "audit",
    Column("audit_id", RUN_TYPE, primary_key=True),
    Column("at_seconds", BigInteger, nullable=False),
    Column("viewer", name_type(), nullable=False),
    Column("role", name_type(STATE_LENGTH), nullable=False),
    Column("route", name_type(), nullable=False),
    Column("subject", name_type(TITLE_LENGTH), nullable=False),
)

# Notes and tags of staff, and saved filters of job lists.
NOTES = make_table(
    "notes",
    Column("note_id", RUN_TYPE, primary_key=True),
    Column("kind", name_type(STATE_LENGTH), nullable=False),
    Column("cluster", name_type(CLUSTER_LENGTH), nullable=False),
    Column("name", name_type(), nullable=False),
    Column("author", name_type(), nullable=False),
    Column("at_seconds", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Index("slurmscope_notes_name", "name", "kind", "cluster"),
)

TAGS = make_table(
    "tags",
    Column("name", name_type(), primary_key=True),
    Column("kind", name_type(STATE_LENGTH), primary_key=True),
    Column("cluster", name_type(CLUSTER_LENGTH), primary_key=True),
    Column("tag", name_type(STATE_LENGTH), primary_key=True),
    Column("author", name_type(), nullable=False),
    Column("at_seconds", BigInteger, nullable=False),
    Index("slurmscope_tags_tag", "tag", "at_seconds"),
)

VIEWS = make_table(
    "views",
    Column("view_id", RUN_TYPE, primary_key=True),
    Column("owner", name_type(), nullable=False),
    Column("name", name_type(), nullable=False),
    Column("query", Text, nullable=False),
    Column("is_shared", Boolean, nullable=False),
    Index("slurmscope_views_owner", "owner", "name"),
)

RUN_TABLES = (FINDINGS, JOB_NODES, ADVICE, INCOMPLETE, REPORTS, CURVES, JOBS)
"""Tables with rows of single runs, in the order in which they are deleted."""
