# SPDX-License-Identifier: Apache-2.0
"""Names of users are found aside, and nobody ever waits for them."""

from __future__ import annotations

import pwd
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmscope.core.user_names import NameCache, look_up, look_up_below
from tests.processes import until

PATIENCE_SECONDS = 30.0


class Service:
    """A name service that can be stopped."""

    def __init__(self, names: dict[int, str]) -> None:
        self.names = names
        self.requested: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def look_up(self, uid: int) -> str | None:
        self.requested.append(uid)
        self.gate.wait(PATIENCE_SECONDS)
        return self.names.get(uid)


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def make() -> Iterator[Callable[..., NameCache]]:
    made: list[tuple[NameCache, Service]] = []

    def build(service: Service, **limits: object) -> NameCache:
        cache = NameCache(service.look_up, **limits)  # type: ignore[arg-type] # any limit
        made.append((cache, service))
        return cache

    yield build
    for cache, service in made:
        service.gate.set()
        cache.close()


def test_name_is_known_the_second_time(make: Callable[..., NameCache]) -> None:
    service = Service({1000: "alice"})
    cache = make(service)

    assert "1000" == cache.name(1000)
    until(lambda: cache.name(1000) == "alice")
    assert [1000] == service.requested


def test_hanging_service_delays_no_caller(make: Callable[..., NameCache]) -> None:
    service = Service({})
    service.gate.clear()
    cache = make(service, queue_limit=10)
    started = time.monotonic()

    names = [cache.name(uid) for uid in range(10_000)]

    assert time.monotonic() - started < 5
    assert [str(uid) for uid in range(10_000)] == names
    until(lambda: service.requested)
    assert [0] == service.requested
    assert 1 == sum(thread.name == "user-names" for thread in threading.enumerate() if thread is cache._worker)


def test_patience_gives_names_at_once(make: Callable[..., NameCache]) -> None:
    service = Service({1: "alice", 2: "bob"})
    cache = make(service, patience_seconds=PATIENCE_SECONDS)

    assert ["alice", "bob", "3"] == [cache.name(uid) for uid in (1, 2, 3)]


def test_patience_is_for_all_callers_together(make: Callable[..., NameCache]) -> None:
    service = Service({})
    service.gate.clear()
    cache = make(service, patience_seconds=0.3)
    started = time.monotonic()

    assert [str(uid) for uid in range(100)] == [cache.name(uid) for uid in range(100)]
    assert time.monotonic() - started < 0.3 * 50


def test_service_that_comes_back_resolves_what_did_not_fit(make: Callable[..., NameCache]) -> None:
    service = Service({uid: f"user{uid}" for uid in range(50)})
    service.gate.clear()
    cache = make(service, queue_limit=5)
    for uid in range(50):
        cache.name(uid)
    service.gate.set()

    until(lambda: [cache.name(uid) for uid in range(50)] == [f"user{uid}" for uid in range(50)])
    assert sorted(set(service.requested)) == sorted(service.requested)


def test_user_without_name_stays_a_number_and_is_resolved_again_later(make: Callable[..., NameCache]) -> None:
    clock, service = Time(), Service({})
    cache = make(service, clock=clock, nameless_lifetime_seconds=60.0)
    cache.name(1000)
    until(lambda: 1000 in cache._known)
    clock.now = 59.0
    assert "1000" == cache.name(1000)
    service.names[1000] = "alice"
    clock.now = 60.0

    assert "1000" == cache.name(1000)
    until(lambda: cache.name(1000) == "alice")
    assert [1000, 1000] == service.requested


def test_old_name_is_given_while_it_is_requested_again(make: Callable[..., NameCache]) -> None:
    clock, service = Time(), Service({1000: "alice"})
    cache = make(service, clock=clock, lifetime_seconds=600.0)
    until(lambda: cache.name(1000) == "alice")
    service.gate.clear()
    service.names[1000] = "alicia"
    clock.now = 600.0

    assert "alice" == cache.name(1000)
    service.gate.set()
    until(lambda: cache.name(1000) == "alicia")


def test_name_survives_a_service_that_is_down(make: Callable[..., NameCache]) -> None:
    clock, service = Time(), Service({1000: "alice"})
    cache = make(service, clock=clock)
    until(lambda: cache.name(1000) == "alice")
    service.names.clear()
    clock.now = 10_000.0
    cache.name(1000)
    until(lambda: service.requested == [1000, 1000] and not cache._queued)

    assert "alice" == cache.name(1000)


def test_oldest_names_are_dropped_first(make: Callable[..., NameCache]) -> None:
    cache = make(Service({uid: f"user{uid}" for uid in range(30)}), size_limit=10)
    for uid in range(30):
        cache.name(uid)
    until(lambda: not cache._queued)

    assert list(range(20, 30)) == list(cache._known)


def test_closed_cache_resolves_no_more(make: Callable[..., NameCache]) -> None:
    service = Service({1000: "alice"})
    cache = make(service)
    until(lambda: cache.name(1000) == "alice")
    cache.close()

    assert "2000" == cache.name(2000)
    assert [1000] == service.requested
    assert "alice" == cache.name(1000)


def test_cache_with_a_hanging_service_can_be_closed(make: Callable[..., NameCache]) -> None:
    service = Service({})
    service.gate.clear()
    cache = make(service, queue_limit=1)
    cache.name(1)
    until(lambda: service.requested)
    cache.name(2)
    started = time.monotonic()
    cache.close()

    assert time.monotonic() - started < 10


def test_machine_knows_its_users() -> None:
    somebody = pwd.getpwall()[0]
    assert somebody.pw_name == look_up(somebody.pw_uid)
    assert look_up(2**31 - 7) is None
    assert look_up(-2) is None


def test_users_of_a_mounted_root_come_from_its_own_file(tmp_path: Path) -> None:
    somebody = pwd.getpwall()[0]
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_bytes(
        b"# comment\n+::::::\nshort:x:1234\nalice:x:1234:100:Alice:/home/alice:/bin/sh\nM\xfcller:x:77:1:::\n"
        + f"other:x:{somebody.pw_uid}:0:::\n".encode()
    )
    find = look_up_below(tmp_path)

    assert "alice" == find(1234)
    assert "M\N{REPLACEMENT CHARACTER}ller" == find(77)
    assert "other" == find(somebody.pw_uid)


def test_users_that_a_mounted_root_does_not_list_come_from_the_name_service(tmp_path: Path) -> None:
    somebody = pwd.getpwall()[0]
    find = look_up_below(tmp_path)

    assert somebody.pw_name == find(somebody.pw_uid)
    assert find(2**31 - 7) is None


def test_own_root_is_left_to_the_name_service() -> None:
    assert look_up_below(Path("/")) is look_up
