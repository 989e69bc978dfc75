# SPDX-License-Identifier: Apache-2.0
"""A database that is away, silent or something else is told in one sentence, and never with a password."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmscope.accounting.database import DatabaseAccounting
from slurmscope.accounting.sacct import SacctAccounting, open_accounting
from slurmscope.accounting.server import open_session
from slurmscope.accounting.settings import (
    AccountingSettings,
    DatabaseAddress,
    parse_database_address,
    parse_host,
    parse_name,
)
from slurmscope.core.errors import MissingExtraError, ServerRefused, ServerTimedOut, SourceError

PASSWORD = "tell-nobody-9d1c"


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n", encoding="ascii")
    return path


@contextlib.contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve one connection on a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        done = threading.Event()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                with contextlib.suppress(OSError):
                    answer(connection)
                done.wait(20)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            done.set()
            thread.join()


def ask(port: int, password_file: Path, timeout: float = 1.0) -> SourceError:
    settings = AccountingSettings(host=DatabaseAddress("127.0.0.1", port), password_file=password_file, timeout=timeout)
    with pytest.raises(SourceError) as caught:
        DatabaseAccounting(settings).read_jobs([1])
    assert PASSWORD not in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())
    return caught.value


def test_server_that_is_unreachable_is_reported(password_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    error = ask(port, password_file)

    assert isinstance(error, ServerRefused)
    assert f"127.0.0.1:{port}" in str(error)


def test_missing_socket_is_reported(password_file: Path, tmp_path: Path) -> None:
    settings = AccountingSettings(host=DatabaseAddress(socket=f"{tmp_path}/none.sock"), password_file=password_file)

    with pytest.raises(ServerRefused, match=r"none\.sock"), open_session(settings):
        pass


def test_server_that_says_nothing_is_abandoned(password_file: Path) -> None:
    with server(lambda _: None) as port:
        assert isinstance(ask(port, password_file), ServerTimedOut)


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 64, b"\xff" * 64, b"\x05\x00\x00\x00\x0a1.2.3"]
)
def test_server_of_another_kind_is_reported(password_file: Path, greeting: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(greeting)
        connection.shutdown(socket.SHUT_WR)

    with server(answer) as port:
        ask(port, password_file)


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)

    with pytest.raises(MissingExtraError, match="mariadb"), open_session(AccountingSettings()):
        pass


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (AccountingSettings(), SacctAccounting),
        (AccountingSettings(password_file=Path("/x")), DatabaseAccounting),
        (AccountingSettings(source="sacct", password_file=Path("/x")), SacctAccounting),
        (AccountingSettings(source="database"), DatabaseAccounting),
    ],
)
def test_database_is_queried_where_there_is_a_password(settings: AccountingSettings, expected: type) -> None:
    assert expected is type(open_accounting(settings, lambda _name, _arguments: b""))


@pytest.mark.parametrize(
    ("parse", "given"),
    [
        (parse_name, "a b"),
        (parse_name, ""),
        (parse_name, "a;b"),
        (parse_host, "a'b"),
        (parse_host, ""),
        (parse_database_address, "dbd:0"),
        (parse_database_address, "dbd:65536"),
        (parse_database_address, "::1"),
        (parse_database_address, ""),
    ],
)
def test_odd_settings_are_rejected(parse: Callable[[object], object], given: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse(given)


def test_good_settings_are_read() -> None:
    assert ("slurm_acct_db", "10.1.%") == (parse_name("slurm_acct_db"), parse_host("10.1.%"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("dbd", ("dbd", 3306, "")),
        ("dbd.example.org:3307", ("dbd.example.org", 3307, "")),
        ("[::1]:3307", ("::1", 3307, "")),
        ("/run/mysqld/mysqld.sock", ("localhost", 3306, "/run/mysqld/mysqld.sock")),
    ],
)
def test_address_of_a_database_is_a_host_a_port_or_a_socket(given: str, expected: tuple[str, int, str]) -> None:
    assert DatabaseAddress(*expected) == parse_database_address(given)
    assert given == str(parse_database_address(given))


class _Connection:
    """Stand for a connection of PyMySQL to a server of this version; records statements."""

    def __init__(self, version: str) -> None:
        self._version = version
        self.statements: list[str] = []

    def connect(self) -> None:
        """Accept the connection."""

    def close(self) -> None:
        """Close the connection."""

    def get_server_info(self) -> str:
        """Return the version from the greeting."""
        return self._version

    def cursor(self) -> contextlib.closing[_Connection]:
        """Return this connection as its own cursor."""
        return contextlib.closing(self)

    def execute(self, statement: str, _values: object) -> None:
        """Record a statement."""
        self.statements.append(statement)

    def fetchall(self) -> list[object]:
        """Return no rows."""
        return []


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        # MariaDB takes seconds, MySQL whole milliseconds.
        ("5.5.5-10.11.6-MariaDB", "SET SESSION max_statement_time = 2.500"),
        ("8.0.36", "SET SESSION max_execution_time = 2500"),
    ],
)
def test_server_gets_the_timeout_in_its_own_unit(
    version: str, expected: str, password_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = _Connection(version)
    monkeypatch.setattr("pymysql.connect", lambda **_: connection)

    with open_session(AccountingSettings(password_file=password_file, timeout=2.5)):
        pass

    assert [expected] == connection.statements
