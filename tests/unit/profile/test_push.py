# SPDX-License-Identifier: Apache-2.0
"""Samples of profiled jobs are pushed under their older names, and nothing is left of jobs that have ended."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from slurmscope.core.errors import ConfigError
from slurmscope.profile.events import Profile, ProfiledStep, ProfileSeries, Sample, SampledField, StepKey
from slurmscope.profile.feature import ProfileSettings, check_push
from slurmscope.profile.service import DELETE_AGAIN_SECONDS, NodeProfiling, ProfilePush, open_profile_push
from tests.fakes.scripted_server import read_whole_request, scripted_server
from tests.processes import until

PAGE = """\
push_time_seconds{instance="n1",job="7"} 1
slurmscope_profile_pushed{host="here",instance="n1",job="7"} 1
slurmscope_profile_pushed{host="elsewhere",instance="n2",job="8"} 1
slurmscope_profile_pushed{host="here",instance="",job="9"} 1
"""


@dataclass(slots=True)
class Gateway:
    """Record the requests, and refuse them with a status if one is set."""

    status: int = 200
    page: str = ""
    seen: list[tuple[str, str, str]] = field(default_factory=list)

    def handle(self, connection: socket.socket) -> None:
        request = read_whole_request(connection)
        method, path, _ = request.line.split()
        self.seen.append((method, path, request.body.decode()))
        text = self.page.encode() if method == "GET" else b""
        connection.sendall(b"HTTP/1.1 %d Words\r\nContent-Length: %d\r\n\r\n" % (self.status, len(text)) + text)

    def take(self) -> list[tuple[str, str]]:
        """Return methods and paths since the last call."""
        taken = [(method, path) for method, path, _ in self.seen]
        self.seen.clear()
        return taken


class Pushed(ProfilePush):
    """Push what the test says."""

    def __init__(self, url: str) -> None:
        self.profile: Profile | None = Profile()
        self.now = 0.0
        super().__init__(url, lambda: self.profile, host="here", clock=lambda: self.now)


@contextmanager
def pushing(gateway: Gateway) -> Iterator[Pushed]:
    """Push to a gateway whose groups of an earlier agent were already deleted."""
    with scripted_server(gateway.handle) as url:
        push = Pushed(url)
        push.push()
        gateway.seen.clear()
        yield push


@pytest.fixture
def gateway() -> Gateway:
    """Return a gateway without any groups."""
    return Gateway()


def step(job_id: int, number: str = "0", *, cpu: float = 1.5) -> ProfiledStep:
    """Return a step with a sample of task 1."""
    fields = {"CPUTime": SampledField(cpu, 9.0), "RSS": SampledField(2048, 9), "GPUMemMB": SampledField(1e13, 9)}
    sample = Sample(series=ProfileSeries.TASKS, task="1", fields=fields)
    return ProfiledStep(key=StepKey(job_id, number, "n1"), samples={(ProfileSeries.TASKS, "1"): sample})


def test_job_is_pushed_under_the_older_names_and_group(gateway: Gateway) -> None:
    with pushing(gateway) as push:
        push.profile = Profile(steps=(step(12), step(12, "batch"), step(13)))
        push.push()

    assert [("PUT", "/metrics/job/12/instance/n1"), ("PUT", "/metrics/job/13/instance/n1")] == [
        (method, path) for method, path, _ in gateway.seen
    ]
    lines = [line for line in gateway.seen[0][2].splitlines() if not line.startswith("#")]
    assert [
        'CPUTime{step="0",task="1"} 1.5',
        'CPUTime{step="batch",task="1"} 1.5',
        'RSS{step="0",task="1"} 2048.0',
        'RSS{step="batch",task="1"} 2048.0',
        'slurmscope_profile_pushed{host="here"} 1.0',
    ] == lines


def test_group_is_pushed_again_only_if_a_sample_is_new(gateway: Gateway) -> None:
    with pushing(gateway) as push:
        for cpu in (1.5, 1.5, 2.5):
            push.profile = Profile(steps=(step(12, cpu=cpu),))
            push.push()

    assert 2 == len(gateway.seen)


def test_group_is_deleted_when_the_last_step_has_ended(gateway: Gateway) -> None:
    with pushing(gateway) as push:
        push.profile = Profile(steps=(step(12), step(12, "1")))
        push.push()
        gateway.take()
        push.profile = Profile(steps=(step(12), replace(step(12, "1"), has_ended=True)))
        push.push()
        assert [("PUT", "/metrics/job/12/instance/n1")] == gateway.take()
        push.profile = Profile(steps=(replace(step(12), has_ended=True),))
        push.push()
        push.push()

    assert [("DELETE", "/metrics/job/12/instance/n1")] == gateway.take()


def test_failed_deletion_is_repeated(gateway: Gateway) -> None:
    with pushing(gateway) as push:
        push.profile = Profile(steps=(step(12),))
        push.push()
        gateway.take()
        push.profile, gateway.status = Profile(), 503
        push.push()
        gateway.status = 202
        push.push()

        assert 1 == push.errors
    assert [("DELETE", "/metrics/job/12/instance/n1")] * 2 == gateway.take()


def test_push_that_timed_out_and_lands_after_the_deletion_is_deleted_again(gateway: Gateway) -> None:
    """A gateway that hung does what waited in it, in any order, when it goes on."""
    with pushing(gateway) as push:
        push.profile, gateway.status = Profile(steps=(step(12),)), 503
        push.push()
        push.profile, gateway.status = Profile(), 202
        push.push()
        assert [("PUT", "/metrics/job/12/instance/n1"), ("DELETE", "/metrics/job/12/instance/n1")] == gateway.take()
        # Now the push lands.
        push.push()
        assert [] == gateway.take()
        for status in (503, 202, 202):
            push.now, gateway.status = push.now + DELETE_AGAIN_SECONDS, status
            push.push()

    assert [("DELETE", "/metrics/job/12/instance/n1")] * 2 == gateway.take()


def test_job_that_goes_on_is_not_deleted_again(gateway: Gateway) -> None:
    """Its next step has started."""
    with pushing(gateway) as push:
        push.profile, gateway.status = Profile(steps=(step(12),)), 503
        push.push()
        push.profile, gateway.status = Profile(), 202
        push.push()
        gateway.take()
        push.profile = Profile(steps=(step(12, "1"),))
        push.push()
        push.now += DELETE_AGAIN_SECONDS
        push.push()

    assert [("PUT", "/metrics/job/12/instance/n1")] == gateway.take()


def test_gateway_that_is_down_is_not_tried_for_every_job(gateway: Gateway) -> None:
    with pushing(gateway) as push:
        gateway.status = 503
        push.profile = Profile(steps=tuple(step(job_id) for job_id in range(50)))
        push.push()
        assert 3 == len(gateway.take()) == push.errors
        gateway.status = 200
        push.push()

    assert 50 == len(gateway.take())


def test_one_refused_group_costs_only_itself(gateway: Gateway) -> None:
    with pushing(gateway) as push:
        push.profile = Profile(steps=(step(1),))
        gateway.status = 400
        push.push()
        gateway.status = 200
        push.profile = Profile(steps=(step(1), step(2)))
        push.push()

    assert ["1", "1", "2"] == [path.split("/")[3] for _, path in gateway.take()]


def test_groups_of_an_earlier_agent_of_this_host_are_deleted_once(gateway: Gateway) -> None:
    gateway.page = PAGE
    with scripted_server(gateway.handle) as url:
        push = Pushed(url)
        push.push()
        push.push()

    assert [("GET", "/metrics"), ("DELETE", "/metrics/job/7/instance/n1")] == gateway.take()


def test_own_group_is_no_group_of_an_earlier_agent(gateway: Gateway) -> None:
    """The gateway could not be read at the start."""
    with scripted_server(gateway.handle) as url:
        push = Pushed(url)
        gateway.status = 500
        push.push()
        push._pushed[7, "n1"] = []  # as if it were back in the middle of a round
        gateway.status, gateway.page = 200, PAGE
        gateway.take()
        push.profile = Profile(steps=(step(7),))
        push.push()

    assert [("GET", "/metrics"), ("PUT", "/metrics/job/7/instance/n1")] == gateway.take()


def test_nothing_is_touched_while_another_process_receives(gateway: Gateway) -> None:
    """As in doctor and --once beside a running agent."""
    with scripted_server(gateway.handle) as url:
        push = Pushed(url)
        push.profile = None
        push.push()

    assert [] == gateway.take()


def test_end_deletes_all_groups(gateway: Gateway) -> None:
    with pushing(gateway) as push:
        push.profile = Profile(steps=(step(12), step(13)))
        with open_profile_push(push, 3600):
            until(lambda: len(gateway.seen) == 2)
        requests = gateway.take()

    assert ["PUT", "PUT", "DELETE", "DELETE"] == [method for method, _ in requests]


def test_push_needs_a_socket() -> None:
    with pytest.raises(ConfigError, match=r"profile\.push needs profile\.socket"):
        check_push(ProfileSettings(push="http://gateway:9091"))


def test_agent_pushes_what_it_receives(gateway: Gateway, tmp_path: Path) -> None:
    with scripted_server(gateway.handle) as url:
        settings = ProfileSettings(socket=tmp_path / "profile.sock", push=url, push_interval=0.01)
        profiling = NodeProfiling(settings, grace_seconds=1, host="here")
        with profiling.open():
            until(lambda: gateway.seen)
            assert (0, True) == (profiling.read().push_errors, next(iter(profiling.checks())).is_good)
