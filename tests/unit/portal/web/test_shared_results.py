# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from types import SimpleNamespace

import pytest

from slurmscope.core.errors import ArchiveError
from slurmscope.portal.web.slow_results import SharedResult, SharedResults
from tests.fakes.browser import PortalClient
from tests.fakes.portal_backend import make_backend

PATIENCE_SECONDS = 30.0


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Computation:
    """Take some seconds of a clock, and count."""

    def __init__(self, clock: Clock, took_seconds: float) -> None:
        self.times = 0
        self._clock = clock
        self._took_seconds = took_seconds

    def __call__(self) -> int:
        self.times += 1
        self._clock.seconds += self._took_seconds
        return self.times


def test_slow_result_is_kept_with_its_age() -> None:
    clock = Clock()
    results, compute = SharedResults(clock), Computation(clock, 2.0)

    first = results.get("waste", compute)
    clock.seconds += 39.0
    kept = results.get("waste", compute)
    clock.seconds += 1.0
    new = results.get("waste", compute)

    # Two seconds of work are kept for twenty times two.
    assert (SharedResult(1, 0.0), SharedResult(1, 39.0), SharedResult(2, 0.0)) == (first, kept, new)


@pytest.mark.parametrize(("took", "waited", "expected"), [(0.0, 0.0, 2), (10.0, 59.0, 1), (10.0, 60.0, 2)])
def test_result_is_kept_for_a_minute_at_most(took: float, waited: float, expected: int) -> None:
    clock = Clock()
    results, compute = SharedResults(clock), Computation(clock, took)
    results.get("waste", compute)
    clock.seconds += waited

    assert expected == results.get("waste", compute).value


def test_request_that_waits_too_long_for_another_gets_an_error_of_the_archive() -> None:
    results = SharedResults(wait_seconds=0.01)
    begun, may_end = threading.Event(), threading.Event()

    def compute() -> str:
        begun.set()
        assert may_end.wait(PATIENCE_SECONDS)
        return "sums"

    thread = threading.Thread(target=results.get, args=("key", compute))
    thread.start()
    assert begun.wait(PATIENCE_SECONDS)
    with pytest.raises(ArchiveError, match="too long"):
        results.get("key", compute)
    may_end.set()
    thread.join(PATIENCE_SECONDS)


def test_page_shows_how_old_its_sums_are_and_viewers_share_them() -> None:
    clock, app = Clock(), make_backend().make_app()
    results = SharedResults(clock)

    def get_slowly(key: Hashable, compute: Callable[[], object]) -> SharedResult[object]:
        def compute_slowly() -> object:
            clock.seconds += 2.0
            return compute()

        return results.get(key, compute_slowly)

    app.state.shared_results = SimpleNamespace(get=get_slowly)
    first = PortalClient(app, "sue").get("/waste?days=366").text
    clock.seconds += 12.0
    again = PortalClient(app, "root").get("/waste?days=366").text

    assert "Summed up" not in first
    # Two seconds of them for the causes of users, which the first page summed up afterwards.
    assert "Summed up 14 s ago" in again
    assert 403 == PortalClient(app, "ada").get("/waste?days=366").status_code


@pytest.mark.parametrize("page", ["/savings", "/savings?format=json", "/histogram", "/api/v2/histogram"])
def test_sums_of_one_viewer_are_not_shown_to_another(page: str) -> None:
    app = make_backend().make_app()
    results = SharedResults()
    keys: list[object] = []

    def get(key: Hashable, compute: Callable[[], object]) -> SharedResult[object]:
        keys.append(key)
        return results.get(key, compute)

    app.state.shared_results = SimpleNamespace(get=get)

    for name in ("ada", "bob", "sue", "root"):
        PortalClient(app, name).get(page)

    assert 4 == len(keys)
    assert 3 == len(set(keys))
