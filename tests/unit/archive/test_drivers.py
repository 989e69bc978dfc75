# SPDX-License-Identifier: Apache-2.0
"""Addresses, passwords and packages of databases are read, or refused in one sentence."""

from __future__ import annotations

import sys

import pytest

from slurmscope.archive.drivers import require_package
from slurmscope.archive.settings import ArchiveSettings, parse_archive_url
from slurmscope.core.errors import ConfigError, MissingExtraError, SlurmscopeError
from slurmscope.reports.sources import open_archive
from tests.fakes.archive_file import refusal


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/var/lib/a.db", "sqlite:////var/lib/a.db"),
        ("sqlite:////a", "sqlite:////a"),
        ("mariadb://slurmscope@db:3306/archive", "mariadb://slurmscope@db:3306/archive"),
        ("postgresql://u@/d?host=/run/pg", "postgresql://u@/d?host=/run/pg"),
        # Of several hosts, the one that accepts writes.
        ("postgresql://u@a:1,b:2/d", "postgresql://u@/d?host=a:1&host=b:2&target_session_attrs=read-write"),
        (
            "postgresql://u@a,b/d?sslmode=require&target_session_attrs=any",
            "postgresql://u@/d?host=a&host=b&sslmode=require&target_session_attrs=any",
        ),
        (
            "postgresql://u@/d?host=/a&host=/b&sslmode=disable",
            "postgresql://u@/d?host=/a&host=/b&sslmode=disable&target_session_attrs=read-write",
        ),
    ],
)
def test_address_is_read(given: str, expected: str) -> None:
    assert expected == parse_archive_url(given)


@pytest.mark.parametrize(
    "given",
    [
        "", "a.db", "sqlite://a.db", "sqlite:///a.db", "sqlite:////a.db?mode=memory", "oracle://u@h/d", "mariadb://u@h",
        "mariadb://u:secret@h/d", "postgresql://u@h/d?password=secret", "mariadb://u@h:x/d", "postgresql://u@h/d#secret",
        "mariadb://u@h/d?init_command=secret", 5, "mariadb://u@a:1,b:2/d", "postgresql://u:secret@a:1,b:2/d",
        "postgresql://u@[::1]:1,b:2/d",
    ],
)  # fmt: skip
def test_wrong_address_is_rejected_without_its_secrets(given: object) -> None:
    with pytest.raises(ValueError) as caught:
        parse_archive_url(given)

    assert "secret" not in str(caught.value)


def test_unknown_kind_of_database_is_a_mistake_of_the_configuration() -> None:
    with pytest.raises(ConfigError) as caught:
        open_archive(ArchiveSettings(url="oracle://u@h/d"))

    assert isinstance(caught.value, SlurmscopeError)


def test_server_that_is_not_there_is_one_sentence() -> None:
    for url in ("mariadb://u@127.0.0.1:1/d", "postgresql://u@127.0.0.1:1/d"):
        assert refusal(open_archive(ArchiveSettings(url=url, timeout=2.0))).startswith(f"the archive {url} could not")


def test_missing_package_is_reported_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("slurmscope.archive.sql_archive", "sqlalchemy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)

    with pytest.raises(MissingExtraError, match=r"slurmscope\[reports\]"):
        open_archive(ArchiveSettings())


def test_missing_driver_is_reported_with_the_extra_that_brings_it() -> None:
    with pytest.raises(MissingExtraError, match=r"slurmscope\[mariadb\]"):
        require_package("no_such_driver", "an archive in MariaDB", "mariadb")
