# SPDX-License-Identifier: Apache-2.0
"""``slurmscope run`` in a job sends its samples, and no endpoint delays or changes the command."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from slurmscope.run.delivery import TIMEOUT_SECONDS
from tests.fakes.scripted_server import RawRequest, read_whole_request, scripted_server
from tests.fakes.traced_command import SLURMSCOPE, plain_environment, python, run_traced
from tests.processes import PATIENCE_SECONDS, until

OLDER_KEYS = {"job_id", "pid", "cpus", "threads", "mem", "read_bytes", "write_bytes", "username", "hostname"}
JOB = {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "2", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1"}
TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
HELD_BYTES = 32 << 20
BUSY = f"import time\nheld = bytearray(b'x') * {HELD_BYTES}\nwhile time.process_time() < 0.6: pass"


@contextmanager
def endpoint(
    answer: bytes | Callable[[], bytes] = TAKEN, path: Path | None = None
) -> Iterator[tuple[str, list[RawRequest]]]:
    """Run an endpoint that notes its posts; it gives its address."""
    posts: list[RawRequest] = []

    def handle(connection: socket.socket) -> None:
        posts.append(read_whole_request(connection))
        connection.sendall(answer if isinstance(answer, bytes) else answer())

    with scripted_server(handle, path) as address:
        yield address, posts


def samples_in(posts: list[RawRequest]) -> list[dict[str, Any]]:
    bodies = [json.loads(post.body) for post in posts]
    return [sample for body in bodies for sample in (body if isinstance(body, list) else [body])]


def test_variables_of_the_older_wrapper_are_enough() -> None:
    with endpoint() as (address, posts):
        environment = {**JOB, "SLURM_EXPORTER": f"{address}/trace", "SAMPLE_RATE": "0.3"}
        done = run_traced("--quiet", "--", *python(BUSY), environment=environment)

    assert (0, b"") == (done.returncode, done.stderr)
    assert {"POST /trace HTTP/1.1"} == {post.line for post in posts}
    assert {"application/json"} == {post.headers["Content-Type"] for post in posts}
    assert not any("Authorization" in post.headers for post in posts)
    samples = samples_in(posts)
    assert len(samples) >= 3
    first, last = samples[0], samples[-1]
    assert OLDER_KEYS <= first.keys()
    assert (4711, "n1", 2, "0", 0.3) == tuple(
        first[key] for key in ("job_id", "hostname", "rank", "step_id", "interval")
    )
    assert {first["pid"]} == {sample["pid"] for sample in samples}
    assert 0.6 <= last["cpu_seconds"] < 2 * 0.6
    times = [first["start_time"], *(sample["time"] for sample in samples)]
    busy = [
        sample["cpus"] / 100 * (after - before)
        for sample, (before, after) in zip(samples, pairwise(times), strict=True)
    ]
    assert last["cpu_seconds"] == pytest.approx(sum(busy), rel=0.3)
    # Not of the first one: it may be taken before the interpreter is loaded.
    assert HELD_BYTES <= max(sample["mem"] for sample in samples if "mem" in sample) < 3 * HELD_BYTES
    assert [sample["time"] for sample in samples] == sorted(sample["time"] for sample in samples)


def test_address_without_scheme_and_path_is_taken() -> None:
    with endpoint() as (address, posts):
        run_traced("-q", "--jobid", "7", "--endpoint", address.removeprefix("http://"), "--", "sleep", "0.1")

    assert {"POST /trace HTTP/1.1"} == {post.line for post in posts}
    assert {7} == {sample["job_id"] for sample in samples_in(posts)}


def test_socket_of_the_agent_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "trace.sock"
    with endpoint() as (address, posts), endpoint(path=path) as (_, local_posts):
        arguments = ("--trace.socket", str(path), "--endpoint", address)
        run_traced("-q", *arguments, "--", "sleep", "0.1", environment=JOB)

    assert [] == posts
    assert {4711} == {sample["job_id"] for sample in samples_in(local_posts)}


def test_token_is_used_where_no_agent_listens(tmp_path: Path) -> None:
    path = tmp_path / "trace.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with endpoint() as (address, posts):
        environment = {**JOB, "SLURMSCOPE_TRACE_TOKEN": "v1.abc.def"}
        done = run_traced(
            "-q", "--trace.socket", str(path), "--endpoint", address, "--", "sleep", "0.1", environment=environment
        )

    assert b"" == done.stderr
    assert {"Bearer v1.abc.def"} == {post.headers["Authorization"] for post in posts}


def test_munge_signs_the_digest_of_the_body(tmp_path: Path) -> None:
    fake = tmp_path / "munge"
    fake.write_text('#!/bin/sh\n[ "$1" = --string ] && echo "MUNGE:$2:"\n')
    fake.chmod(0o755)
    environment = {**JOB, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with endpoint() as (address, posts):
        done = run_traced(
            "-f", "json", "-o", str(tmp_path / "r.json"), "--auth", "munge", "--endpoint", address, "--",
            "sleep", "0.3", environment=environment,
        )  # fmt: skip

    assert b"" == done.stderr
    assert posts
    for post in posts:
        assert f"Munge MUNGE:{hashlib.sha256(post.body).hexdigest()}:" == post.headers["Authorization"]
    # The helper is none of the command's processes.
    assert 1 == json.loads((tmp_path / "r.json").read_bytes())["run"]["peak_processes"]


def test_refusal_is_reported_in_one_line_and_changes_nothing(tmp_path: Path) -> None:
    body = b'{"error": "Job 4711 belongs to another user.", "code": "owner"}'
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with endpoint(refusal) as (address, _):
        done = run_traced(
            "-o", str(tmp_path / "r.txt"), "--endpoint", address, "--", "sh", "-c", "sleep 0.2; echo out; exit 5",
            environment=JOB,
        )  # fmt: skip

    reason = f"{address}/trace answers 403: Job 4711 belongs to another user."
    assert (5, b"out\n") == (done.returncode, done.stdout)
    assert done.stderr.decode() in {f"slurmscope: {n} of {n} samples were not sent: {reason}\n" for n in (1, 2)}


def test_hanging_endpoint_does_not_delay_the_command(tmp_path: Path) -> None:
    held_seconds: list[float] = []

    def hang(connection: socket.socket) -> None:
        read_whole_request(connection)
        started = time.monotonic()
        connection.recv(1)
        held_seconds.append(time.monotonic() - started)

    file = tmp_path / "r.json"
    with scripted_server(hang) as address:
        arguments = ("-f", "json", "-o", str(file), "--endpoint", address)
        done = run_traced(*arguments, "--", "sh", "-c", "sleep 0.3; exit 6", environment=JOB)
        until(lambda: held_seconds)

    report = json.loads(file.read_bytes())
    assert 6 == done.returncode
    # The connection ended with the process, which did not wait for its own timeout.
    assert held_seconds[0] - report["summary"]["run_seconds"] < TIMEOUT_SECONDS - 1
    assert ["2 of 2 samples were not sent; the command ended first."] == report["missing"]


HANDLING = """
import signal, time
seen = []
signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
print("ready", flush=True)
while not seen: time.sleep(0.01)
print("got", flush=True)
time.sleep(0.3)
"""


def test_signals_reach_the_command_while_samples_are_sent() -> None:
    """They must not end the thread that sends."""
    with endpoint() as (address, posts):
        argv = [*SLURMSCOPE, "run", "-q", "--sample-rate", "0.1", "--endpoint", address, "--", *python(HANDLING)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=plain_environment(JOB)) as process:
            assert process.stdout
            assert "ready\n" == process.stdout.readline()
            process.terminate()
            assert "got\n" == process.stdout.readline()
            assert 0 == process.wait(PATIENCE_SECONDS)

    assert posts


def test_endpoint_that_sends_garbage_changes_nothing() -> None:
    with endpoint(b"\x00\xff" * 50_000) as (address, _):
        done = run_traced("--endpoint", address, "--", "sh", "-c", "sleep 0.2; echo out", environment=JOB)

    assert (0, b"out\n") == (done.returncode, done.stdout)
    assert b"samples were not sent" in done.stderr
    assert b"\x00" not in done.stderr


def test_bad_address_is_reported_and_the_command_runs() -> None:
    done = run_traced("--endpoint", "ftp://user:secret@host", "--jobid", "1", "--", "echo", "out")

    assert (0, b"out\n") == (done.returncode, done.stdout)
    assert b"Samples were not sent: the address is not of the form" in done.stderr
    assert b"secret" not in done.stderr


def test_endpoint_without_a_job_is_reported() -> None:
    done = run_traced("--endpoint", "localhost:8092", "--", "true")

    assert b"there is no job ID; set it with --jobid" in b" ".join(done.stderr.split())


def test_verbose_reports_each_attempt() -> None:
    with endpoint() as (address, posts):
        done = run_traced("-q", "--verbose", "--endpoint", address, "--", "sleep", "0.2", environment=JOB)

    lines = done.stderr.decode().splitlines()
    assert [f"slurmscope: 1 sent to {address}/trace (plain)"] * len(posts) == lines


def test_dry_run_prints_samples_and_sends_none() -> None:
    with endpoint() as (address, posts):
        done = run_traced("-q", "--dry-run", "--endpoint", address, "--", "echo", "out", environment=JOB)

    assert [] == posts
    assert b"out\n" == done.stdout
    samples = [json.loads(line) for line in done.stderr.splitlines()]
    assert len(samples) >= 2
    # Sizes of a process that has ended are not sent.
    assert all(sample.keys() >= OLDER_KEYS - {"mem", "threads"} for sample in samples)


def test_validate_prints_one_sample_and_ends_the_command() -> None:
    done = run_traced("--validate", "--jobid", "9", "sleep", "1000")

    assert (0, b"") == (done.returncode, done.stderr)
    assert (9, True) == (json.loads(done.stdout)["job_id"], json.loads(done.stdout)["mem"] > 0)


def test_validate_of_a_command_that_ends_at_once_prints_a_sample() -> None:
    done = run_traced("--validate", "--jobid", "9", "true")

    assert (0, 9) == (done.returncode, json.loads(done.stdout)["job_id"])


def test_options_of_the_wrapper_may_follow_its_command() -> None:
    with endpoint() as (address, posts):
        words = ("--cmd", "echo", "a", "-b", "--endpoint", address, "--sample-rate", "5", "--jobid", "12", "--verbose")
        done = run_traced("--quiet", *words)

    assert b"a -b\n" == done.stdout
    assert {(12, 5.0)} == {(sample["job_id"], sample["interval"]) for sample in samples_in(posts)}
