# SPDX-License-Identifier: Apache-2.0
"""The agent receives events from root only, and whatever is sent to it, it goes on."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.core.errors import SourceError
from slurmscope.profile.events import Profile
from slurmscope.profile.receiver import ProfileReceiver
from slurmscope.profile.steps import ProfileSteps
from tests.fakes.exporters import load_role, open_role
from tests.leftovers import nothing_left
from tests.unit.profile.test_events import SAMPLE

LIMIT_SECONDS = 60.0


def make_steps() -> ProfileSteps:
    """Return steps that are kept for long."""
    return ProfileSteps(grace_seconds=3600, timeout_seconds=3600)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a path for a socket."""
    return tmp_path / "profile.sock"


@pytest.fixture
def receiver(path: Path) -> Iterator[ProfileReceiver]:
    """Receive from the user of the test, who need not be root."""
    with closing(ProfileReceiver(path, make_steps(), senders={os.getuid()})) as opened:
        yield opened


def send(path: Path, *contents: bytes) -> None:
    """Send datagrams."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for content in contents:
            sender.sendto(content, str(path))


def wait_for(read: Callable[[], Profile], is_right: Callable[[Profile], bool]) -> Profile:
    """Wait until the steps are as expected."""
    until = time.monotonic() + LIMIT_SECONDS
    while not is_right(profile := read()):
        assert time.monotonic() < until, profile
        time.sleep(0.01)
    return profile


def test_sample_is_received(receiver: ProfileReceiver, path: Path) -> None:
    send(path, SAMPLE)
    profile = wait_for(receiver.intake.read, lambda profile: bool(profile.steps))

    assert 11.789999999999999 == profile.steps[0].measured["task_cpu_seconds", "1"]


def test_datagram_of_another_user_is_refused_and_counted(path: Path) -> None:
    with closing(ProfileReceiver(path, make_steps(), senders={os.getuid() + 1})) as receiver:
        send(path, SAMPLE)
        profile = wait_for(receiver.intake.read, lambda profile: profile.rejected.get("sender", 0) == 1)

    assert () == profile.steps


def test_root_is_the_only_sender_by_default(path: Path) -> None:
    with closing(ProfileReceiver(path, make_steps())) as receiver:
        send(path, SAMPLE)
        profile = wait_for(receiver.intake.read, lambda profile: bool(profile.steps or profile.rejected.get("sender")))

    assert (os.getuid() == 0) == bool(profile.steps)


def test_malformed_datagram_is_counted_and_the_next_one_used(receiver: ProfileReceiver, path: Path) -> None:
    send(path, b"", b"nonsense", SAMPLE)
    profile = wait_for(receiver.intake.read, lambda profile: bool(profile.steps))

    assert 2 == profile.rejected["malformed"]


def test_receiver_waits_for_its_directory(tmp_path: Path) -> None:
    directory = tmp_path / "later"
    with closing(ProfileReceiver(directory / "profile.sock", make_steps(), senders={os.getuid()})) as receiver:
        with pytest.raises(SourceError, match="cannot listen"):
            receiver.intake.read()
        assert not next(iter(receiver.checks())).is_good
        directory.mkdir()
        until = time.monotonic() + LIMIT_SECONDS
        while not next(iter(receiver.checks())).is_good:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert () == receiver.intake.read().steps


def test_second_process_takes_nothing_from_the_agent(receiver: ProfileReceiver, path: Path) -> None:
    """As doctor and --once do while the agent runs."""
    with closing(ProfileReceiver(path, make_steps(), senders={os.getuid()})) as second:
        check = next(iter(second.checks()))
        send(path, SAMPLE)
        wait_for(receiver.intake.read, lambda profile: bool(profile.steps))

        assert (True, True) == (check.is_good, "another process" in check.message)
        assert Profile() == second.intake.read()


def test_new_receiver_follows_the_old_one(path: Path) -> None:
    """As at a reload, when the new one is started first."""
    with closing(ProfileReceiver(path, make_steps())):
        second = ProfileReceiver(path, make_steps(), senders={os.getuid()})
        assert Profile() == second.intake.read()
    with closing(second):
        wait_for(second.intake.read, lambda profile: bool(profile.events))
        send(path, SAMPLE)

        assert 1 == len(wait_for(second.intake.read, lambda profile: bool(profile.steps)).steps)


def test_short_queue_of_the_kernel_is_reported(receiver: ProfileReceiver) -> None:
    length = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())
    _, check = receiver.checks()

    assert (length >= 512, str(length) in check.message) == (check.is_good, True)
    assert check.is_good or "max_dgram_qlen" in check.advice


def test_closing_removes_the_socket_and_releases_descriptors(path: Path) -> None:
    with nothing_left():
        ProfileReceiver(path, make_steps()).close()

    assert not path.exists()


@pytest.mark.parametrize("is_enabled", [False, True])
def test_agent_listens_only_if_a_socket_is_configured(tmp_path: Path, path: Path, is_enabled: bool) -> None:
    options = {"profile.socket": str(path)} if is_enabled else {}
    config = load_role("node", {**options, "path.cgroup": str(tmp_path)})
    with closing(open_role("node", config)) as readings:
        readings.readings["profile"].request()
        snapshot = readings.readings["profile"].wait(time.monotonic() + LIMIT_SECONDS)
        names = {check.name for check in readings.checks()}

        assert is_enabled == path.exists()
        assert isinstance(snapshot.value, Profile)
        assert is_enabled == (snapshot.value.lost is not None) == ("profile socket" in names)
