# SPDX-License-Identifier: Apache-2.0
"""Addresses, passwords and packages of databases are read, or refused in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slurmscope.archive.drivers import read_password, require_package
from slurmscope.archive.settings import ArchiveSettings, parse_archive_url
from slurmscope.core.errors import ArchiveError, ConfigError, MissingExtraError, SlurmscopeError
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


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), (b"", "empty"), (b"x" * 5000, "longer"), (b"\xff\xfe", "UTF-8")]
)
def test_unusable_password_file_is_reported(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "password").write_bytes(content)

    with pytest.raises(ArchiveError, match=reason):
        read_password(tmp_path / "password")


def test_password_is_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b" a b \r\nsomething else\n")

    assert " a b " == read_password(tmp_path / "password")


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
