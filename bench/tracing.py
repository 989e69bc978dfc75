# SPDX-License-Identifier: Apache-2.0
"""Measure the trace endpoint: posts of 100 jobs on kept connections, with job tokens, while the page is scraped.

The client needs as much CPU as the server, and both share this machine. So the time of the server ends when the kernel
has received its answer, not when the client reads it; and it starts when the post is sent, or when it was due if the
server had not answered the one before yet. As root, both run before other programs of this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.measure import cpu_seconds_of, judge, resident_bytes_of, running_exporter, scrape
from slurmscope.core.hostlist import expand_hosts
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape
from slurmscope.simulator.commands.executables import write_fake_commands
from slurmscope.trace.owners import OWNER_ARGUMENTS, parse_owners
from slurmscope.trace.samples import RunningJobOwner
from slurmscope.trace.tokens import JobToken, KeyFile, rotate_keys

JOBS = 100
PROCESSES_PER_JOB = 8
POSTS_PER_SECOND = 5_000
SECONDS = 10.0
P99_LIMIT_SECONDS = 0.05
MEMORY_LIMIT_BYTES = 150_000_000
SCRAPE_SECONDS = 1.0
# From the kernel's <asm-generic/socket.h>: each answer comes with the time at which it was received.
SO_TIMESTAMPNS = 35
STAMP = struct.Struct("@ll")
PRIORITY = -15


def main() -> int:
    """Print the rate that was reached and how long posts took."""
    run_before_others()
    with tempfile.TemporaryDirectory() as folder:
        write_fake_commands(simulate(Shape(jobs=1000, nodes=400), now=int(time.time())), Path(folder))
        key_file = Path(folder) / "trace.key"
        rotate_keys(key_file)
        # Few calls of the simulated commands, which take more CPU than the exporter itself.
        flags = (
            "--slurm.bin-path", folder, "--slurm.poll-limit", "60s", "--trace.enabled",
            "--trace.key-file", str(key_file), "--trace.processes", "10000000",
        )  # fmt: skip
        with running_exporter(*flags) as (pid, address):
            load = Load(address, _requests(Path(folder), KeyFile(key_file)))
            scrape(address)  # runs the commands
            load.open()
            load.run(2.0)
            before = cpu_seconds_of(pid)
            scrapes = _scrape_beside(address, lambda: load.run(SECONDS))
            load.close()
            cpu_seconds, resident_bytes = cpu_seconds_of(pid) - before, resident_bytes_of(pid)
    return _report(load, scrapes, cpu_seconds, resident_bytes)


def run_before_others() -> None:
    """Raise the priority of this process and of what it starts, as far as that is allowed."""
    if os.geteuid() != 0:
        return
    if os.getpid() != os.getsid(0):
        with contextlib.suppress(PermissionError):  # leads the process group of a terminal
            os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    # Where the kernel groups processes by session, priorities count within a session only.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(PRIORITY))


def _report(load: Load, scrapes: list[float], cpu_seconds: float, resident_bytes: int) -> int:
    p50, p99 = _median_and_p99(load.seconds)
    client_p50, client_p99 = _median_and_p99(load.client_seconds)
    rate = len(load.seconds) / SECONDS
    print(
        f"trace endpoint: {rate:,.0f} posts a second of {JOBS} jobs at a load of {os.getloadavg()[0]:.1f}, "
        f"{cpu_seconds / len(load.seconds) * 1e6:.0f} us of CPU each, median {p50 * 1000:.1f} ms, 99th percentile "
        f"{p99 * 1000:.1f} ms (with the client's own delay {client_p50 * 1000:.1f} and {client_p99 * 1000:.1f} ms), "
        f"{load.refused} refused; {len(scrapes)} scrapes of at most {max(scrapes):.2f} s"
    )
    reached = rate >= 0.98 * POSTS_PER_SECOND and not load.refused
    is_met = [
        judge("posts accepted", f"{rate:,.0f}/s", f"{POSTS_PER_SECOND:,}/s", is_met=reached),
        judge("99th percentile", f"{p99 * 1000:.1f} ms", "under 50 ms", is_met=p99 < P99_LIMIT_SECONDS),
        judge(
            "memory", f"{resident_bytes / 1e6:.0f} MB resident", "under 150 MB",
            is_met=resident_bytes < MEMORY_LIMIT_BYTES,
        ),
    ]  # fmt: skip
    return 0 if all(is_met) else 1


def _median_and_p99(seconds: list[float]) -> tuple[float, float]:
    took = sorted(seconds)
    return took[len(took) // 2], took[len(took) * 99 // 100]


@dataclass
class Sender:
    """Hold one connection, with the times of its posts."""

    sock: socket.socket
    requests: list[bytes]
    due: float = 0.0
    sent: int = 0
    was_due: float | None = None
    began: float = 0.0
    answered: float = 0.0

    def send(self, interval: float) -> None:
        """Send the next post; it is late by the server's fault if the last answer came after it was due."""
        self.was_due = self.due
        self.began = self.due if self.answered > self.due else time.time()
        self.sock.sendall(self.requests[self.sent % len(self.requests)])
        self.sent += 1
        self.due += interval

    def receive(self) -> bytes:
        """Read an answer, and note when the kernel received it."""
        answer, stamps, _, _ = self.sock.recvmsg(65536, 64)
        seconds, nanoseconds = STAMP.unpack(stamps[0][2]) if stamps else (time.time(), 0)
        self.answered = seconds + nanoseconds / 1e9
        return answer


