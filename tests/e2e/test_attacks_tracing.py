# SPDX-License-Identifier: Apache-2.0
"""Attack: one user floods the trace socket of a node over many connections; the samples of another user arrive."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurmscope.exporter.reading import SharedReading
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from slurmscope.trace.node_endpoint import NodeTracing
from slurmscope.trace.settings import NodeTraceSettings
from tests.processes import PATIENCE_SECONDS

FLOOD = Path(__file__).with_name("flood_socket.py")
FLOODER, NEIGHBOUR = 65534, 1
POSTS = 6
# As commands under slurmscope run: ever new processes, which the agent does not know yet, and five seconds for a post.
NEIGHBOUR_PROGRAM = """
import os, socket, sys, time
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    if os.fork():
        os.wait()
        time.sleep(0.2)
        continue
    body = b'{"job_id": 2, "pid": %d}' % (number + 1)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        try:
            sock.connect(sys.argv[1])
            head = ("POST / HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}")
            sock.sendall("\\r\\n".join((*head, "", "")).encode() + body)
            print(sock.recv(12)[9:].decode(), flush=True)
        except OSError as error:
            print(type(error).__name__, flush=True)
    os._exit(0)
"""


@contextmanager
def start(uid: int, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program of a user that waits for a line first."""
    command = ["/usr/bin/python3", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", user=uid, extra_groups=()
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def children_of(pid: int) -> frozenset[int]:
    try:
        return frozenset(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except FileNotFoundError:
        return frozenset()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("is_in_job", [True, False], ids=["own job", "no job"])
def test_neighbour_is_traced_beside_a_flood(is_in_job: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "trace.sock"
        neighbour_program = ("-c", NEIGHBOUR_PROGRAM, str(path), str(POSTS))
        flood_program = ("-c", FLOOD.read_text(), str(path), "1", "60")
        with start(FLOODER, *flood_program) as flood, start(NEIGHBOUR, *neighbour_program) as neighbour:

            def read() -> NodeJobs:
                own = JobUse(key=JobKey(1), uid=FLOODER, pids=frozenset({flood.pid} if is_in_job else ()))
                other = JobUse(key=JobKey(2), uid=NEIGHBOUR, pids=children_of(neighbour.pid))
                return NodeJobs(jobs=(own, other), host_name="n1")

            reading = SharedReading("jobs", read, interval_seconds=1.0)
            tracing = NodeTracing(path, NodeTraceSettings(socket=path, processes=5_000), reading, Path("/proc"))
            with tracing.open():
                go(flood)
                assert flood.stdout is not None
                assert "flooding\n" == flood.stdout.readline()
                shown, _ = neighbour.communicate("\n", PATIENCE_SECONDS)
                flooded, _ = flood.communicate("", PATIENCE_SECONDS)

    assert ["204"] * POSTS == shown.split()
    assert ("'429'" if is_in_job else "'403'") in flooded
