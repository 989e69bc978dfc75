# SPDX-License-Identifier: Apache-2.0
"""Define the tables of the archive; ``migrations`` brings an older archive up to date.

Lists read only the narrow table of jobs; reports and curves lie apart. Every index of a list ends in the order of the
list, newest submission first, so that a page is read from the index and nothing is sorted. Sums are kept by day, so
that a year is added up without looking at its jobs.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects.mysql import LONGBLOB

from slurmscope.store.archive.lengths import (
    CLUSTER_LENGTH,
    NAME_LENGTH,
    RULE_LENGTH,
    SHOWN_LENGTH,
    STATE_LENGTH,
    TITLE_LENGTH,
)

SCHEMA_VERSION = 2

NO_RULE = ""
"""In the sums by day: all jobs, whatever was found in them."""

# Names differ by letter case and by blanks at their end, on every server.
_OPTIONS: dict[str, Any] = {
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
    "mariadb_engine": "InnoDB",
}
_RUN = BigInteger().with_variant(Integer, "sqlite")
_BODY = LargeBinary().with_variant(LONGBLOB, "mysql", "mariadb")

METADATA = MetaData()


def _name(length: int = NAME_LENGTH) -> String:
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
    Column("cluster", _name(CLUSTER_LENGTH), nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("submit_seconds", BigInteger, nullable=False),
    Column("shown_id", _name(SHOWN_LENGTH), nullable=False),
    Column("array_job_id", BigInteger),
    Column("name", _name(TITLE_LENGTH), nullable=False),
    Column("user", _name(), nullable=False),
    Column("account", _name(), nullable=False),
    Column("partition", _name(), nullable=False),
    Column("state", _name(STATE_LENGTH), nullable=False),
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
    Column("worst", _name(STATE_LENGTH)),
    Column("rules", Text, nullable=False),
    # Since version 2; None in the rows that version 1 wrote, where they are unknown.
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
    Column("rule", _name(RULE_LENGTH), primary_key=True),
    Column("severity", _name(STATE_LENGTH), nullable=False),
    # The names and the order of the job once more: a page of one rule is found without looking at other jobs.
    Column("user", _name(), nullable=False),
    Column("account", _name(), nullable=False),
    Column("submit_seconds", BigInteger, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    # Since version 2.
    Column("suggestion", _name(TITLE_LENGTH)),
    Index("slurmscope_findings_rule", "rule", "submit_seconds", "job_id"),
    Index("slurmscope_findings_user", "user", "rule", "submit_seconds", "job_id"),
    Index("slurmscope_findings_account", "account", "rule", "submit_seconds", "job_id"),
    **_OPTIONS,
)

# Since version 2: which nodes a job ran on. A page of one node is found without looking at other jobs.
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

# Since version 2: ended runs without numbers that the time series server may return later.
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

# Sums of ``span`` days from a day on, counted from 1970: single days, and blocks of them.
# Thousandths of seconds, as whole numbers: what is added and subtracted again leaves exactly nothing.
DAILY = Table(
    "slurmscope_daily",
    METADATA,
    Column("rule", _name(RULE_LENGTH), primary_key=True),
    Column("span", Integer, primary_key=True, autoincrement=False),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("cluster", _name(CLUSTER_LENGTH), primary_key=True),
    Column("user", _name(), primary_key=True),
    Column("account", _name(), primary_key=True),
    Column("partition", _name(), primary_key=True),
    Column("state", _name(STATE_LENGTH), primary_key=True),
    Column("jobs", BigInteger, nullable=False),
    Column("core_milliseconds", BigInteger, nullable=False),
    Column("measured_core_milliseconds", BigInteger, nullable=False),
    Column("used_core_milliseconds", BigInteger, nullable=False),
    Column("gpu_milliseconds", BigInteger, nullable=False),
    Column("measured_gpu_milliseconds", BigInteger, nullable=False),
    Column("used_gpu_milliseconds", BigInteger, nullable=False),
    Column("jobs_with_findings", BigInteger, nullable=False),
    # Since version 2; None in sums to which no later job was added.
    Column("blocked_core_milliseconds", BigInteger),
    Index("slurmscope_daily_user", "user", "rule", "span", "day"),
    Index("slurmscope_daily_account", "account", "rule", "span", "day"),
    sqlite_with_rowid=False,
    **_OPTIONS,
)

# Since version 2: how many jobs of a shape waited how long, by the day of submission. Classes are numbered as
# ``model.waiting_times`` does.
WAITS = Table(
    "slurmscope_waits",
    METADATA,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("cluster", _name(CLUSTER_LENGTH), primary_key=True),
    Column("partition", _name(), primary_key=True),
    Column("cores_class", Integer, primary_key=True, autoincrement=False),
    Column("limit_class", Integer, primary_key=True, autoincrement=False),
    Column("wait_class", Integer, primary_key=True, autoincrement=False),
    Column("jobs", BigInteger, nullable=False),
    sqlite_with_rowid=False,
    **_OPTIONS,
)

# Since version 2: what the later of two runs of the same name made of the advice that the earlier one got.
ADVICE = Table(
    "slurmscope_advice",
    METADATA,
    Column("run_id", _RUN, primary_key=True, autoincrement=False),
    Column("rule", _name(RULE_LENGTH), primary_key=True),
    Column("cluster", _name(CLUSTER_LENGTH), nullable=False),
    Column("suggestion", _name(TITLE_LENGTH), nullable=False),
    Column("is_followed", Boolean),
    Column("is_gone", Boolean),
    Column("is_first", Boolean, nullable=False),
    Column("saved_core_seconds", Double),
    Column("saved_gpu_seconds", Double),
    Column("saved_memory_byte_seconds", Double),
    # The advised run; it may be deleted before the later one.
    Column("advised_job_id", BigInteger, nullable=False),
    Column("advised_submit_seconds", BigInteger, nullable=False),
    Column("advised_account", _name(), nullable=False),
    Column("advised_shown_id", _name(SHOWN_LENGTH), nullable=False),
    Column("advised_state", _name(STATE_LENGTH), nullable=False),
    Column("advised_run_seconds", Double, nullable=False),
    Column("advised_nodes", BigInteger, nullable=False),
    Column("advised_cpus", BigInteger, nullable=False),
    Column("advised_gpus", BigInteger, nullable=False),
    Column("advised_memory_bytes", Double),
    Column("advised_time_limit_seconds", BigInteger),
    Index("slurmscope_advice_advised", "advised_job_id", "cluster", "advised_submit_seconds"),
    **_OPTIONS,
)

# Sums of these by month, counted from the year 0; they are kept when jobs are deleted. Thousandths of seconds, and of
# GiB-seconds, as whole numbers.
ADVICE_SUMS = Table(
    "slurmscope_advice_sums",
    METADATA,
    Column("month", Integer, primary_key=True, autoincrement=False),
    Column("rule", _name(RULE_LENGTH), primary_key=True),
    Column("user", _name(), primary_key=True),
    Column("account", _name(), primary_key=True),
    Column("cluster", _name(CLUSTER_LENGTH), primary_key=True),
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

CHECKPOINTS = Table(
    "slurmscope_checkpoints",
    METADATA,
    Column("name", _name(), primary_key=True),
    Column("value", Text, nullable=False),
    **_OPTIONS,
)

MAILS = Table(
    "slurmscope_mails",
    METADATA,
    Column("recipient", _name(), primary_key=True),
    Column("subject", _name(), primary_key=True),
    Column("sent_seconds", BigInteger, nullable=False),
    **_OPTIONS,
)

OPT_OUTS = Table(
    "slurmscope_opt_outs",
    METADATA,
    Column("user", _name(), primary_key=True),
    **_OPTIONS,
)

TOKENS = Table(
    "slurmscope_tokens",
    METADATA,
    Column("token_id", _RUN, primary_key=True),
    Column("token_hash", _name(64), nullable=False, unique=True),
    Column("name", _name(), nullable=False),
    Column("role", _name(STATE_LENGTH), nullable=False),
    Column("purpose", _name(), nullable=False),
    Column("created_seconds", BigInteger, nullable=False),
    Column("last_used_seconds", BigInteger),
    Column("expires_seconds", BigInteger),
    **_OPTIONS,
)

AUDIT = Table(
    "slurmscope_audit",
    METADATA,
    Column("audit_id", _RUN, primary_key=True),
    Column("at_seconds", BigInteger, nullable=False),
    Column("viewer", _name(), nullable=False),
    Column("role", _name(STATE_LENGTH), nullable=False),
    Column("route", _name(), nullable=False),
    Column("subject", _name(TITLE_LENGTH), nullable=False),
    **_OPTIONS,
)

# Since version 2: notes and tags of staff, and saved filters of job lists.
NOTES = Table(
    "slurmscope_notes",
    METADATA,
    Column("note_id", _RUN, primary_key=True),
    Column("kind", _name(STATE_LENGTH), nullable=False),
    Column("cluster", _name(CLUSTER_LENGTH), nullable=False),
    Column("name", _name(), nullable=False),
    Column("author", _name(), nullable=False),
    Column("at_seconds", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Index("slurmscope_notes_name", "name", "kind", "cluster"),
    **_OPTIONS,
)

TAGS = Table(
    "slurmscope_tags",
    METADATA,
    Column("name", _name(), primary_key=True),
    Column("kind", _name(STATE_LENGTH), primary_key=True),
    Column("cluster", _name(CLUSTER_LENGTH), primary_key=True),
    Column("tag", _name(STATE_LENGTH), primary_key=True),
    Column("author", _name(), nullable=False),
    Column("at_seconds", BigInteger, nullable=False),
    Index("slurmscope_tags_tag", "tag", "at_seconds"),
    **_OPTIONS,
)

VIEWS = Table(
    "slurmscope_views",
    METADATA,
    Column("view_id", _RUN, primary_key=True),
    Column("owner", _name(), nullable=False),
    Column("name", _name(), nullable=False),
    Column("query", Text, nullable=False),
    Column("is_shared", Boolean, nullable=False),
    Index("slurmscope_views_owner", "owner", "name"),
    **_OPTIONS,
)

RUN_TABLES = (FINDINGS, JOB_NODES, ADVICE, INCOMPLETE, REPORTS, CURVES, JOBS)
"""Tables with rows of single runs, in the order in which they are deleted."""
