# SPDX-License-Identifier: Apache-2.0
"""The kernel says who is at the other end of a connection from this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from slurmscope.core.connection_owner import find_owner, query_owner, search_owner

# Rows as Linux 6.18 writes them; the last one of TCP was left behind when its process closed it.
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13785732 1 000000004c553359 100 0 0 10 0
   1: 0100007F:1F90 0100007F:DF4A 01 00000000:00000000 00:00000000 00000000  1001        0 13787000 1 00000000cf6ebf55 20 4 1 18 -1
   2: 0100007F:DF4A 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1002        0 13787313 2 00000000cf6ebf54 21 0 0 10 -1
   3: 0100007F:DF4B 0100007F:1F90 06 00000000:00000000 03:000002BE 00000000     0        0 0 3 00000000d8ba2f45
"""  # noqa: E501 - as the kernel writes it
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:A0CB 00000000000000000000000001000000:1F90 01 00000000:00000000 00:00000000 00000000  1003        0 13787400 1 0
   1: 0000000000000000FFFF00000100007F:A0CC 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1004        0 13787401 1 0
"""  # noqa: E501 - as the kernel writes it
SERVER = ("127.0.0.1", 8080)

Find = Callable[[tuple[str, int], tuple[str, int]], int | None]


@pytest.fixture
def net(tmp_path: Path) -> Path:
    (tmp_path / "tcp").write_text(TCP, encoding="ascii")
    (tmp_path / "tcp6").write_text(TCP6, encoding="ascii")
    return tmp_path


@pytest.mark.parametrize(
    ("client", "server", "uid"),
    [
        (("127.0.0.1", 0xDF4A), SERVER, 1002),
        (("::ffff:127.0.0.1", 0xDF4A), ("::ffff:127.0.0.1", 8080), 1002),
        (("::1", 0xA0CB), ("::1", 8080), 1003),
        (("127.0.0.1", 0xA0CC), SERVER, 1004),
        (("127.0.0.1", 0xDF4B), SERVER, None),
        (("127.0.0.1", 0xDF4C), SERVER, None),
        (("127.0.0.2", 0xDF4A), SERVER, None),
        (("somewhere", 1), SERVER, None),
        (("::1", 0xA0CB), SERVER, None),
    ],
    ids=["ipv4", "mapped", "ipv6", "ipv4-through-ipv6", "closed", "absent", "other-address", "no-address", "mixed"],
)
def test_row_of_the_client_names_its_user(
    net: Path, client: tuple[str, int], server: tuple[str, int], uid: int | None
) -> None:
    assert uid == search_owner(client, server, net=net)


def test_machine_that_does_not_report_is_no_error(tmp_path: Path) -> None:
    assert search_owner(("127.0.0.1", 1), SERVER, net=tmp_path) is None


@pytest.mark.parametrize(
    ("family", "bound", "target"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::ffff:127.0.0.1", "::ffff:127.0.0.1"),
    ],
    ids=["ipv4", "ipv6", "mapped"],
)
@pytest.mark.parametrize("find", [query_owner, search_owner, find_owner])
def test_real_connection_is_ours(find: Find, family: socket.AddressFamily, bound: str, target: str) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listen(family, bound))
        client = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        client.settimeout(30)
        client.connect((target, listener.getsockname()[1]))
        here, there = client.getsockname()[:2], client.getpeername()[:2]

        assert psutil.Process().uids().real == os.getuid() == find(here, there)
        # Nobody is at the other end of a connection that does not exist, whoever listens on its port.
        assert find(there, (here[0], 9)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("find", [query_owner, search_owner])
def test_real_connection_of_another_user_is_theirs(find: Find) -> None:
    program = "import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); sys.stdin.read()"
    with listen(socket.AF_INET, "127.0.0.1") as listener:
        command = ["/usr/bin/env", "python3", "-c", program, str(listener.getsockname()[1])]
        with subprocess.Popen(command, user=65534, cwd="/", stdin=subprocess.PIPE) as visitor:
            connection, address = listener.accept()
            with connection:
                owner = find(address, connection.getsockname())
            visitor.communicate(timeout=30)

    assert 65534 == owner


@pytest.mark.parametrize("find", [query_owner, search_owner])
def test_connection_that_was_closed_has_no_owner(find: Find) -> None:
    with listen(socket.AF_INET, "127.0.0.1") as listener:
        with socket.create_connection(listener.getsockname(), timeout=30) as client:
            ends = client.getsockname(), client.getpeername()
        connection, _ = listener.accept()
        with connection:
            assert find(*ends) is None


def listen(family: socket.AddressFamily, host: str) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, 0))
        listener.listen()
    except OSError as error:
        listener.close()
        pytest.skip(f"cannot listen on {host}: {error}")
    listener.settimeout(30)
    return listener
