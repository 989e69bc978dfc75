# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to jobs, GPUs and the child process, jobs get no more than their GPU did while they held it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.node.cgroup.names import ProcessPlace
from slurmscope.node.gpu.attribution import GpuHold, Source
from slurmscope.node.gpu.counters import JobCounters
from slurmscope.node.gpu.reader import DriverCounters
from slurmscope.node.gpu.records import Gpu, GpuCounters, GpuProcess, GpuReason
from slurmscope.node.job_use import JobKey

UUIDS = ("GPU-a", "GPU-b")
JOBS = tuple(JobKey(job_id=number) for number in range(1, 5))
STRANGER = 99
WATTS = 500.0

gpus = st.sampled_from(UUIDS)
jobs = st.sampled_from(JOBS)
# The driver's shares of processes are often wrong, and may be missing.
shares = st.lists(st.integers(0, 3), min_size=5, max_size=5)
events = st.one_of(
    st.tuples(st.just("work"), st.sampled_from((0.2, 5.0, 60.0)), st.sampled_from((0.0, 0.3, 1.0)), shares),
    st.tuples(st.just("start"), jobs, gpus),
    st.tuples(st.just("let_go"), jobs, gpus),
    st.tuples(st.sampled_from(("end", "expire")), jobs),
    st.tuples(st.sampled_from(("lose", "find", "load_driver")), gpus),
    st.tuples(st.just("restart_child")),
    st.tuples(st.just("read")),
)


@dataclass
class Board:
    """Be a GPU: ``total`` is what it did; the others are what the driver and the child have counted so far."""

    holders: set[JobKey] = field(default_factory=set)
    is_lost: bool = False
    joules: float = 1e6
    seconds: float = 0.0
    busy: float = 0.0
    by_pid: dict[int, float] = field(default_factory=dict)
    total: float = 0.0

    def work(self, seconds: float, duty: float, weights: list[int]) -> None:
        self.total += seconds * duty
        self.joules += seconds * WATTS
        if self.is_lost:
            return
        self.seconds, self.busy = self.seconds + seconds, self.busy + seconds * duty
        parts = {pid: weights[pid % 5] for pid in (STRANGER, *(_pid(job) for job in self.holders))}
        whole = sum(parts.values()) or 1
        self.by_pid = {pid: self.by_pid.get(pid, 0.0) + seconds * duty * part / whole for pid, part in parts.items()}

    def forget(self) -> None:
        self.seconds, self.busy, self.by_pid = 0.0, 0.0, {}

    def show(self, index: int, uuid: str) -> Gpu:
        if self.is_lost:
            return Gpu(index=index, problem=GpuReason.LOST)
        places = {_pid(job): job.job_id for job in JOBS}
        return Gpu(
            index=index,
            uuid=uuid,
            energy_joules=self.joules,
            counters=GpuCounters(
                source="gpm", seconds=self.seconds, totals={"busy": self.busy}, by_pid=dict(self.by_pid)
            ),
            processes=tuple(GpuProcess(pid=pid, place=ProcessPlace(job_id=places.get(pid))) for pid in self.by_pid),
        )


def _pid(job: JobKey) -> int:
    return 10 + (job.job_id or 0)


class Node:
    """Be a node with two GPUs; ``given`` is what jobs were told in all, by GPU."""

    def __init__(self) -> None:
        self.boards = {uuid: Board() for uuid in UUIDS}
        self.running: set[JobKey] = set()
        self.ended: set[JobKey] = set()
        self.now = 0.0
        self.counters, self.driver = JobCounters(), DriverCounters()
        self.last: dict[tuple[JobKey, str], dict[str, float]] = {}
        self.given = {uuid: defaultdict[str, float](float) for uuid in UUIDS}
        self.started_again: set[JobKey] = set()
        self.read()

    def do(self, event: tuple[object, ...]) -> None:
        name, *arguments = event
        getattr(self, str(name))(*arguments)

    def work(self, seconds: float, duty: float, weights: list[int]) -> None:
        self.now += seconds
        for board in self.boards.values():
            board.work(seconds, duty, weights)

    def start(self, job: JobKey, uuid: str) -> None:
        if job not in self.running:
            self.started_again.add(job)
        self.ended.discard(job)
        self.running.add(job)
        self.boards[uuid].holders.add(job)

    def let_go(self, job: JobKey, uuid: str) -> None:
        self.boards[uuid].holders.discard(job)

    def end(self, job: JobKey) -> None:
        if job in self.running:
            self.running.discard(job)
            self.ended.add(job)
            for board in self.boards.values():
                board.holders.discard(job)

    def expire(self, job: JobKey) -> None:
        self.ended.discard(job)

    def lose(self, uuid: str) -> None:
        self.boards[uuid].is_lost = True

    def find(self, uuid: str) -> None:
        if self.boards[uuid].is_lost:  # the child has forgotten it
            self.boards[uuid].is_lost = False
            self.boards[uuid].forget()

    def load_driver(self, uuid: str) -> None:
        self.boards[uuid].joules = 0.0

    def restart_child(self) -> None:
        for board in self.boards.values():
            board.forget()

    def read(self) -> None:
        devices = [
            self.driver.go_on(board.show(index, uuid), self.now)
            for index, (uuid, board) in enumerate(self.boards.items())
        ]
        held = frozenset({Source.DEVICES})
        holds = [
            GpuHold(job=job, gpu=gpu, sources=held, is_held=True, is_disputed=False, is_idle=None)
            for gpu in devices
            if gpu.uuid
            for job in self.boards[gpu.uuid].holders
        ]
        found = self.counters.add(devices, holds, running=self.running, ended=self.ended)
        for (job, uuid), used in found.items():
            before = self.last.get((job, uuid), {})
            for name, total in used.totals.items():
                has_begun_anew = total < before.get(name, 0.0) - 1e-9
                assert not has_begun_anew or job in self.started_again
                self.given[uuid][name] += total - (0.0 if has_begun_anew else before.get(name, 0.0))
            self.last[job, uuid] = {**before, **used.totals}


@settings(max_examples=300)
@given(st.lists(events, max_size=60))
def test_jobs_get_no_more_than_their_gpu_did_and_lose_nothing_that_they_had(happened: list[tuple[object, ...]]) -> None:
    node = Node()
    for event in happened:
        node.do(event)
        for uuid, board in node.boards.items():
            assert node.given[uuid]["busy"] <= board.total + 1e-6
            assert node.given[uuid]["energy"] <= WATTS * node.now + 1e-6


@given(st.lists(st.one_of(st.tuples(st.just("work"), st.just(5.0), st.sampled_from((0.0, 0.3, 1.0)), shares),
                          st.just(("read",))), max_size=20))  # fmt: skip
def test_only_holder_gets_all_of_it_at_every_reading(happened: list[tuple[object, ...]]) -> None:
    node = Node()
    node.start(JOBS[0], UUIDS[0])
    for event in (*happened, ("read",)):
        node.do(event)
    assert node.boards[UUIDS[0]].total == pytest.approx(node.given[UUIDS[0]]["busy"])
    assert node.now * WATTS == pytest.approx(node.given[UUIDS[0]]["energy"])
