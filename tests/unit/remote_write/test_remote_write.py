# SPDX-License-Identifier: Apache-2.0
"""Samples arrive once and in order while the server is slow, busy, refuses or is down, and end with stale markers."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from slurmscope.core import clock as periodic
from slurmscope.exporter.collector import Role
from slurmscope.exporter.reading import PushedPage
from slurmscope.metrics.family import Family, gauge
from slurmscope.remote_write.feature import RemoteWriteSettings, parse_write_url
from slurmscope.remote_write.service import RemoteWriteCounters, external_labels, open_remote_write_loop
from tests.fakes.remote_write import FakeReceiver, decode_request
from tests.processes import until

TICK = gauge("tick", "Number of the sample.")


def ticks() -> Callable[[], list[Family]]:
    numbers = itertools.count(1)
    return lambda: [Family(TICK, {(): float(next(numbers))})]


@contextmanager
def writing(
    receiver: FakeReceiver,
    *,
    final_seconds: float = 60.0,
    find_pushed: Callable[[], PushedPage] = PushedPage,
    **settings: object,
) -> Iterator[RemoteWriteCounters]:
    given = RemoteWriteSettings(**settings)  # type: ignore[arg-type]
    address = parse_write_url(receiver.url)
    loop = open_remote_write_loop(
        ticks(),
        given,
        address,
        role=Role.NODE,
        interval_seconds=0.01,
        find_pushed=find_pushed,
        final_seconds=final_seconds,
    )
    with loop as counters:
        yield counters


def received(receiver: FakeReceiver) -> list[float]:
    return [sample.value for sample in receiver.samples if sample.name == "tick" and not sample.is_stale]


def test_samples_arrive_in_order_and_end_with_stale_markers() -> None:
    with FakeReceiver().serving() as receiver:
        with writing(receiver) as counters:
            until(lambda: len(received(receiver)) >= 3)
        values = received(receiver)
        last = receiver.accepted[-1]

    assert [float(number) for number in range(1, len(values) + 1)] == values
    assert {"up", "tick"} == {sample.name for sample in last if sample.is_stale}
    times = [sample.at_ms for sample in receiver.samples if sample.name == "tick"]
    assert sorted(set(times)) == times
    assert (0, 0) == (counters.refused, counters.failures)
    assert len(receiver.samples) == counters.accepted


def test_no_sample_is_lost_while_the_server_is_busy() -> None:
    answers = [(503, b"", ""), (429, b"", "Retry-After: 0"), (500, b"", "")]
    with FakeReceiver(answers=answers).serving() as receiver, writing(receiver) as counters:
        until(lambda: len(received(receiver)) >= 5)
        values = received(receiver)
        assert 3 == counters.failures

    assert [float(number) for number in range(1, len(values) + 1)] == values


def test_samples_are_taken_while_the_server_does_not_answer() -> None:
    with FakeReceiver().serving() as receiver, writing(receiver) as counters:
        until(lambda: len(received(receiver)) >= 1)
        receiver.may_answer.clear()
        before = counters.buffer.bytes
        until(lambda: counters.buffer.bytes > before + 200)
        receiver.may_answer.set()
        until(lambda: len(received(receiver)) >= 5)
        values = received(receiver)

    assert [float(number) for number in range(1, len(values) + 1)] == values


def test_refused_samples_are_dropped_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        FakeReceiver(answers=[(400, b"out of order", "")] * 2).serving() as receiver,
        writing(receiver) as counters,
    ):
        until(lambda: len(received(receiver)) >= 1)
        refused = counters.refused

    assert 4 == refused  # up and tick, twice
    assert 3.0 == received(receiver)[0]
    assert ["remote write was refused; samples are dropped"] * 2 == [
        record.message for record in caplog.records if record.levelno == logging.ERROR
    ]


def test_refused_pushed_series_cost_no_sample_of_our_own() -> None:
    # Another sender has the same pushed series: the server refuses every request with one of them.
    pages = [PushedPage(blocks=(zlib.compress(b"done 1\n", wbits=31),)), PushedPage()]
    with FakeReceiver(refused_name="done").serving() as receiver:
        with writing(receiver, find_pushed=lambda: pages[0]) as counters:
            until(lambda: len(received(receiver)) >= 3)
            del pages[0]  # a stale marker of it is refused too
            before = len(received(receiver))
            until(lambda: len(received(receiver)) >= before + 3)
            pages[0] = PushedPage(blocks=(zlib.compress(b"done 2\n", wbits=31),))
            before = counters.refused
            until(lambda: counters.refused > before)
        values = received(receiver)
        last = receiver.accepted[-1]

    assert [float(number) for number in range(1, len(values) + 1)] == values
    assert {"up", "tick"} == {sample.name for sample in last if sample.is_stale}
    assert len(receiver.samples) == counters.accepted
    assert {"up", "tick"} == {sample.name for sample in receiver.samples}
    refused = [sample for request in receiver.requests for sample in decode_request(request.body)]
    assert sum(sample.name == "done" for sample in refused) == counters.refused


def test_buffer_keeps_the_newest_samples_within_its_bound() -> None:
    with ExitStack() as stack:
        receiver = stack.enter_context(FakeReceiver().serving())
        receiver.may_answer.clear()
        counters = stack.enter_context(writing(receiver, buffer_bytes=300))
        until(lambda: counters.buffer.dropped["size"] >= 10)
        assert counters.buffer.bytes <= 300
        receiver.may_answer.set()
        until(lambda: len(received(receiver)) >= 5)
        values = received(receiver)

    assert sorted(values) == values
    assert len(values) < values[-1]


def test_end_does_not_wait_for_a_server_that_is_down(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        receiver = FakeReceiver(url=f"http://127.0.0.1:{free.getsockname()[1]}/write")
        with caplog.at_level(logging.INFO), writing(receiver, final_seconds=0.2) as counters:
            until(lambda: counters.failures >= 1)

    messages = [record.message for record in caplog.records]
    assert "remote write failed; samples are kept" in messages
    assert "samples were not sent before the end" in messages


def test_end_waits_only_briefly_for_a_server_that_hangs() -> None:
    with FakeReceiver().serving() as receiver:
        receiver.may_answer.clear()
        with writing(receiver, final_seconds=0.2) as counters:
            until(lambda: counters.buffer.bytes > 0)
        accepted = counters.accepted
        receiver.may_answer.set()

    assert 0 == accepted


def test_samples_of_a_collector_that_outlasts_the_end_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are older than the stale markers."""
    monkeypatch.setattr(periodic, "END_SECONDS", 0.05)
    is_slow, may_go_on = threading.Event(), threading.Event()
    tick, rounds = ticks(), itertools.count()

    def collect() -> list[Family]:
        if next(rounds):
            is_slow.set()
            assert may_go_on.wait(60)
        return tick()

    with FakeReceiver().serving() as receiver:
        address = parse_write_url(receiver.url)
        with open_remote_write_loop(
            collect, RemoteWriteSettings(), address, role=Role.NODE, interval_seconds=0.01, final_seconds=60.0
        ) as counters:
            assert is_slow.wait(60)
        may_go_on.set()
        for thread in threading.enumerate():
            if thread.name == "remote-write":
                thread.join(60)

    assert [1.0] == received(receiver)
    assert {"up", "tick"} == {sample.name for sample in receiver.accepted[-1] if sample.is_stale}
    assert 0 == counters.buffer.bytes


def test_metrics_count_what_became_of_samples() -> None:
    with FakeReceiver(answers=[(400, b"", "")]).serving() as receiver, writing(receiver) as counters:
        until(lambda: counters.accepted >= 4)
    families = {family.metric.name: dict(family.samples) for family in counters.families()}

    assert len(receiver.samples) == families["slurmscope_remote_write_samples_total"][()]
    assert {("refused",): 2, ("age",): 0, ("size",): 0} == families["slurmscope_remote_write_dropped_samples_total"]
    assert {(): 0} == families["slurmscope_remote_write_buffered_bytes"]


def test_labels_are_those_of_a_scrape_unless_they_are_set() -> None:
    host = socket.gethostname().partition(".")[0]
    labels = external_labels(RemoteWriteSettings(labels=("instance=n7", "cluster=a=b")), Role.CLUSTER)

    assert {"instance": "n7", "job": "slurm", "cluster": "a=b"} == labels
    assert {"instance": host, "job": "slurm-nodes"} == external_labels(RemoteWriteSettings(), Role.NODE)
