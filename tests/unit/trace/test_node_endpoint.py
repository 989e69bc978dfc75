# SPDX-License-Identifier: Apache-2.0
"""Check over a real unix socket that the kernel decides for which job a process may send samples."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from slurmscope.core.errors import ConfigError
from slurmscope.exporter.reading import SharedReading
from slurmscope.http.client.address import ServerAddress
from slurmscope.http.server.request import HttpRequest, PeerCredentials
from slurmscope.node.cgroup.names import ProcessPlace
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from slurmscope.trace.callers import Refusal
from slurmscope.trace.node_endpoint import MAX_CONNECTIONS, NodeTracing, SenderFinder, read_place
from slurmscope.trace.settings import NodeTraceSettings, check_forwarding
from slurmscope.trace.tokens import KeyFile, rotate_keys
from tests.fakes.raw_http import GENEROUS_SECONDS, Answer, read_answer
from tests.fakes.trace_endpoint import ADA, KEYS, open_endpoint

OWN_JOB = JobUse(key=JobKey(ADA.job_id), uid=os.getuid(), pids=frozenset({os.getpid()}))
OWN_NAME = "ada"
JOBS = NodeJobs(jobs=(OWN_JOB,), host_name="n1", users={os.getuid(): OWN_NAME})
SAMPLE = {"job_id": ADA.job_id, "pid": 812, "mem": 1000}


CLAIM = ProcessPlace(job_id=ADA.job_id)


def request_of(pid: int, uid: int) -> HttpRequest:
    return HttpRequest(method="POST", path="/", headers={}, credentials=PeerCredentials(pid, uid))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:
        yield Path(name)


@dataclass
class RunningAgent:
    """Hold the tracing of an agent whose jobs the test holds."""

    tracing: NodeTracing
    path: Path
    jobs: NodeJobs = JOBS

    def post(self, body: object, method: str = "POST") -> Answer:
        """Send one request over the socket."""
        data = json.dumps(body).encode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(GENEROUS_SECONDS)
            sock.connect(str(self.path))
            head = (f"{method} / HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(data)}")
            sock.sendall("\r\n".join((*head, "", "")).encode() + data)
            return read_answer(sock, method=method)


@contextmanager
def open_agent(folder: Path, **settings: object) -> Iterator[RunningAgent]:
    path = folder / "trace.sock"
    declared = replace(NodeTraceSettings(socket=path), **settings)  # type: ignore[arg-type]
    reading = SharedReading("node_jobs", lambda: agent.jobs, interval_seconds=0.0)
    agent = RunningAgent(NodeTracing(path, declared, reading, Path("/proc")), path)
    with agent.tracing.open():
        yield agent


def code(answer: Answer) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["code"]


def test_sample_of_a_process_in_a_job_is_exported_by_the_agent(folder: Path) -> None:
    with open_agent(folder) as agent:
        assert 204 == agent.post({**SAMPLE, "username": OWN_NAME, "hostname": "n1.example"}).status
        (process,) = agent.tracing.read().processes
    assert (ADA.job_id, "n1", os.getuid(), OWN_NAME, "socket") == (
        process.owner.job_id, process.host, process.owner.uid, process.owner.user, process.way,
    )  # fmt: skip


def test_socket_is_open_to_all_users_and_removed_at_the_end(folder: Path) -> None:
    with open_agent(folder) as agent:
        assert 0o666 == agent.path.stat().st_mode & 0o777
        assert [agent.path] == list(folder.iterdir())
    assert [] == list(folder.iterdir())


def test_next_agent_takes_the_place_of_the_one_before(folder: Path) -> None:
    with open_agent(folder) as second, open_agent(folder) as first:
        first.post(SAMPLE)
    assert not second.path.exists()
    (folder / "trace.sock").touch()
    with open_agent(folder) as agent:
        assert 204 == agent.post(SAMPLE).status


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ((), (403, "job")),
        ((replace(OWN_JOB, pids=frozenset({1})),), (403, "job")),
        ((replace(OWN_JOB, uid=os.getuid() + 1),), (403, "owner")),
        ((replace(OWN_JOB, uid=None),), (403, "owner")),
        ((replace(OWN_JOB, has_ended=True),), (403, "job")),
        ((replace(OWN_JOB, key=JobKey(5)),), (403, "owner")),
    ],
    ids=["no job", "process in no job", "job of another user", "owner unknown", "ended job", "another job"],
)
def test_sender_outside_the_job_is_refused_with_nothing_stored(
    folder: Path, jobs: tuple[JobUse, ...], expected: tuple[int, str]
) -> None:
    with open_agent(folder) as agent:
        agent.jobs = replace(JOBS, jobs=jobs)
        assert expected == code(agent.post(SAMPLE))
        traces = agent.tracing.read()
    assert ((), {expected[1]: 1}) == (traces.processes, traces.refused)


def test_body_that_contradicts_the_kernel_is_refused(folder: Path) -> None:
    with open_agent(folder) as agent:
        assert (403, "user") == code(agent.post({**SAMPLE, "username": "eve"}))
        assert (409, "host") == code(agent.post({**SAMPLE, "hostname": "n2"}))
        assert 405 == agent.post(SAMPLE, method="PUT").status
        assert () == agent.tracing.read().processes


def test_node_of_several_slurmd_on_one_machine_is_that_of_the_cgroup(folder: Path) -> None:
    with open_agent(folder) as agent:
        agent.jobs = replace(JOBS, jobs=(replace(OWN_JOB, key=JobKey(ADA.job_id, node_name="n7")),))
        assert 204 == agent.post(SAMPLE).status
        assert ["n7"] == [process.host for process in agent.tracing.read().processes]


def test_last_samples_are_exported_as_long_as_the_ended_job_is(folder: Path) -> None:
    with open_agent(folder) as agent:
        agent.post(SAMPLE)
        agent.jobs = replace(JOBS, jobs=(replace(OWN_JOB, has_ended=True),))
        assert 1 == len(agent.tracing.read().processes)
        agent.jobs = replace(JOBS, jobs=())
        assert () == agent.tracing.read().processes


def test_silent_connections_leave_the_agent_threads_and_others_room(folder: Path) -> None:
    before = threading.active_count()
    with open_agent(folder) as agent, ExitStack() as stack:
        for _ in range(3 * MAX_CONNECTIONS):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(agent.path))
        assert 204 == agent.post(SAMPLE).status
        assert threading.active_count() <= before + MAX_CONNECTIONS + 4


def test_new_job_is_waited_for() -> None:
    found = [NodeJobs(), replace(JOBS, jobs=(replace(OWN_JOB, uid=None),)), JOBS]
    reading = SharedReading("node_jobs", lambda: found.pop(0) if len(found) > 1 else found[0], interval_seconds=0.0)
    # By its cgroup the process is in job 4711, which the agent has not found yet.
    finder = SenderFinder(reading, Path("/proc"), sleep=lambda _: None, read_cgroup=lambda _root, _pid: CLAIM)
    assert ADA.job_id == finder.find(request_of(os.getpid(), os.getuid())).job_id


def test_process_without_a_job_and_one_that_is_gone() -> None:
    assert ProcessPlace() == read_place(Path("/proc"), os.getpid())
    assert ProcessPlace() == read_place(Path("/proc"), 2**22 + 1)


def test_cgroup_of_another_users_job_is_only_a_claim() -> None:
    jobs = replace(JOBS, jobs=(replace(OWN_JOB, uid=os.getuid() + 1, pids=frozenset()),))
    reading = SharedReading("node_jobs", lambda: jobs, interval_seconds=0.0)
    finder = SenderFinder(reading, Path("/proc"), sleep=lambda _: None, read_cgroup=lambda _root, _pid: CLAIM)
    with pytest.raises(Refusal) as refused:
        finder.find(request_of(os.getpid(), os.getuid()))
    assert (403, "owner") == (refused.value.status, refused.value.code)


def test_node_is_that_of_the_senders_cgroup_where_a_job_has_two_on_one_machine() -> None:
    two = tuple(replace(OWN_JOB, key=JobKey(ADA.job_id, node_name=name), pids=frozenset()) for name in ("n1", "n2"))
    reading = SharedReading("node_jobs", lambda: replace(JOBS, jobs=two), interval_seconds=0.0)
    claim = ProcessPlace(job_id=ADA.job_id, node_name="n2")
    finder = SenderFinder(reading, Path("/proc"), read_cgroup=lambda _root, _pid: claim)
    assert "n2" == finder.find(request_of(os.getpid(), os.getuid())).node


def test_request_that_did_not_come_over_the_socket_is_refused() -> None:
    finder = SenderFinder(SharedReading("node_jobs", lambda: JOBS, interval_seconds=0.0), Path("/proc"))
    with pytest.raises(Refusal) as refused:
        finder.find(HttpRequest(method="POST", path="/", headers={}))
    assert 401 == refused.value.status


def test_samples_are_forwarded_with_a_token_of_the_job(folder: Path) -> None:
    key_file = folder / "trace.key"
    key_file.write_text("".join(f"{name} {key.hex()}\n" for name, key in KEYS.items()))
    key_file.chmod(0o600)
    with open_endpoint() as endpoint:
        endpoint.slurm.jobs[ADA.job_id] = ADA._replace(uid=os.getuid())
        forward = ServerAddress(host="127.0.0.1", port=endpoint.address.port, prefix="/trace")
        with open_agent(folder, forward=forward, key_file=key_file) as agent:
            for pid in range(1, 4):
                assert 204 == agent.post({**SAMPLE, "pid": pid, "command": "solver", "rank": pid}).status
            wait_for(lambda: 3 == len(endpoint.processes()))
            assert () == agent.tracing.read().processes
            assert 3 == agent.tracing.read().accepted
    assert {("n1", pid, "solver", pid, "token") for pid in (1, 2, 3)} == {
        (p.host, p.sample.pid, p.sample.command, p.sample.rank, p.way) for p in endpoint.processes()
    }


def test_what_the_endpoint_cannot_take_now_is_sent_again(folder: Path) -> None:
    key_file = folder / "trace.key"
    key_file.write_text("".join(f"{name} {key.hex()}\n" for name, key in KEYS.items()))
    key_file.chmod(0o600)
    with open_endpoint() as endpoint:
        endpoint.slurm.jobs[ADA.job_id] = ADA._replace(uid=os.getuid())
        endpoint.slurm.is_down = True
        forward = ServerAddress(host="127.0.0.1", port=endpoint.address.port, prefix="/trace")
        with open_agent(folder, forward=forward, key_file=key_file) as agent:
            agent.post({**SAMPLE, "pid": 1, "mem": 1})
            wait_for(lambda: "slurm" in endpoint.store.refused)
            agent.post({**SAMPLE, "pid": 2, "mem": 2})
            endpoint.slurm.is_down = False
            wait_for(lambda: 2 == len(endpoint.store))
            assert {} == agent.tracing.read().refused
    assert {(1, 1.0), (2, 2.0)} == {(p.sample.pid, p.sample.memory_bytes) for p in endpoint.processes()}


def test_refusal_of_the_endpoint_is_counted(folder: Path) -> None:
    key_file = folder / "trace.key"
    rotate_keys(key_file)
    with open_endpoint() as endpoint:
        forward = ServerAddress(host="127.0.0.1", port=endpoint.address.port, prefix="/trace")
        with open_agent(folder, forward=forward, key_file=key_file) as agent:
            assert KeyFile(key_file).keys().keys() != KEYS.keys()
            agent.post(SAMPLE)
            wait_for(lambda: {"forward": 1} == agent.tracing.read().refused)
        assert () == endpoint.processes()


def test_samples_wait_while_the_endpoint_is_down(folder: Path) -> None:
    key_file = folder / "trace.key"
    rotate_keys(key_file)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    forward = ServerAddress(host="127.0.0.1", port=port)
    with open_agent(folder, forward=forward, key_file=key_file, processes=50) as agent:
        assert [204, 204, 429] == [agent.post({**SAMPLE, "pid": pid}).status for pid in (1, 2, 3)]
        assert 204 == agent.post({**SAMPLE, "pid": 1}).status


def test_settings_that_cannot_work_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"trace\.forward needs trace\.key-file"):
        check_forwarding(NodeTraceSettings(socket=folder / "trace.sock", forward=ServerAddress()))
    with pytest.raises(ConfigError, match="cannot listen"), open_agent(folder / "missing"):
        pass
    with pytest.raises(ConfigError, match="longer than"), open_agent(folder / ("x" * 100)):
        pass


def wait_for(is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + GENEROUS_SECONDS
    while not is_done():
        assert time.monotonic() < until
        time.sleep(0.02)
