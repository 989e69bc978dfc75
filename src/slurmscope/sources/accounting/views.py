# SPDX-License-Identifier: Apache-2.0
"""Write the statements that open a few columns of Slurm's accounting database to one user, and nothing else.

The views run with the rights of who made them (``SQL SECURITY DEFINER``): their user needs none on the tables. Left out
is all that a report does not need: scripts, environments, comments, associations, who may do what.

Names cannot be parameters of such statements. They all go through :func:`quote_name`, which knows no odd letters.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from slurmscope.errors import ServerError

SEED_VIEW = "user_job_view"
TRES_VIEW = "slurmscope_tres_view"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_HOST = re.compile(r"[A-Za-z0-9_.%:/-]{1,255}\Z")
_JOB_VIEW = re.compile(r"slurmscope_(.+)_job_view\Z")

JOB_COLUMNS: Mapping[str, str] = {
    "job_db_inx": "j.job_db_inx", "id_job": "j.id_job", "job_name": "j.job_name", "id_user": "j.id_user",
    "user_name": "a.user", "account": "COALESCE(NULLIF(a.acct, ''), j.account)", "partition_name": "j.`partition`",
    "qos_name": "q.name", "state": "j.state", "time_submit": "j.time_submit", "time_eligible": "j.time_eligible",
    "time_start": "j.time_start", "time_end": "j.time_end", "time_suspended": "j.time_suspended",
    "timelimit": "j.timelimit", "nodelist": "j.nodelist", "tres_alloc": "j.tres_alloc", "tres_req": "j.tres_req",
    "exit_code": "j.exit_code",
    "id_array_job": "j.id_array_job", "id_array_task": "j.id_array_task", "het_job_id": "j.het_job_id",
    "het_job_offset": "j.het_job_offset", "state_reason_prev": "j.state_reason_prev", "work_dir": "j.work_dir",
    "submit_line": "j.submit_line", "restart_cnt": "j.restart_cnt",
}  # fmt: skip
"""Columns of the job view, each with where it comes from."""
LATER_JOB_COLUMNS = frozenset({"time_suspended"})
"""Columns that job views made by an earlier release do not have; until they are made anew, these are not known."""
STEP_COLUMNS: Mapping[str, str] = {
    name: f"s.{name}"
    for name in (
        "job_db_inx", "id_step", "step_het_comp", "state", "time_start", "time_end", "task_cnt", "nodes_alloc",
        "exit_code", "user_sec", "user_usec", "sys_sec", "sys_usec", "tres_usage_in_max",
    )
}  # fmt: skip
"""Columns of the step view, each with where it comes from."""
TRES_COLUMNS = ("id", "type", "name")
_SEED_COLUMNS = ("id_user", "id_job", "job_name")
# What some releases do not have is read as not known.
_OPTIONAL = frozenset({"work_dir", "submit_line", "restart_cnt", "state_reason_prev"})

_WORD = re.compile(r"\b([jsaq])\.`?([a-z_]+)")
Schema = Mapping[str, Collection[str]]
"""Columns of every table of the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseUser:
    """Name the user of the database that reads for us, and where it may come from."""

    database: str
    user: str
    host: str

    @property
    def account(self) -> str:
        """Return the user as SQL names it."""
        if not _NAME.match(self.user) or not _HOST.match(self.host):
            raise ServerError(f"{self.user!r}@{self.host!r} is not a user that slurmscope makes in a database")
        return f"'{self.user}'@'{self.host}'"


def quote_name(name: str) -> str:
    """Quote the name of a database, table, view or column; one with odd letters is refused."""
    if not _NAME.match(name):
        raise ServerError(f"{name!r} is not a name of letters, digits, _ and -; slurmscope makes no views for it")
    return f"`{name}`"


def render_select(columns: Sequence[str], table: str) -> str:
    """Begin a question; columns are our own words, and the table went through :func:`quote_name`."""
    return f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608 - nothing in it was given by anybody


def job_view(cluster: str) -> str:
    """Name the view with the jobs of a cluster."""
    return f"slurmscope_{cluster}_job_view"


def step_view(cluster: str) -> str:
    """Name the view with the steps of a cluster."""
    return f"slurmscope_{cluster}_step_view"


