# SPDX-License-Identifier: Apache-2.0
"""A database on another host is asked over TLS, and only when it is the right one."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.mariadb import install_database, tmpdir_of
from lab.requirements import SEARCH_PATH, check_machine, find_program
from lab.waiting import wait_until
from slurmscope.accounting.server import Denied, open_session
from slurmscope.accounting.settings import AccountingSettings, DatabaseAddress
from slurmscope.core.errors import ServerRefused, SourceError
from tests.fakes.certificates import make_authority, make_identity

PASSWORD = "correct horse 100 %"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def settings(folder: Path) -> Iterator[AccountingSettings]:
    """Run a MariaDB with a certificate for 127.0.0.1 and a user that has to use it."""
    check_machine()
    authority = make_authority(folder, "authority")
    make_authority(folder, "stranger")
    identity = make_identity(folder, "server", authority, "IP:127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    install_database(folder / "data")
    argv = [
        find_program("mariadbd", "mariadb-server"), "--no-defaults", "--user=root", f"--datadir={folder}/data",
        f"--tmpdir={tmpdir_of(folder / 'data')}",
        f"--socket={folder}/sock", f"--pid-file={folder}/pid", "--bind-address=127.0.0.1", f"--port={port}",
        f"--ssl-cert={identity.cert}", f"--ssl-key={identity.key}", f"--ssl-ca={authority.cert}",
        "--skip-name-resolve", "--innodb-buffer-pool-size=64M",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log, env={"PATH": SEARCH_PATH, "LC_ALL": "C"})
    try:
        wait_until(lambda: _is_ready(folder), "a MariaDB with TLS", timeout_seconds=60)
        with open_session(
            AccountingSettings(host=DatabaseAddress(socket=f"{folder}/sock"), user="root", database="mysql")
        ) as session:
            session.query("CREATE USER reader@'127.0.0.1' IDENTIFIED BY %s REQUIRE SSL", [PASSWORD])
        (folder / "password").write_text(PASSWORD + "\n", encoding="ascii")
        yield AccountingSettings(
            host=DatabaseAddress("127.0.0.1", port), user="reader", database="information_schema",
            password_file=folder / "password", tls_ca_file=authority.cert,
        )  # fmt: skip
    finally:
        server.terminate()
        server.wait(30)


def _is_ready(folder: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(str(folder / "sock")) == 0


def changed(settings: AccountingSettings, **values: object) -> AccountingSettings:
    return replace(settings, **values)  # type: ignore[arg-type]


def test_connection_is_encrypted(settings: AccountingSettings) -> None:
    with open_session(settings) as session:
        ((_, cipher),) = session.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")

    assert cipher


def test_server_of_another_authority_is_refused(settings: AccountingSettings, folder: Path) -> None:
    with (
        pytest.raises(ServerRefused, match="certificate"),
        open_session(changed(settings, tls_ca_file=folder / "stranger.pem")),
    ):
        pass


def test_server_of_another_name_is_refused(settings: AccountingSettings) -> None:
    with (
        pytest.raises(SourceError, match="certificate"),
        open_session(changed(settings, host=replace(settings.host, host="localhost"))),
    ):
        pass


def test_user_who_must_be_encrypted_is_not_let_in_without(settings: AccountingSettings) -> None:
    with pytest.raises(Denied), open_session(changed(settings, tls_ca_file=None)):
        pass


def test_wrong_password_is_refused_and_not_shown(settings: AccountingSettings, tmp_path: Path) -> None:
    wrong = tmp_path / "password"
    wrong.write_text("hunter2\n", encoding="ascii")

    with pytest.raises(Denied) as caught, open_session(changed(settings, password_file=wrong)):
        pass

    assert "hunter2" not in str(caught.value)
