# SPDX-License-Identifier: Apache-2.0
"""A real MariaDB lets slurmscope's user read its views and nothing else, and ``check`` sees any difference."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from lab import ALICE, SlurmLab
from slurmscope.accounting.database import DatabaseAccounting
from slurmscope.accounting.grant import GrantSettings, check, grant, revoke
from slurmscope.accounting.server import JOB_COLUMNS, Denied, job_view, open_session
from slurmscope.accounting.settings import AccountingSettings
from slurmscope.core.errors import ConfigError, ServerError
from tests.e2e.accounting_access import ADMIN, administer, reader_settings

OTHER = "slurmscope_test_db"


@pytest.fixture
def settings(slurm_lab: SlurmLab, tmp_path: Path) -> Iterator[AccountingSettings]:
    """Give settings of a user that does not exist yet; it and its views are gone afterwards."""
    made = reader_settings(slurm_lab, tmp_path / "password")
    yield made
    revoke(made, ADMIN, is_dry_run=False)


@pytest.fixture
def two_clusters(slurm_lab: SlurmLab, settings: AccountingSettings) -> Iterator[AccountingSettings]:
    """Give a database with the tables of two clusters, and one job in each."""
    tables = ("job_table", "step_table", "assoc_table")
    administer(
        slurm_lab,
        f"DROP DATABASE IF EXISTS {OTHER}",
        f"CREATE DATABASE {OTHER}",
        *(f"CREATE TABLE {OTHER}.{name} LIKE slurm_acct_db.{name}" for name in ("cluster_table", "qos_table")),
        f"CREATE TABLE {OTHER}.tres_table AS SELECT * FROM slurm_acct_db.tres_table",
    )
    for number, cluster in enumerate(("big", "small-2"), 1):
        administer(
            slurm_lab,
            f"INSERT INTO {OTHER}.cluster_table (creation_time, name, federation, fed_state)"
            f" VALUES (1, '{cluster}', '', 0)",
            *(f"CREATE TABLE {OTHER}.`{cluster}_{name}` LIKE slurm_acct_db.lab_{name}" for name in tables),
            f"INSERT INTO {OTHER}.`{cluster}_job_table` SET id_job = {number}, id_user = {1000 + number},"
            " job_name = 'job', id_assoc = 0, id_resv = 0, id_wckey = 0, id_group = 0, het_job_id = 0,"
            " het_job_offset = 4294967294,"
            " cpus_req = 1, state_reason_prev = 0, nodes_alloc = 1, `partition` = 'debug', priority = 1, state = 3,"
            " time_submit = 1790000000, time_start = 1790000000, time_end = 1790000060, tres_alloc = '1=4,2=100,4=1'",
        )
    yield replace(settings, database=OTHER)
    revoke(replace(settings, database=OTHER), ADMIN, is_dry_run=False)
    administer(slurm_lab, f"DROP DATABASE {OTHER}")


def bad_lines(settings: AccountingSettings) -> list[str]:
    with closing(check(settings)) as lines:  # type: ignore[type-var]
        return [line.name for line in lines if not line.is_good]


def test_grant_can_be_repeated_and_check_agrees(settings: AccountingSettings) -> None:
    first = grant(settings, ADMIN, is_dry_run=False)
    second = grant(settings, ADMIN, is_dry_run=False)

    assert first == second
    assert [] == bad_lines(settings)


def test_password_is_made_up_for_its_owner_alone_and_never_shown(settings: AccountingSettings) -> None:
    statements = grant(settings, ADMIN, is_dry_run=False)

    assert settings.password_file is not None
    assert 0o600 == settings.password_file.stat().st_mode & 0o777
    password = settings.password_file.read_text(encoding="ascii").strip()
    assert len(password) >= 32
    assert not any(password in statement for statement in statements)


@pytest.mark.parametrize("password", ["it's 100 % \\safe\\ %s", 'quo"te`', "näme-✓"])
def test_password_that_was_given_is_used(settings: AccountingSettings, password: str) -> None:
    assert settings.password_file is not None
    settings.password_file.write_text(password + "\n", encoding="utf-8")
    settings.password_file.chmod(0o600)

    grant(settings, ADMIN, is_dry_run=False)

    assert [] == bad_lines(settings)


def test_dry_run_changes_nothing(slurm_lab: SlurmLab, settings: AccountingSettings) -> None:
    before = administer(slurm_lab, "SELECT table_name FROM information_schema.views ORDER BY 1")

    shown = grant(settings, ADMIN, is_dry_run=True)

    assert f"CREATE USER IF NOT EXISTS '{settings.user}'@'localhost' IDENTIFIED BY '********'" in shown
    assert settings.password_file is not None
    assert not settings.password_file.exists()
    assert () == administer(slurm_lab, f"SELECT 1 FROM mysql.user WHERE User = '{settings.user}'")
    assert before == administer(slurm_lab, "SELECT table_name FROM information_schema.views ORDER BY 1")


def test_whatever_else_the_user_had_is_seen_and_taken_away(slurm_lab: SlurmLab, settings: AccountingSettings) -> None:
    grant(settings, ADMIN, is_dry_run=False)
    account = f"'{settings.user}'@'localhost'"
    administer(
        slurm_lab,
        "CREATE ROLE IF NOT EXISTS helpdesk",
        "GRANT SELECT ON mysql.user TO helpdesk",
        f"GRANT helpdesk TO {account}",
        f"GRANT ALL PRIVILEGES ON slurm_acct_db.* TO {account} WITH GRANT OPTION",
    )
    try:
        bad = bad_lines(settings)
        assert {"table lab_job_table", "table user_table", "writing user_job_view", "everything else", "rights"} <= set(
            bad
        )

        grant(settings, ADMIN, is_dry_run=False)

        assert [] == bad_lines(settings)
    finally:
        administer(slurm_lab, "DROP ROLE helpdesk")


def test_test_databases_of_mariadb_are_named_and_no_fault(slurm_lab: SlurmLab, settings: AccountingSettings) -> None:
    # As mariadb-install-db leaves them, unless it is told to skip them.
    administer(
        slurm_lab,
        "CREATE DATABASE test",
        "CREATE TABLE test.anything (x INT)",
        "GRANT ALL PRIVILEGES ON test.* TO PUBLIC",
        r"GRANT ALL PRIVILEGES ON `test\_%`.* TO PUBLIC",
    )
    try:
        grant(settings, ADMIN, is_dry_run=False)

        with closing(check(settings)) as lines:  # type: ignore[type-var]
            messages = {line.name: line.message for line in lines}
        assert "no other privileges are granted" == messages["rights"]
        assert [] == bad_lines(settings)
        assert "mariadb-secure-installation" in messages["everything else"]

        administer(slurm_lab, "GRANT SELECT ON mysql.user TO PUBLIC")
        assert {"everything else", "rights"} <= set(bad_lines(settings))
        with closing(check(settings)) as lines:  # type: ignore[type-var]
            assert {"rights": "every database user has these: REVOKE them FROM PUBLIC"} == {
                line.name: line.advice for line in lines if line.name == "rights"
            }
    finally:
        administer(
            slurm_lab,
            "REVOKE ALL PRIVILEGES, GRANT OPTION FROM PUBLIC",
            "DROP DATABASE test",
        )


def test_secrets_and_writing_are_out_of_reach(settings: AccountingSettings) -> None:
    grant(settings, ADMIN, is_dry_run=False)

    with open_session(settings) as session:
        for statement in (
            "SELECT admin_comment FROM lab_job_table",
            "SELECT batch_script FROM lab_job_script_table",
            "SELECT * FROM user_table",
            "SELECT * FROM mysql.user",
            "DELETE FROM user_job_view",
            "UPDATE user_job_view SET job_name = 'x'",
            "CREATE TABLE mine (x INT)",
            "DROP VIEW user_job_view",
            "SELECT LOAD_FILE('/etc/passwd') INTO OUTFILE '/tmp/slurmscope-must-not-exist'",
        ):
            with pytest.raises(Denied):
                session.query(statement)


def test_seed_s_question_is_answered(clean_lab: SlurmLab, settings: AccountingSettings) -> None:
    job = clean_lab.submit(ALICE, "--job-name=seed", script="true")
    # slurmdbd may learn of the end before it learns of the name.
    clean_lab.wait_for(lambda: "seed" in clean_lab.run("sacct", "-n", "-P", "-X", "-j", str(job), "-o", "JobName"))
    uid = int(clean_lab.run("sacct", "-n", "-P", "-X", "-j", str(job), "-o", "UID"))
    grant(settings, ADMIN, is_dry_run=False)

    with open_session(settings) as session:
        rows = session.query("SELECT id_job, job_name FROM user_job_view WHERE id_user = %s", [uid])

    assert (job, "seed") in rows


def test_every_cluster_of_the_database_is_read(two_clusters: AccountingSettings) -> None:
    grant(two_clusters, ADMIN, is_dry_run=False)

    records = list(DatabaseAccounting(two_clusters).read_ended(1_790_000_000, 1_790_000_100))

    assert [("big", 1, 1001, 4, 100 << 20), ("small-2", 2, 1002, 4, 100 << 20)] == [
        (record.cluster, record.job_id, record.uid, record.cpus, record.memory_bytes) for record in records
    ]
    accounting = DatabaseAccounting(two_clusters)
    assert ("big", "small-2") == accounting.clusters()
    small = accounting.of("small-2")
    assert (("small-2",), [2]) == (
        small.clusters(), [record.job_id for record in small.read_ended(1_790_000_000, 1_790_000_100)],
    )  # fmt: skip
    with pytest.raises(ServerError, match="has no job views of large that we may read"):
        accounting.of("large").read_jobs([1])
    assert [] == bad_lines(two_clusters)


def test_view_that_lacks_a_column_is_noticed_and_made_anew(
    slurm_lab: SlurmLab, two_clusters: AccountingSettings
) -> None:
    grant(two_clusters, ADMIN, is_dry_run=False)
    administer(slurm_lab, f"UPDATE {OTHER}.big_job_table SET time_suspended = 20")
    view = f"{OTHER}.{job_view('big')}"
    old = ", ".join(f"`{name}`" for name in JOB_COLUMNS if name != "time_suspended")
    select = f"CREATE OR REPLACE SQL SECURITY DEFINER VIEW {view} AS SELECT {old} FROM {OTHER}.as_before"
    administer(slurm_lab, f"CREATE TABLE {OTHER}.as_before AS SELECT * FROM {view}", select)

    with pytest.raises(ServerError, match="time_suspended"):
        DatabaseAccounting(two_clusters).read_jobs([1])
    assert [f"view {job_view('big')}"] == bad_lines(two_clusters)

    grant(two_clusters, ADMIN, is_dry_run=False)
    (record,) = DatabaseAccounting(two_clusters).read_jobs([1])
    assert (4, 20) == (record.cpus, record.suspended_seconds)
    assert [] == bad_lines(two_clusters)


def test_job_that_is_suspended_now_is_told_by_the_clock_of_the_server(
    slurm_lab: SlurmLab, two_clusters: AccountingSettings
) -> None:
    grant(two_clusters, ADMIN, is_dry_run=False)
    administer(
        slurm_lab,
        f"UPDATE {OTHER}.big_job_table SET state = 2, time_end = 0, time_suspended = UNIX_TIMESTAMP() - 500",
    )

    (record,) = DatabaseAccounting(two_clusters).read_jobs([1])

    assert "SUSPENDED" == record.state
    assert 500 <= record.suspended_seconds < 600


def test_schema_without_needed_columns_is_named(slurm_lab: SlurmLab, two_clusters: AccountingSettings) -> None:
    administer(slurm_lab, f"ALTER TABLE {OTHER}.big_job_table DROP COLUMN tres_alloc, DROP COLUMN work_dir")

    with pytest.raises(ServerError, match=r"it lacks big_job_table\.tres_alloc\Z"):
        grant(two_clusters, ADMIN, is_dry_run=False)


def test_schema_without_optional_columns_is_read(slurm_lab: SlurmLab, two_clusters: AccountingSettings) -> None:
    administer(slurm_lab, f"ALTER TABLE {OTHER}.big_job_table DROP COLUMN submit_line, DROP COLUMN work_dir")

    grant(two_clusters, ADMIN, is_dry_run=False)

    (record,) = DatabaseAccounting(two_clusters).read_jobs([1])
    assert ("", "") == (record.submit_line, record.work_dir)


def test_odd_cluster_is_refused(slurm_lab: SlurmLab, two_clusters: AccountingSettings) -> None:
    administer(
        slurm_lab,
        f"UPDATE {OTHER}.cluster_table SET name = 'b;ig' WHERE name = 'big'",
        f"RENAME TABLE {OTHER}.big_job_table TO {OTHER}.`b;ig_job_table`",
    )

    with pytest.raises(ServerError, match="b;ig"):
        grant(two_clusters, ADMIN, is_dry_run=False)


def test_revoke_leaves_what_others_were_given(slurm_lab: SlurmLab, settings: AccountingSettings) -> None:
    grant(settings, ADMIN, is_dry_run=False)
    administer(
        slurm_lab,
        "CREATE OR REPLACE USER petricore@localhost",
        "GRANT SELECT ON slurm_acct_db.user_job_view TO petricore@localhost",
    )
    try:
        shown = revoke(settings, ADMIN, is_dry_run=True)
        assert [] == bad_lines(settings)

        assert shown == revoke(settings, ADMIN, is_dry_run=False)

        views = administer(
            slurm_lab, "SELECT table_name FROM information_schema.views WHERE table_schema = 'slurm_acct_db'"
        )
        assert (("user_job_view",),) == views
        assert () == administer(slurm_lab, f"SELECT 1 FROM mysql.user WHERE User = '{settings.user}'")
        assert "connection" in bad_lines(settings)
    finally:
        administer(slurm_lab, "DROP USER petricore@localhost", "DROP VIEW IF EXISTS slurm_acct_db.user_job_view")


def test_password_file_must_be_named_and_users_must_differ(settings: AccountingSettings) -> None:
    with pytest.raises(ConfigError, match="password-file"):
        grant(replace(settings, password_file=None), ADMIN, is_dry_run=True)
    with pytest.raises(ConfigError, match="must differ"):
        grant(settings, GrantSettings(admin_user=settings.user), is_dry_run=True)


def test_commands_say_what_they_did_and_end_with_a_code(settings: AccountingSettings) -> None:
    assert settings.password_file is not None
    flags = (
        f"--accounting.host={settings.host}",
        f"--accounting.user={settings.user}",
        f"--accounting.password-file={settings.password_file}",
    )

    def run(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "slurmscope", "database", *words, *flags],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
        return done.returncode, done.stdout + done.stderr

    assert 1 == run("check")[0]
    code, shown = run("grant")
    assert 0 == code
    assert f"The password is in {settings.password_file}" in shown
    settings.password_file.chmod(0o604)
    code, shown = run("check")
    assert 1 == code
    assert "is readable by all users" in shown
    settings.password_file.chmod(0o600)
    code, shown = run("check")
    assert 0 == code
    assert shown.endswith("All checks passed.\n")
    assert "IDENTIFIED" not in shown
    assert 0 == run("revoke")[0]
    assert 1 == run("check")[0]