def clusters_of(tables: Sequence[str]) -> tuple[str, ...]:
    """Return the clusters whose job views are among the tables that can be seen."""
    return tuple(found[1] for found in map(_JOB_VIEW.match, sorted(tables)) if found)


def view_names(clusters: Sequence[str]) -> tuple[str, ...]:
    """Name every view that is made for these clusters."""
    return tuple(view_columns(clusters))


def view_columns(clusters: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Name the columns of every view that is made for these clusters."""
    columns: dict[str, tuple[str, ...]] = {SEED_VIEW: _SEED_COLUMNS, TRES_VIEW: TRES_COLUMNS}
    for cluster in clusters:
        columns |= {job_view(cluster): tuple(JOB_COLUMNS), step_view(cluster): tuple(STEP_COLUMNS)}
    return columns


def render_views(database: str, clusters: Sequence[str], schema: Schema) -> tuple[str, ...]:
    """Write the statements that make the views, or replace them; raises ServerError when a column is missing."""
    create = f"CREATE OR REPLACE SQL SECURITY DEFINER VIEW {quote_name(database)}."
    selects = {
        SEED_VIEW: " UNION ALL ".join(
            render_select(_SEED_COLUMNS, _table(database, f"{cluster}_job_table")) for cluster in clusters
        ),
        TRES_VIEW: f"{render_select(TRES_COLUMNS, _table(database, 'tres_table'))} WHERE deleted = 0",
    }
    for cluster in clusters:
        selects[job_view(cluster)] = _select_jobs(database, cluster, schema)
        selects[step_view(cluster)] = _select_steps(database, cluster, schema)
    return tuple(f"{create}{quote_name(name)} AS {select}" for name, select in selects.items())


def render_grants(reader: DatabaseUser, views: Sequence[str], roles: Sequence[str]) -> tuple[str, ...]:
    """Write the statements that give a user, whose password is the parameter, these views and nothing else."""
    return (
        # A % of the host would be taken for a parameter.
        f"CREATE USER IF NOT EXISTS {reader.account.replace('%', '%%')} IDENTIFIED BY %s",
        f"ALTER USER {reader.account.replace('%', '%%')} IDENTIFIED BY %s",
        *(f"REVOKE {quote_name(role)} FROM {reader.account}" for role in roles),
        f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {reader.account}",
        *(f"GRANT SELECT ON {quote_name(reader.database)}.{quote_name(view)} TO {reader.account}" for view in views),
    )


def _select_jobs(database: str, cluster: str, schema: Schema) -> str:
    tables = {"j": f"{cluster}_job_table", "a": f"{cluster}_assoc_table", "q": "qos_table"}
    return (
        f"{render_select(_columns(JOB_COLUMNS, tables, schema), _table(database, tables['j']))} j "
        f"LEFT JOIN {_table(database, tables['a'])} a ON a.id_assoc = j.id_assoc "
        f"LEFT JOIN {_table(database, tables['q'])} q ON q.id = j.id_qos WHERE j.deleted = 0"
    )


def _select_steps(database: str, cluster: str, schema: Schema) -> str:
    tables = {"s": f"{cluster}_step_table"}
    columns = _columns(STEP_COLUMNS, tables, schema)
    return f"{render_select(columns, _table(database, tables['s']))} s WHERE s.deleted = 0"


def _columns(wanted: Mapping[str, str], tables: Mapping[str, str], schema: Schema) -> list[str]:
    """Write the columns of a view; those that this release of Slurm does not have are NULL, or missed in a sentence."""
    missing: list[str] = []
    written = []
    for name, source in wanted.items():
        absent = [
            f"{tables[short]}.{column}"
            for short, column in _WORD.findall(source)
            if column not in schema.get(tables[short], ())
        ]
        if absent and name not in _OPTIONAL:
            missing += absent
        written.append(f"{'NULL' if absent else source} AS {quote_name(name)}")
    if missing:
        raise ServerError(f"the accounting database is not one of Slurm 22.05 or later: it lacks {', '.join(missing)}")
    return written


def _table(database: str, name: str) -> str:
    return f"{quote_name(database)}.{quote_name(name)}"