@dataclass
class Load:
    """Send posts at a fixed rate over one connection per job, and note how long each took.

    ``seconds`` are those of the server, ``client_seconds`` end when the answer is read and count from when it was due.
    """

    address: str
    requests: list[list[bytes]]
    seconds: list[float] = field(default_factory=list)
    client_seconds: list[float] = field(default_factory=list)
    refused: int = 0
    senders: list[Sender] = field(default_factory=list)
    selector: selectors.BaseSelector = field(default_factory=selectors.EpollSelector)

    def open(self) -> None:
        """Connect once: senders keep their connections."""
        host, port = self.address.split(":")
        for requests in self.requests:
            sock = socket.create_connection((host, int(port)))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            sender = Sender(sock, requests)
            self.selector.register(sock, selectors.EVENT_READ, sender)
            self.senders.append(sender)

    def run(self, seconds: float) -> None:
        """Send for some seconds; figures are those of the last run."""
        self.seconds, self.client_seconds, self.refused = [], [], 0
        self._send_all(seconds)
        self._drain()

    def close(self) -> None:
        """Close all connections."""
        self.selector.close()
        for sender in self.senders:
            sender.sock.close()

    def _drain(self) -> None:
        """Read the answers to the last posts."""
        until = time.perf_counter() + 1.0
        while time.perf_counter() < until and (events := self.selector.select(0.2)):
            for key, _ in events:
                key.data.receive()
                key.data.was_due = None

    def _send_all(self, seconds: float) -> None:
        interval = len(self.senders) / POSTS_PER_SECOND
        began = time.time()
        for index, sender in enumerate(self.senders):
            sender.due = began + interval * index / len(self.senders)
        while (now := time.time()) < began + seconds:
            for sender in self.senders:
                if sender.was_due is None and sender.due <= now:
                    sender.send(interval)
            for key, _ in self.selector.select(0.001):
                self._receive(key.data)

    def _receive(self, sender: Sender) -> None:
        answer, was_due = sender.receive(), sender.was_due
        if was_due is not None and answer:
            self.seconds.append(sender.answered - sender.began)
            self.client_seconds.append(time.time() - was_due)
            self.refused += not answer.startswith(b"HTTP/1.1 204")
        sender.was_due = None


def _requests(folder: Path, keys: KeyFile) -> list[list[bytes]]:
    """Return the posts of each job: one process each."""
    answer = subprocess.run([str(folder / "squeue"), *OWNER_ARGUMENTS], capture_output=True, check=True).stdout
    owners = [owner for owner in parse_owners(answer).values() if owner.state == "RUNNING"][:JOBS]
    if len(owners) < JOBS:
        raise RuntimeError(f"the simulated cluster has only {len(owners)} running jobs")
    return [[_request(owner, pid, keys) for pid in range(1, PROCESSES_PER_JOB + 1)] for owner in owners]


def _request(owner: RunningJobOwner, pid: int, keys: KeyFile) -> bytes:
    node = expand_hosts(owner.node_list)[0]
    expiry = int(time.time()) + 3600
    token = keys.sign(JobToken(job_id=owner.job_id, uid=owner.uid, node=node, expiry_seconds=expiry))
    sample = {
        "job_id": owner.job_id, "pid": pid, "cpus": 99.5, "threads": 4, "mem": 123456789, "read_bytes": 1e9,
        "write_bytes": 2e9, "username": owner.user, "hostname": node, "command": "solver", "rank": pid,
        "step_id": "0", "cpu_seconds": 1234.5, "interval": 10, "time": time.time(),
    }  # fmt: skip
    body = json.dumps(sample).encode()
    head = (
        "POST /trace HTTP/1.1", "Host: bench", "Content-Type: application/json", f"Authorization: Bearer {token}",
        f"Content-Length: {len(body)}",
    )  # fmt: skip
    return "\r\n".join((*head, "", "")).encode() + body


def _scrape_beside(address: str, work: object) -> list[float]:
    """Scrape once a second in another thread while the work is done; return how long each scrape took."""
    took: list[float] = []
    is_done = threading.Event()

    def scrape_often() -> None:
        while not is_done.wait(SCRAPE_SECONDS):
            began = time.perf_counter()
            scrape(address)
            took.append(time.perf_counter() - began)

    thread = threading.Thread(target=scrape_often)
    thread.start()
    assert callable(work)
    work()
    is_done.set()
    thread.join()
    return took


if __name__ == "__main__":
    sys.exit(main())
