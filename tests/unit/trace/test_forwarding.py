# SPDX-License-Identifier: Apache-2.0
"""Check against a real endpoint that samples of one job neither wait for ever nor delay those of other jobs."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slurmscope.http.client.address import ServerAddress
from slurmscope.trace.callers import Refusal
from slurmscope.trace.forwarding import BATCH_SAMPLES, Forwarder
from slurmscope.trace.samples import RunningJobOwner, TracedProcess, TraceSample
from slurmscope.trace.settings import TraceLimits
from slurmscope.trace.store import LIFETIME_INTERVALS, TraceStore
from slurmscope.trace.tokens import KeyFile
from tests.fakes.trace_endpoint import ADA, EVE, KEYS, RunningEndpoint, Time, open_endpoint

LIMITS = TraceLimits(processes=300, processes_per_job=250, processes_per_user=280)
LIFETIME_SECONDS = LIFETIME_INTERVALS * LIMITS.rate


@pytest.fixture
def endpoint() -> Iterator[RunningEndpoint]:
    with open_endpoint() as running:
        yield running


class Agent:
    """Hold a forwarder whose rounds and time the test controls."""

    def __init__(self, folder: Path, port: int) -> None:
        key_file = folder / "trace.key"
        key_file.write_text("".join(f"{name} {key.hex()}\n" for name, key in KEYS.items()))
        key_file.chmod(0o600)
        self.time = Time()
        self.store = TraceStore(LIMITS)
        address = ServerAddress(host="127.0.0.1", port=port, prefix="/trace")
        self.forwarder = Forwarder(address, KeyFile(key_file), self.store, LIMITS, clock=self.time)

    def put(self, owner: RunningJobOwner, pids: range, host: str) -> None:
        self.forwarder.put(
            [TracedProcess(owner, host, "socket", TraceSample(owner.job_id, pid=pid, memory_bytes=1.0)) for pid in pids]
        )


@pytest.fixture
def agent(tmp_path: Path, endpoint: RunningEndpoint) -> Agent:
    return Agent(tmp_path, endpoint.address.port)


def test_samples_of_a_job_that_has_ended_are_dropped_when_they_expire(agent: Agent, endpoint: RunningEndpoint) -> None:
    del endpoint.slurm.jobs[ADA.job_id]
    agent.put(ADA, range(1, 4), "n1")
    agent.forwarder.send_pending()
    assert {"job": 1} == endpoint.store.refused
    agent.time.now += LIFETIME_SECONDS + 1
    for _ in range(3):
        agent.forwarder.send_pending()
    assert {"job": 1} == endpoint.store.refused
    assert {"forward": 3} == agent.store.refused


def test_old_sample_is_not_shown_as_a_new_one_after_an_outage(agent: Agent, endpoint: RunningEndpoint) -> None:
    endpoint.slurm.is_down = True
    agent.put(ADA, range(1, 2), "n1")
    agent.forwarder.send_pending()
    endpoint.slurm.is_down = False
    agent.time.now += LIFETIME_SECONDS + 1
    agent.put(ADA, range(2, 3), "n1")
    agent.forwarder.send_pending()
    assert [2] == [process.sample.pid for process in endpoint.processes()]


def test_refused_job_delays_no_other_and_is_tried_once_a_round(agent: Agent, endpoint: RunningEndpoint) -> None:
    del endpoint.slurm.jobs[EVE.job_id]
    agent.put(EVE, range(1, 4 * BATCH_SAMPLES), "n2")
    agent.put(ADA, range(1, 3), "n1")
    agent.put(EVE, range(4 * BATCH_SAMPLES, 5 * BATCH_SAMPLES), "n2")
    agent.forwarder.send_pending()
    assert [1, 2] == [process.sample.pid for process in endpoint.processes()]
    assert {"job": 1} == endpoint.store.refused
    assert not agent.forwarder.pause_seconds
    endpoint.slurm.jobs[EVE.job_id] = EVE
    agent.forwarder.send_pending()
    assert 2 + 5 * BATCH_SAMPLES - 1 == len(endpoint.processes())


def test_rest_waits_at_the_first_attempt_that_finds_no_endpoint(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    agent = Agent(tmp_path, port)
    for _ in range(2):
        agent.put(ADA, range(1, 3), "n1")
        agent.put(EVE, range(1, 3), "n2")
        agent.forwarder.send_pending()
    assert 1.0 <= agent.forwarder.pause_seconds <= 2.0
    assert {} == agent.store.refused


def test_waiting_samples_of_one_job_leave_room_for_others(agent: Agent, endpoint: RunningEndpoint) -> None:
    agent.put(ADA, range(1, 251), "n1")
    with pytest.raises(Refusal, match="of this job") as refused:
        agent.put(ADA, range(250, 252), "n1")
    agent.put(ADA, range(1, 251), "n1")
    agent.put(EVE, range(1, 51), "n2")
    agent.forwarder.send_pending()

    assert 429 == refused.value.status
    assert {ADA.job_id: 250, EVE.job_id: 50} == Counter(process.owner.job_id for process in endpoint.processes())


def test_waiting_samples_of_all_jobs_of_one_user_leave_room_for_others(agent: Agent, endpoint: RunningEndpoint) -> None:
    endpoint.slurm.is_down = True
    jobs = [EVE._replace(job_id=number) for number in (91, 92, 93)]
    for round_number in range(3):
        for job in jobs:
            pids = range(1000 * round_number, 1000 * round_number + 140)
            with suppress(Refusal):
                agent.put(job, pids, "n2")
        agent.forwarder.send_pending()
    with pytest.raises(Refusal, match="Too many samples of this user wait to be forwarded"):
        agent.put(jobs[0], range(5000, 5001), "n2")
    agent.put(ADA, range(1, 21), "n1")


def test_waiting_samples_are_limited_in_all(agent: Agent) -> None:
    agent.put(ADA, range(1, 251), "n1")
    with pytest.raises(Refusal, match="Too many samples wait") as refused:
        agent.put(EVE, range(1, 52), "n2")

    assert 503 == refused.value.status
