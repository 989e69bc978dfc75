# SPDX-License-Identifier: Apache-2.0
"""Check what a push changes, what it may not, and what is left after any end of the process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurmscope.core.errors import ConfigError
from slurmscope.http.server.request import BadRequest
from slurmscope.inbox.pushed import OwnMetrics
from slurmscope.inbox.store import GroupStore, InboxSettings
from slurmscope.metrics.family import gauge
from tests.fakes.push_inbox import WallClock, open_store, page_of, push

DAY = 86_400.0


def refused(store: GroupStore, text: str, *, is_whole: bool = True, **labels: str) -> tuple[int, str]:
    with pytest.raises(BadRequest) as problem:
        push(store, text, is_whole=is_whole, ttl=None, **labels)
    return problem.value.status, problem.value.code


def names(store: GroupStore) -> list[tuple[str, list[str]]]:
    return [(group.labels["job"], sorted(group.families)) for group in store.groups()]


def test_put_replaces_a_group_and_post_only_its_families_of_the_same_name() -> None:
    store = open_store()
    push(store, "a 1\nb 1\n", job="x")
    push(store, "b 2\n", is_whole=False, job="x")
    assert 'a{instance="",job="x"} 1.0' in page_of(store)
    assert 'b{instance="",job="x"} 2.0' in page_of(store)
    assert 2 == store.series_count

    push(store, "c 3\n", job="x")
    assert [("x", ["c"])] == names(store)
    store.delete({"job": "x"})
    store.delete({"job": "x"})
    assert [] == names(store)
    assert (0, 0) == (store.series_count, store.size_bytes)


def test_conflict_stores_nothing_but_its_time() -> None:
    clock = WallClock()
    store = open_store(clock)
    push(store, "a 1\n", job="x")
    clock.now += 5
    before = page_of(store)

    assert (400, "conflict") == refused(store, "# TYPE a gauge\na 1\n", job="y")
    assert (400, "conflict") == refused(store, "b 1\nslurm_nodes 1\n", is_whole=False, job="x")
    assert (400, "conflict") == refused(store, "# TYPE c histogram\nc_count 1\n# TYPE c_count gauge\n", job="x")

    assert before == page_of(store)
    assert [(1_700_000_000.0, clock.now), (0.0, clock.now)] == [(g.pushed_at, g.failed_at) for g in store.groups()]


def test_group_may_change_the_type_of_what_only_it_has() -> None:
    store = open_store()
    push(store, "a 1\n", job="x")
    push(store, "# TYPE a gauge\na 1\n", job="x")
    push(store, "# TYPE a counter\na 1\n", is_whole=False, job="x")
    assert "# TYPE a counter" in page_of(store)


def test_families_that_a_post_leaves_alone_are_checked() -> None:
    store = open_store()
    push(store, "# TYPE s summary\ns_count 1\ns_sum 1\n", job="x")
    assert (400, "conflict") == refused(store, "s_count 1\n", is_whole=False, job="x")
    push(store, "s_count 1\n", job="x")


def test_limits_hold_for_groups_series_and_bytes() -> None:
    # 12 groups, 12 series in each of them, 120 series in all.
    store = open_store(settings=InboxSettings(size=120 * 640))
    twelve = "".join(f"a{number} 1\n" for number in range(12))
    push(store, twelve, job="x")
    assert (413, "limit") == refused(store, "d 1\n", is_whole=False, job="x")
    for number in range(9):
        push(store, twelve, job=f"x{number}")
    assert (503, "full") == refused(store, "a0 1\n", job="y")
    push(store, "c 1\n", job="x")
    push(store, "a0 1\n", job="y")
    push(store, "a0 1\n", job="y2")
    assert (503, "full") == refused(store, "", job="z")
    assert (503, "full") == refused(store, "slurm_nodes 1\n", job="z")
    assert 9 * 12 + 3 == store.series_count

    small = open_store(settings=InboxSettings(size=6400))
    push(small, "a 1\n", job="x")
    assert (503, "full") == refused(small, f"# HELP a {'x' * 6400}\na 1\n", job="x")
    assert 0 < small.size_bytes <= 6400


def test_labels_of_a_group_count_for_each_series() -> None:
    store = open_store(settings=InboxSettings(size=64_000))
    series = "".join(f'a{{n="{number}"}} 1\n' for number in range(10))
    push(store, series, job="x" * 700)
    assert (413, "too_large") == refused(store, series, job="x" * 800)


def test_groups_expire_and_a_push_may_ask_for_less() -> None:
    clock = WallClock()
    store = open_store(clock, settings=InboxSettings(ttl=DAY))
    push(store, "a 1\n", job="day")
    push(store, "a 1\n", ttl=60, job="minute")
    push(store, "a 1\n", ttl=9 * DAY, job="greedy")
    refused(store, "slurm_nodes 1\n", job="failed")
    clock.now += 59
    assert 4 == len(store.groups())
    clock.now += 1
    assert ["day", "failed", "greedy"] == [group.labels["job"] for group in store.groups()]
    clock.now += DAY - 61
    push(store, "a 2\n", job="day")
    clock.now += 1
    assert [("day", ["a"])] == names(store)
    assert 3 == store.expired


def test_reload_may_shorten_the_time_to_live() -> None:
    clock = WallClock()
    store = open_store(clock, settings=InboxSettings(ttl=DAY))
    push(store, "a 1\n", job="x")
    clock.now += 60
    assert 1 == len(store.groups())
    store.reconfigure(InboxSettings(ttl=60.0), 100)
    assert () == store.groups()


def test_group_without_ttl_stays() -> None:
    clock = WallClock()
    store = open_store(clock, settings=InboxSettings(ttl=0.0))
    push(store, "a 1\n", job="x")
    clock.now += 10_000 * DAY
    assert [("x", ["a"])] == names(store)


def test_groups_are_restored_within_their_time_to_live(tmp_path: Path) -> None:
    clock = WallClock()
    settings = InboxSettings(directory=tmp_path / "inbox", ttl=DAY)
    store = open_store(clock, settings=settings)
    push(
        store, '# HELP h H "\\\\"\n# TYPE h histogram\nh_bucket{le="+Inf"} 1\nh_sum 0.1\nh_count 1\n', job="x", d="ü/\n"
    )
    push(store, "b NaN\n", ttl=60.0, job="y")
    push(store, "c 1\n", job="z")
    store.delete({"job": "z"})
    refused(store, "slurm_nodes 1\n", job="y")
    before = [(g.labels, g.pushed_at, g.failed_at, g.ttl_seconds, g.content()) for g in store.groups()]
    store.close()
    (tmp_path / "inbox" / ".0.part").write_text("half")

    again = open_store(clock, settings=settings)
    assert before == [(g.labels, g.pushed_at, g.failed_at, g.ttl_seconds, g.content()) for g in again.groups()]
    assert (store.series_count, store.size_bytes) == (again.series_count, again.size_bytes)
    again.close()
    assert [] == list((tmp_path / "inbox").glob(".*"))

    clock.now += 60
    later = open_store(clock, settings=settings)
    assert ["x"] == [group.labels["job"] for group in later.groups()]
    assert 1 == len(list((tmp_path / "inbox").glob("*.prom")))
    later.close()


def test_what_no_longer_fits_is_not_restored_and_costs_only_itself(tmp_path: Path) -> None:
    settings = InboxSettings(directory=tmp_path)
    store = open_store(settings=settings)
    for name in ("a", "b"):
        push(store, f"{name} 1\n", job=name)
    store.close()
    for number, content in enumerate(
        [
            b"", b"{}", b"[]\n", b'{"version": 2}\n', b"[" * 5000, b"\xff\n", b'{"version":1,"labels":{"x-y":"1"}}\n',
            b'{"version":1,"labels":{"job":"q"},"pushed_at":"inf","failed_at":0,"ttl_seconds":null}\n',
            b'{"version":1,"labels":{"job":"q"},"pushed_at":1,"failed_at":0,"ttl_seconds":null}\nq 1 1\n',
        ]
    ):  # fmt: skip
        (tmp_path / f"{number}.prom").write_bytes(content)
    os.mkfifo(tmp_path / "pipe.prom")
    (tmp_path / "link.prom").symlink_to("/etc/hostname")

    again = open_store(settings=settings, own=OwnMetrics((gauge("b", "B."),), shared=()))
    assert [("a", ["a"])] == names(again)
    again.close()


def test_clock_that_was_ahead_lets_no_group_live_longer(tmp_path: Path) -> None:
    clock = WallClock(now=1_800_000_000.0)
    settings = InboxSettings(directory=tmp_path, ttl=DAY)
    store = open_store(clock, settings=settings)
    push(store, "a 1\n", job="x")
    store.close()
    clock.now = 1_700_000_000.0
    again = open_store(clock, settings=settings)
    clock.now += DAY
    assert () == again.groups()
    again.close()


def test_directory_belongs_to_one_process(tmp_path: Path) -> None:
    settings = InboxSettings(directory=tmp_path)
    store = open_store(settings=settings)
    with pytest.raises(ConfigError, match="used by another process"):
        open_store(settings=settings)
    store.close()
    open_store(settings=settings).close()
    with pytest.raises(ConfigError, match="cannot be used"):
        open_store(settings=InboxSettings(directory=tmp_path / "missing" / "deeper"))


def test_push_that_cannot_be_stored_is_refused_and_leaves_the_group(tmp_path: Path) -> None:
    directory = tmp_path / "inbox"
    store = open_store(settings=InboxSettings(directory=directory))
    push(store, "a 1\n", job="x")
    directory.rename(tmp_path / "gone")
    assert (500, "storage") == refused(store, "a 2\n", job="x")
    assert 'a{instance="",job="x"} 1.0' in page_of(store)
    (tmp_path / "gone").rename(directory)
    push(store, "a 3\n", job="x")
    store.close()
