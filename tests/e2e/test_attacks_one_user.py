# SPDX-License-Identifier: Apache-2.0
"""One client who requests or holds too much does not keep others from their pages: attacks on a real portal."""

from __future__ import annotations

import http.client
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.reports.sources import open_archive
from tests.fakes.reports import make_record, make_report
from tests.fakes.slurm_scripts import make_commands
from tests.processes import Exporter, running, until

PATIENCE_SECONDS = 120
JOBS = 9_500
"""Rows of the list that slow readers request: megabytes."""
PDF_REQUESTS = 60
IDLE_CONNECTIONS = 1010
LOOKUPS = 60
SLOW_READERS = 150
CONFIG = "printf 'ClusterName = lab\\nPrivateData = none\\n'"
# Hangs for every job but 777, and says which it was called for.
SACCT = """
for word in "$@"; do case "$word" in --jobs=*) jobs="${{word#--jobs=}}";; esac; done
echo "$jobs" >> {folder}/called
case "$jobs" in 777*) exit 0;; "") exit 0;; esac
exec sleep 600
"""


@dataclass(frozen=True, slots=True)
class Portal:
    """Reach a running portal as the proxy does."""

    exporter: Exporter
    folder: Path

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.exporter.addresses[0])
        return str(parts.hostname), int(parts.port or 0)

    def get(self, person: str, path: str) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection(*self.address, timeout=PATIENCE_SECONDS)) as connection:
            connection.request("GET", path, headers={"X-Remote-User": person})
            response = connection.getresponse()
            return response.status, response.read()

    def called(self) -> list[str]:
        """Return the jobs that sacct was called for."""
        file = self.folder / "called"
        return [line for line in file.read_text().splitlines() if line] if file.exists() else []

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self.exporter.process.pid}/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make an archive in which eve has many jobs, and ada one."""
    url = f"sqlite:///{tmp_path_factory.mktemp('archive')}/archive.db"
    with closing(open_archive(ArchiveSettings(url=url))) as archive:
        archive.save([make_report(), make_report(make_record(4712, user="eve"))])
        plain = replace(make_report(), charts=(), findings=())
        for first in range(0, JOBS, 500):
            records = (make_record(10_000 + first + number, user="eve", name="n" * 100) for number in range(500))
            archive.save([replace(plain, summary=replace(plain.summary, record=record)) for record in records])
    return url


@contextmanager
def serve(folder: Path, archive: str) -> Iterator[Portal]:
    scripts = dict.fromkeys(("squeue", "sinfo", "sacctmgr"), "exit 0")
    scripts |= {"scontrol": CONFIG, "sacct": SACCT.format(folder=folder)}
    commands = make_commands(folder / "bin", scripts)
    flags = (
        "--portal.listen-address", "127.0.0.1:0", "--portal.mode", "proxy", "--portal.proxy-peers", "127.0.0.1",
        "--archive.url", archive, "--slurm.bin-path", str(commands), "--slurm.timeout", "300s",
        "--reporter.interval", "1h",
    )  # fmt: skip
    with running("portal", *flags, wait_for="msg=listening") as exporter:
        portal = Portal(exporter, folder)
        assert 200 == portal.get("ada", "/")[0]
        yield portal


@pytest.fixture
def portal(tmp_path: Path, archive: str) -> Iterator[Portal]:
    """Serve for one attack: some leave lookups behind that hang, some measure the memory of the process."""
    with serve(tmp_path, archive) as portal:
        yield portal


@pytest.fixture(scope="module")
def shared_portal(tmp_path_factory: pytest.TempPathFactory, archive: str) -> Iterator[Portal]:
    """Serve for attacks of which nothing is left."""
    with serve(tmp_path_factory.mktemp("portal"), archive) as portal:
        yield portal


def unfinished(attack: list[Future[tuple[int, bytes]]]) -> int:
    return sum(not request.done() for request in attack)


def test_pdfs_of_one_person_do_not_delay_pages_of_others(shared_portal: Portal) -> None:
    with ThreadPoolExecutor(PDF_REQUESTS) as pool:
        attack = [pool.submit(shared_portal.get, "eve", "/jobs/4712/report.pdf") for _ in range(PDF_REQUESTS)]
        until(lambda: any(request.done() for request in attack))
        status, _ = shared_portal.get("ada", "/jobs/4711")
        left = unfinished(attack)
        statuses = [request.result(PATIENCE_SECONDS)[0] for request in attack]

    # The page came while the attack had only begun.
    assert (200, True) == (status, left > PDF_REQUESTS / 3)
    assert {200, 429} == {*statuses} - {503}


def test_lookups_of_one_person_leave_accounting_to_others(portal: Portal) -> None:
    # Until all jobs have been read once, pages say that some may be missing.
    until(lambda: b"still being read" not in portal.get("ada", "/jobs")[1])
    with ExitStack() as stack:
        for number in range(LOOKUPS):
            client = stack.enter_context(socket.create_connection(portal.address, timeout=PATIENCE_SECONDS))
            client.sendall(f"GET /jobs/{5000 + number} HTTP/1.1\r\nHost: x\r\nX-Remote-User: eve\r\n\r\n".encode())
        until(lambda: len(portal.called()) >= 2)
        page, absent = portal.get("ada", "/jobs/4711"), portal.get("ada", "/jobs/777")

        assert (200, 404, True) == (page[0], absent[0], "777" in portal.called())
        assert b"may be missing" not in absent[1]
        assert 3 == len(portal.called())


def test_slow_readers_of_one_person_take_little_memory(portal: Portal) -> None:
    status, body = portal.get("eve", "/jobs?format=csv")
    assert (200, JOBS + 1) == (status, body.count(b"\n") - 1)
    before = portal.peak_bytes()
    with ExitStack() as stack:
        for _ in range(SLOW_READERS):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(PATIENCE_SECONDS)
            client.connect(portal.address)
            client.sendall(b"GET /jobs?format=csv HTTP/1.1\r\nHost: x\r\nX-Remote-User: eve\r\n\r\n")
        statuses = [portal.get("ada", "/jobs/4711")[0] for _ in range(10)]
        grown = portal.peak_bytes() - before

    assert {200} == {*statuses}
    assert grown < 6 * len(body) + 64 * 1024 * 1024


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow this process as many open files as it may have."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE_CONNECTIONS + 200
    if limits[1] != resource.RLIM_INFINITY and limits[1] < wanted:
        pytest.skip("this process may not open enough files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], wanted), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"]
)
def test_idle_connections_do_not_keep_others_out(shared_portal: Portal, sent: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(IDLE_CONNECTIONS):
            client = stack.enter_context(socket.create_connection(shared_portal.address, timeout=PATIENCE_SECONDS))
            with suppress(ConnectionError):
                client.sendall(sent)
        statuses = [shared_portal.get("ada", "/jobs/4711")[0] for _ in range(3)]

    assert [200] * 3 == statuses
