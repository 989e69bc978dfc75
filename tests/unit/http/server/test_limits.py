# SPDX-License-Identifier: Apache-2.0
"""Check that nothing leaks, and that a server outlives running out of files and threads."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.http.server.address import ListenHost
from slurmscope.http.server.connection import ConnectionLimits
from tests.fakes.exposition import PAGE
from tests.fakes.raw_http import GENEROUS_SECONDS, ask, connect, get, read_answer
from tests.leftovers import nothing_left
from tests.unit.http.server.conftest import Serve, user_of_address

ROOT = Path(__file__).parents[4]

# Serves until its input ends; a line on its input closes the files it holds.
SERVER = """
import os, resource, sys
from slurmscope.http.server.app import ExporterApp
from slurmscope.http.server.server import Server
from tests.fakes.exposition import FakeExposition

server = Server(ExporterApp(FakeExposition()), addresses=("127.0.0.1:0",))
server.start()
kind, amount, has_to_hold = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "hold"
if kind == "files":
    resource.setrlimit(resource.RLIMIT_NOFILE, (amount, amount))
else:
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + amount
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
held = []
try:
    while has_to_hold:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
print(server.addresses[0].port, flush=True)
sys.stdin.readline()
for file in held:
    os.close(file)
sys.stdin.read()
sys.exit(server.close(5))
"""


@contextlib.contextmanager
def limited(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], ListenHost]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, ListenHost("127.0.0.1", int(process.stdout.readline()))
        finally:
            process.kill()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=GENEROUS_SECONDS)
    return process.returncode, errors


def test_server_without_files_waits_quietly_and_recovers() -> None:
    with limited("files", "40", "hold") as (process, address), connect(address) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        before = cpu_seconds(process.pid)
        time.sleep(1)
        assert cpu_seconds(process.pid) - before < 0.5
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert read_answer(sock).body == PAGE
        assert get(address).body == PAGE
        status, errors = ended(process)
    assert status == 0
    assert errors.count("cannot accept connections") == 1
    assert "Traceback" not in errors


def test_crowd_that_takes_every_file_does_not_lock_others_out() -> None:
    with limited("files", "40", "free") as (process, address), contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(connect(address)).sendall(b"GET /half")
        assert get(address).body == PAGE
        status, errors = ended(process)
    assert status == 0
    assert errors.count("cannot accept connections") == 1


def test_server_that_cannot_start_threads_answers_503_and_recovers() -> None:
    with limited("memory", str(100 * 1024 * 1024), "free") as (process, address):
        with contextlib.ExitStack() as stack:
            crowd = [stack.enter_context(connect(address)) for _ in range(60)]
            replies = [_reply(sock) for sock in crowd]
            assert b"HTTP/1.1 503 " in {reply[:13] for reply in replies}
        until = time.monotonic() + GENEROUS_SECONDS
        while (status := get(address).status) != 200 and time.monotonic() < until:
            time.sleep(0.05)
        assert status == 200
        assert ended(process)[0] == 0


def _reply(sock: socket.socket) -> bytes:
    sock.settimeout(0.2)
    try:
        return sock.recv(1000)
    except OSError:
        return b""


def test_nothing_is_left_of_thousands_of_requests(serve: Serve) -> None:
    address = serve().address
    with nothing_left():
        for _ in range(20):
            with connect(address) as sock:
                assert {200} == {ask(sock).status for _ in range(95)}
            assert {200} == {get(address).status for _ in range(5)}
        for number in range(200):
            with connect(address) as sock:
                sock.sendall((b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00")[number % 4])
                # A reset instead of an orderly end.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_refused_clients_leave_nothing_either(serve: Serve) -> None:
    address = serve(max_connections=2).address
    with nothing_left(), contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connect(address)).sendall(b"GET /half")


@pytest.mark.parametrize("with_tls", [False, True])
def test_only_what_is_switched_on_is_loaded(with_tls: bool) -> None:
    modules = "slurmscope.http.server.server, slurmscope.http.server.app"
    code = f"import sys, {modules}{', slurmscope.http.server.tls' if with_tls else ''}; print(*sys.modules)"
    # Measuring coverage loads modules of its own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        timeout=GENEROUS_SECONDS,
        env=environment,
    ).stdout.split()
    heavy = {
        "asyncio", "bcrypt", "concurrent.futures", "email", "hashlib", "html", "http.client", "http.server",
        "socketserver", "urllib.request", "yaml",
    }  # fmt: skip
    assert set() == heavy & set(loaded)
    assert with_tls == ("ssl" in loaded)


def test_user_with_too_many_new_connections_is_refused_and_others_are_served(serve: Serve) -> None:
    limits = ConnectionLimits(new_per_second=0.001, new_at_once=5)
    address = serve(limits=limits, find_local_user=user_of_address).address

    def status(source: str) -> int:
        return int(asked_from(source, address).split()[1])

    assert [200] * 5 + [503] * 5 == [status("127.0.0.2") for _ in range(10)]
    assert [200] * 3 == [status("127.0.0.3") for _ in range(3)]
    assert 503 == status("127.0.0.2")


def test_addresses_of_the_loopback_are_all_those_of_their_user(serve: Serve) -> None:
    limits = ConnectionLimits(new_per_second=0.001, new_at_once=5)
    address = serve(limits=limits).address

    statuses = [asked_from(f"127.0.1.{number}", address).split()[1] for number in range(1, 11)]

    assert [b"200"] * 5 + [b"503"] * 5 == statuses


def asked_from(source: str, address: ListenHost) -> bytes:
    target = (address.host, address.port)
    with socket.create_connection(target, GENEROUS_SECONDS, source_address=(source, 0)) as sock:
        with contextlib.suppress(OSError):  # refused already
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return sock.recv(4096)
