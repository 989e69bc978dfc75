# SPDX-License-Identifier: Apache-2.0
"""Every start is counted once, however readings fall and fail."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.squeue import (
    LAG_SECONDS,
    WAIT_BUCKETS_SECONDS,
    Jobs,
    QueueReader,
    StartWindow,
    WaitTally,
    parse_jobs,
)
from slurmscope.core.errors import CommandTimedOut


class Queue:
    """A controller whose jobs start at given times; time passes by hand."""

    def __init__(self, now: int = 1_794_732_000) -> None:
        self.now = now
        self.starts: list[int] = []
        self.is_down = False
        self._latest = now

    def read_jobs(self, window: StartWindow, now_seconds: float) -> Jobs:
        if self.is_down:
            raise CommandTimedOut(["squeue"], "down")
        names = "physics\x1falice\x1fdebug\x1fnormal\x1fRUNNING\x1fNone\x1f(null)"
        # What has started stays, also when the clock is set back.
        self._latest = max(self._latest, self.now)
        starts = ((start, 30 + number) for number, start in enumerate(self.starts) if start <= self._latest)
        rows = (f"{names}\x1e1\x1f1\x1fcpu=1\x1e{start - wait}\x1f{start}\n" for start, wait in starts)
        return parse_jobs("".join(rows).encode(), taken_at_seconds=now_seconds, window=window)

    def reader(self) -> QueueReader:
        return QueueReader(self.read_jobs, lambda: float(self.now))


def counted(tallies: object) -> int:
    assert isinstance(tallies, dict)
    return sum(sum(tally.counts) for tally in tallies.values())


def test_wait_is_put_into_its_bucket() -> None:
    queue = Queue()
    reader = queue.reader()
    queue.starts = [queue.now + 1]
    queue.now += LAG_SECONDS + 2

    waits = reader.read().waits

    position = WAIT_BUCKETS_SECONDS.index(60.0)
    counts = tuple(int(bucket == position) for bucket in range(len(WAIT_BUCKETS_SECONDS) + 1))
    assert {("debug", "normal"): WaitTally(counts, 30.0)} == waits


def test_what_started_before_us_is_history() -> None:
    queue = Queue()
    queue.starts = [queue.now - 100]
    reader = queue.reader()
    queue.now += 60

    assert {} == reader.read().waits


def test_failed_reading_loses_no_start() -> None:
    queue = Queue()
    reader = queue.reader()
    queue.starts = [queue.now + 1]
    queue.now += 60
    queue.is_down = True
    with pytest.raises(CommandTimedOut):
        reader.read()
    queue.is_down = False
    queue.now += 60

    assert 1 == counted(reader.read().waits)
    assert 1 == counted(reader.read().waits)


def test_clock_set_back_counts_nothing_twice() -> None:
    queue = Queue()
    reader = queue.reader()
    queue.starts = [queue.now + 1]
    queue.now += 60
    reader.read()
    queue.now -= 3600
    reader.read()
    queue.now += 3700

    assert 1 == counted(reader.read().waits)


def test_clock_set_back_does_not_stop_the_counting() -> None:
    queue = Queue()
    reader = queue.reader()
    queue.starts = [queue.now + 1]
    queue.now += 60
    reader.read()
    queue.now -= 3600
    reader.read()
    queue.starts.append(queue.now + 10)
    queue.now += 60
    assert 2 == counted(reader.read().waits)
    queue.now += 3600
    assert 2 == counted(reader.read().waits)
    queue.starts.append(queue.now + 10)
    queue.now += 60
    assert 3 == counted(reader.read().waits)


@given(
    st.lists(st.integers(1, 500), max_size=20),
    st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=20),
)
def test_each_start_is_counted_exactly_once(starts: list[int], steps: list[tuple[int, bool]]) -> None:
    queue = Queue()
    reader = queue.reader()
    queue.starts = [queue.now + start for start in starts]
    for seconds, is_down in steps:
        queue.now += seconds
        queue.is_down = is_down
        with contextlib.suppress(CommandTimedOut):
            reader.read()
    queue.is_down = False
    queue.now += 1000

    assert len(starts) == counted(reader.read().waits)
