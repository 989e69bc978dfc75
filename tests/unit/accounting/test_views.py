# SPDX-License-Identifier: Apache-2.0
"""Statements open nothing but what is named, and odd names are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.accounting.server import (
    JOB_COLUMNS,
    STEP_COLUMNS,
    DatabaseUser,
    clusters_of,
    job_view,
    quote_name,
    render_grants,
    render_views,
    view_columns,
    view_names,
)
from slurmscope.core.errors import ServerError

JOB_TABLE = {
    "job_db_inx", "deleted", "id_job", "job_name", "id_user", "account", "partition", "state", "time_submit",
    "time_eligible", "time_start", "time_end", "time_suspended", "timelimit", "nodelist", "tres_alloc", "tres_req",
    "exit_code", "id_array_job", "id_array_task", "het_job_id", "het_job_offset", "state_reason_prev", "work_dir",
    "submit_line",
}  # fmt: skip
SCHEMA = {
    "lab_job_table": JOB_TABLE,
    "lab_step_table": set(STEP_COLUMNS),
    "lab_assoc_table": {"id_assoc", "user", "acct"},
    "qos_table": {"id", "name"},
    "cluster_table": {"name", "rpc_version"},
}


def views(**changed: set[str]) -> dict[str, str]:
    statements = render_views("slurm_acct_db", ["lab"], {**SCHEMA, **changed})
    return {statement.partition(" AS ")[0].rpartition(".")[2].strip("`"): statement for statement in statements}


@pytest.mark.parametrize("name", ["", "a`b", "a b", "a;b", "a'b", "a.b", "ä", "x" * 65, "a\n", "a\x00"])
def test_odd_names_are_refused(name: str) -> None:
    with pytest.raises(ServerError, match="not a name"):
        quote_name(name)
    with pytest.raises(ServerError):
        render_views("slurm_acct_db", [name], SCHEMA)


@given(st.text())
def test_quoted_name_is_one_name(name: str) -> None:
    try:
        quoted = quote_name(name)
    except ServerError:
        return
    assert f"`{name}`" == quoted
    assert 2 == quoted.count("`")


@pytest.mark.parametrize(("user", "host"), [("a'b", "localhost"), ("a", "x'; DROP"), ("", "h"), ("a", "")])
def test_odd_users_are_refused(user: str, host: str) -> None:
    with pytest.raises(ServerError, match="not a user"):
        render_grants(DatabaseUser(database="d", user=user, host=host), ["v"], [])


def test_every_cluster_has_views_and_the_seed_s_one_joins_them() -> None:
    schema = SCHEMA | {name.replace("lab_", "two_"): columns for name, columns in SCHEMA.items()}

    statements = render_views("slurm_acct_db", ["lab", "two"], schema)

    assert list(view_names(["lab", "two"])) == [
        statement.partition(" AS ")[0].rpartition(".")[2].strip("`") for statement in statements
    ]
    assert (
        "AS SELECT id_user, id_job, job_name FROM `slurm_acct_db`.`lab_job_table` UNION ALL "
        "SELECT id_user, id_job, job_name FROM `slurm_acct_db`.`two_job_table`"
    ) in statements[0]
    assert all("SQL SECURITY DEFINER" in statement for statement in statements)


def test_column_that_a_release_does_not_have_is_null() -> None:
    written = views()[job_view("lab")]

    assert "NULL AS `restart_cnt`" in written
    assert "j.submit_line AS `submit_line`" in written
    assert "j.restart_cnt AS `restart_cnt`" in views(lab_job_table=JOB_TABLE | {"restart_cnt"})[job_view("lab")]
    assert len(JOB_COLUMNS) == written.partition(" FROM ")[0].count(" AS `")


def test_views_have_the_columns_that_are_checked() -> None:
    checked = view_columns(["lab"])

    assert {"time_suspended", "tres_req"} <= set(checked[job_view("lab")])
    for name, statement in views().items():
        written = statement.partition(" AS SELECT ")[2].partition(" FROM ")[0].split(", ")
        assert set(checked[name]) <= {column.rpartition(" AS ")[2].strip("`") for column in written}


def test_missing_column_that_is_needed_is_named() -> None:
    with pytest.raises(ServerError, match=r"it lacks lab_job_table\.het_job_id, lab_job_table\.tres_alloc\Z"):
        views(lab_job_table=JOB_TABLE - {"het_job_id", "tres_alloc", "work_dir"})


def test_user_gets_the_views_and_loses_everything_else_first() -> None:
    reader = DatabaseUser(database="slurm_acct_db", user="slurmscope", host="10.1.%")

    statements = render_grants(reader, ["v1", "v2"], ["helpdesk"])

    assert (
        "CREATE USER IF NOT EXISTS 'slurmscope'@'10.1.%%' IDENTIFIED BY %s",
        "ALTER USER 'slurmscope'@'10.1.%%' IDENTIFIED BY %s",
        "REVOKE `helpdesk` FROM 'slurmscope'@'10.1.%'",
        "REVOKE ALL PRIVILEGES, GRANT OPTION FROM 'slurmscope'@'10.1.%'",
        "GRANT SELECT ON `slurm_acct_db`.`v1` TO 'slurmscope'@'10.1.%'",
        "GRANT SELECT ON `slurm_acct_db`.`v2` TO 'slurmscope'@'10.1.%'",
    ) == statements


def test_clusters_are_known_by_their_views() -> None:
    tables = ["slurmscope_two_job_view", "slurmscope_two_step_view", "user_job_view", "slurmscope_my-lab_job_view"]

    assert ("my-lab", "two") == clusters_of(tables)
