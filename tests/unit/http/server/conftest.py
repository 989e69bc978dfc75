# SPDX-License-Identifier: Apache-2.0
"""Start servers that are closed at the end of the test, and make certificates once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

import pytest

from slurmscope.core.connection_owner import query_owner
from slurmscope.http.server.address import ListenHost
from slurmscope.http.server.app import ExporterApp, Scrape
from slurmscope.http.server.connection import ConnectionLimits
from slurmscope.http.server.response import App
from slurmscope.http.server.server import FindOwner, Server
from tests.fakes.certificates import Authority, make_authority, make_identity
from tests.fakes.exposition import FakeExposition


def user_of_address(client: tuple[str, int], _: tuple[str, int]) -> int:
    """Take each address of the loopback for that of another user."""
    return int(ip_address(client[0]))


@dataclass(frozen=True, slots=True)
class Running:
    """Hold a server that answers."""

    server: Server

    @property
    def address(self) -> ListenHost:
        """Return the first address."""
        return self.server.addresses[0]


class Serve(Protocol):
    """Start a server on a free port of the loopback."""

    def __call__(
        self,
        scrape: Scrape | None = None,
        *,
        addresses: tuple[str, ...] = ("127.0.0.1:0",),
        limits: ConnectionLimits | None = None,
        config_file: Path | None = None,
        max_connections: int = 512,
        max_requests: int = 40,
        app: App | None = None,
        find_local_user: FindOwner = query_owner,
    ) -> Running:
        """Return the running server."""
        ...


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts servers; all are closed at the end."""
    servers: list[Server] = []

    def start(
        scrape: Scrape | None = None,
        *,
        addresses: tuple[str, ...] = ("127.0.0.1:0",),
        limits: ConnectionLimits | None = None,
        config_file: Path | None = None,
        max_connections: int = 512,
        max_requests: int = 40,
        app: App | None = None,
        find_local_user: FindOwner = query_owner,
    ) -> Running:
        server = Server(
            app or ExporterApp(scrape or FakeExposition(), max_requests=max_requests),
            addresses=addresses,
            limits=limits,
            config_file=config_file,
            max_connections=max_connections,
            find_local_user=find_local_user,
        )
        servers.append(server)
        server.start()
        return Running(server)

    yield start
    for server in servers:
        server.close(0.5)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return certificates of one authority, and a client's of another one."""
    folder = tmp_path_factory.mktemp("certificates")
    ours = make_authority(folder, "ours")
    theirs = make_authority(folder, "theirs")
    names = "DNS:localhost,IP:127.0.0.1"
    return Authority(
        authority=ours,
        server=make_identity(folder, "server", ours, names),
        other_server=make_identity(folder, "other-server", ours, names),
        client=make_identity(
            folder, "client", ours, "DNS:scraper.example,IP:fd00::1,email:a@b.example,URI:spiffe://x/y"
        ),
        stranger=make_identity(folder, "stranger", theirs, "DNS:scraper.example"),
    )


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes the web configuration, always to the same file."""

    def write(text: str) -> Path:
        path = tmp_path / "web.yml"
        path.write_text(text)
        return path

    return write
