# SPDX-License-Identifier: Apache-2.0
"""Tokens are created, listed and revoked; staff access is listed."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slurmscope.archive.access import AuditLog, TokenStore
from slurmscope.archive.engine import Database
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.cli import slurmscope
from slurmscope.core.errors import ConfigError
from slurmscope.jobs.viewer import Viewer, ViewerRole

DAY_SECONDS = 86400


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Give an archive as the portal has made it."""
    with closing(Database(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as made:
        AuditLog(made).list_rows()
        yield made


def invoke(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(slurmscope, [*arguments, "--archive.url", str(folder / "archive.db")])


def create(folder: Path, *arguments: str) -> str:
    done = invoke(folder, "token", "create", *arguments)
    assert 0 == done.exit_code, done.output
    return done.stdout.removesuffix("\n")


def test_new_token_lets_its_holder_in_as_the_user_it_names(tmp_path: Path, database: Database) -> None:
    token = create(tmp_path, "--name", "ada")

    assert Viewer(name="ada") == TokenStore(database).find(token)


def test_role_of_the_token_is_the_one_that_was_given(tmp_path: Path, database: Database) -> None:
    token = create(tmp_path, "--name", "prometheus", "--role", "support")

    assert Viewer(name="prometheus", role=ViewerRole.SUPPORT) == TokenStore(database).find(token)


def test_standard_output_holds_the_token_and_nothing_else(tmp_path: Path, database: Database) -> None:
    done = invoke(tmp_path, "token", "create", "--name", "ada")

    assert 1 == len(done.stdout.splitlines())
    assert "cannot be shown again" in done.stderr


def test_only_the_hash_of_a_token_is_kept(tmp_path: Path, database: Database) -> None:
    token = create(tmp_path, "--name", "ada")
    database.close()

    with closing(sqlite3.connect(tmp_path / "archive.db")) as connection:
        kept = "\n".join(connection.iterdump())
    assert token not in kept
    assert hashlib.sha256(token.encode()).hexdigest() in kept


def test_token_is_refused_after_its_days(tmp_path: Path, database: Database) -> None:
    token = create(tmp_path, "--name", "ada", "--days", "2")

    now = time.time()
    assert TokenStore(database, wall_clock=lambda: now + 1.9 * DAY_SECONDS).find(token) is not None
    assert TokenStore(database, wall_clock=lambda: now + 2.1 * DAY_SECONDS).find(token) is None


def test_list_shows_whose_what_for_and_when_but_no_token(tmp_path: Path, database: Database) -> None:
    store = TokenStore(database, wall_clock=lambda: 1_700_000_000)
    first = store.create("ada", purpose="nightly plot", expires_seconds=1_800_000_000)
    second = store.create("prometheus", ViewerRole.SUPPORT)
    store.find(second)

    done = invoke(tmp_path, "token", "list")

    # 1,700,000,000 is 2023-11-14 22:13:20 UTC, 1,800,000,000 is 2027-01-15.
    expected = [
        ["2", "prometheus", "support", "2023-11-14", "2023-11-14", "22:13:20", "UTC", "never"],
        ["1", "ada", "user", "2023-11-14", "never", "2027-01-15", "nightly", "plot"],
    ]
    assert expected == [line.split() for line in done.stdout.splitlines()[1:]]
    assert first not in done.output
    assert second not in done.output


def test_token_that_is_there_is_not_created_again(tmp_path: Path, database: Database) -> None:
    wanted = ("--name", "prometheus", "--role", "support", "--purpose", "scrape", "--if-missing")

    assert ["", ""] == [create(tmp_path, *wanted) and "", create(tmp_path, *wanted)]
    assert 1 == len(TokenStore(database).list_tokens())


def test_other_purpose_or_expired_token_does_not_count(tmp_path: Path, database: Database) -> None:
    TokenStore(database).create("ada", ViewerRole.USER, purpose="", expires_seconds=int(time.time()) - 1)

    for arguments in ((), ("--purpose", "notebook"), ("--role", "support")):
        assert create(tmp_path, "--name", "ada", "--if-missing", *arguments)


def test_list_as_json_has_ids_for_scripts(tmp_path: Path, database: Database) -> None:
    create(tmp_path, "--name", "ada", "--purpose", "notebook")

    (token,) = json.loads(invoke(tmp_path, "token", "list", "--json").stdout)

    assert (1, "ada", "user", "notebook", None) == tuple(
        token[key] for key in ("token_id", "name", "role", "purpose", "expires_seconds")
    )


def test_escape_codes_in_the_list_are_spelled_out(tmp_path: Path, database: Database) -> None:
    create(tmp_path, "--name", "ada", "--purpose", "\x1b[2J\nroot")

    shown = invoke(tmp_path, "token", "list").stdout

    assert "\x1b" not in shown
    assert 2 == len(shown.splitlines())


def test_revoked_token_is_refused_and_others_stay(tmp_path: Path, database: Database) -> None:
    first, second = create(tmp_path, "--name", "ada"), create(tmp_path, "--name", "bob")

    done = invoke(tmp_path, "token", "revoke", "1")

    assert "token 1 is revoked\n" == done.stdout
    assert [None, Viewer(name="bob")] == [TokenStore(database).find(token) for token in (first, second)]


def test_revoking_an_unknown_token_is_refused(tmp_path: Path, database: Database) -> None:
    done = invoke(tmp_path, "token", "revoke", "7")

    assert isinstance(done.exception, ConfigError)
    assert "there is no token 7; see slurmscope token list" == str(done.exception)


def test_empty_list_is_said_in_words(tmp_path: Path, database: Database) -> None:
    assert "no tokens\n" == invoke(tmp_path, "token", "list").stdout


@pytest.mark.parametrize("name", ["", "ada;drop", "a b", "-x", "Ădă"])
def test_name_that_no_user_can_have_is_refused(tmp_path: Path, database: Database, name: str) -> None:
    done = invoke(tmp_path, "token", "create", "--name", name)

    assert isinstance(done.exception, ConfigError)
    assert () == TokenStore(database).list_tokens()


@pytest.mark.parametrize("command", [("token", "list"), ("token", "create", "--name", "ada"), ("audit",)])
def test_archive_is_never_made_by_a_command_that_root_may_run(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = invoke(tmp_path, *command)

    assert isinstance(done.exception, ConfigError)
    assert "there is no readable archive" in str(done.exception)
    assert [] == list(tmp_path.iterdir())


def test_staff_access_is_listed_newest_first(tmp_path: Path, database: Database) -> None:
    log = AuditLog(database, wall_clock=lambda: 1_700_000_000)
    sue = Viewer(name="sue", role=ViewerRole.SUPPORT)
    for job in (1, 2, 3):
        log.audit(sue, "/jobs/{shown_id}", f"job {job}")

    done = invoke(tmp_path, "audit", "--limit", "2")
    rest = invoke(tmp_path, "audit", "--before", "2")

    expected = [
        ["3", "2023-11-14", "22:13:20", "UTC", "sue", "support", "job", "3", "/jobs/{shown_id}"],
        ["2", "2023-11-14", "22:13:20", "UTC", "sue", "support", "job", "2", "/jobs/{shown_id}"],
    ]
    assert expected == [line.split() for line in done.stdout.splitlines()[1:]]
    assert ["1"] == [line.split()[0] for line in rest.stdout.splitlines()[1:]]


def test_access_is_listed_by_user_and_time(tmp_path: Path, database: Database) -> None:
    now = time.time()
    for hours, name in ((30, "sue"), (3, "eve"), (1, "sue")):
        log = AuditLog(database, wall_clock=lambda hours=hours: now - hours * 3600)  # type: ignore[misc]
        log.audit(Viewer(name=name, role=ViewerRole.SUPPORT), "/jobs/{shown_id}", f"job {hours}")

    def listed(*arguments: str) -> list[str]:
        return [line.split()[0] for line in invoke(tmp_path, "audit", *arguments).stdout.splitlines()[1:]]

    assert ["3", "1"] == listed("--user", "sue")
    assert ["3", "2"] == listed("--since", "1d")
    assert ["3"] == listed("--user", "sue", "--since", "1d")
    assert [] == listed("--user", "nobody")


def test_time_that_is_none_is_refused(tmp_path: Path, database: Database) -> None:
    done = invoke(tmp_path, "audit", "--since", "yesterday")

    assert isinstance(done.exception, ConfigError)
    assert "--since: 'yesterday' is not a duration such as 10, 30s or 5m" == str(done.exception)


def test_hostile_subject_stays_in_its_line(tmp_path: Path, database: Database) -> None:
    AuditLog(database).audit(Viewer(name="sue", role=ViewerRole.ADMIN), "/users/{name}", "user \x1b[31m\neve")

    shown = invoke(tmp_path, "audit").stdout

    assert "\x1b" not in shown
    assert 2 == len(shown.splitlines())
