# SPDX-License-Identifier: Apache-2.0
"""Datagrams arrive with the kernel's word for who sent them."""

from __future__ import annotations

import array
import contextlib
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.core.errors import SourceError
from slurmscope.profile.events import MAX_DATAGRAM_BYTES
from slurmscope.profile.receiver import Datagram, DatagramSocket, PathInUse
from tests.leftovers import nothing_left

OTHER_UID = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a path for a socket."""
    return tmp_path / "profile.sock"


@pytest.fixture
def listening(path: Path) -> Iterator[DatagramSocket]:
    """Listen on the path."""
    with closing(DatagramSocket(path)) as opened:
        yield opened


def send(path: Path, *contents: bytes) -> None:
    """Send datagrams as the user of the test."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for content in contents:
            sender.sendto(content, str(path))


def send_as(uid: int, sender: socket.socket, content: bytes) -> None:
    """Send over a connected socket from a process of another user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child only makes system calls
        child = os.fork()
    if not child:
        try:
            os.setresuid(uid, uid, uid)
            sender.send(content)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def test_datagrams_come_in_order_with_their_sender(listening: DatagramSocket, path: Path) -> None:
    send(path, b"one", b"two")

    assert [Datagram(b"one", os.getuid()), Datagram(b"two", os.getuid())] == list(listening.receive())
    assert [] == list(listening.receive())


def test_socket_is_closed_to_other_users(listening: DatagramSocket, path: Path) -> None:
    assert 0o600 == path.stat().st_mode & 0o777


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_other_user_is_named_by_the_kernel(listening: DatagramSocket, path: Path) -> None:
    """Even if the permissions of the socket were wrong."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(str(path))
        send_as(OTHER_UID, sender, b"forged")

    assert [Datagram(b"forged", OTHER_UID)] == list(listening.receive())


def test_attached_descriptors_are_discarded(listening: DatagramSocket, path: Path) -> None:
    with nothing_left():
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            attached = array.array("i", [0, 1, 2])
            sender.sendmsg([b"with files"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, attached)], 0, str(path))

        assert [b"with files"] == [datagram.content for datagram in listening.receive()]


def test_long_datagram_is_cut_so_that_the_parser_refuses_it(listening: DatagramSocket, path: Path) -> None:
    send(path, b"x" * 100_000)

    assert [MAX_DATAGRAM_BYTES + 1] == [len(datagram.content) for datagram in listening.receive()]


def test_socket_of_a_dead_process_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(path))
    with closing(DatagramSocket(path)) as listening:
        send(path, b"alive")
        assert [b"alive"] == [datagram.content for datagram in listening.receive()]

    assert not path.exists()


def test_socket_of_a_living_process_is_left_alone(listening: DatagramSocket, path: Path) -> None:
    with pytest.raises(PathInUse, match="another process listens"):
        DatagramSocket(path)
    send(path, b"still here")

    assert [b"still here"] == [datagram.content for datagram in listening.receive()]


def test_file_that_is_no_socket_is_never_removed(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(SourceError, match="not a socket"):
        DatagramSocket(path)

    assert "precious" == path.read_text()


def test_directory_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot listen on .*absent"):
        DatagramSocket(tmp_path / "absent" / "profile.sock")


def test_path_of_a_successor_is_not_removed(path: Path) -> None:
    first = DatagramSocket(path)
    path.unlink()
    with closing(DatagramSocket(path)):
        first.close()
        assert path.exists()


def test_datagram_without_credentials_has_no_sender(listening: DatagramSocket, path: Path) -> None:
    """As if the kernel had not been asked for them."""
    with socket.socket(fileno=os.dup(listening.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    send(path, b"anonymous")

    assert [Datagram(b"anonymous", None)] == list(listening.receive())


def test_burst_is_received_in_parts(listening: DatagramSocket, path: Path) -> None:
    """Senders that never pause do not keep the receiver from its other work."""
    received = 0
    parts = listening.receive()
    with contextlib.suppress(StopIteration):
        while True:
            send(path, b"more")
            next(parts)
            received += 1

    assert 1024 == received


def test_closed_socket_raises_our_own_error(path: Path) -> None:
    listening = DatagramSocket(path)
    listening.close()
    with pytest.raises(SourceError, match="cannot receive"):
        list(listening.receive())
