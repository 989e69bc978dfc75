# SPDX-License-Identifier: Apache-2.0
"""The plugin sends what Slurm gives it, and harms nothing whatever it is given."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from slurmscope.profile.events import parse_event
from tests.plugin.conftest import BuiltPlugin

SCENARIOS = ("step", "names", "gpus", "choices", "hostile", "flood", "rounds", "overlap", "fork", "configuration")

Event = dict[str, str]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[socket.socket]:
    """Listen as the agent does, with room for a few datagrams only."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "agent.sock"))
        listening.setblocking(False)
        yield listening


def path_of(agent: socket.socket) -> Path:
    """Return the path of a listening socket."""
    return Path(agent.getsockname())


def queued_datagrams(agent: socket.socket) -> list[bytes]:
    """Return the datagrams that wait in a socket."""
    datagrams: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while True:
            datagrams.append(agent.recv(65536))
    return datagrams


def queued_events(agent: socket.socket) -> list[Event]:
    """Return the events that wait in a socket, without the help of our own parser."""
    events: list[Event] = []
    for datagram in queued_datagrams(agent):
        form, *words = datagram.decode("ascii").split("\t")
        assert form == "slurm-profile/1"
        pairs = (word.split("=", 1) for word in words)
        events.append({unquote(key): unquote(value) for key, value in pairs})
    return events


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_scenario_harms_slurmstepd_without_an_agent(checked: BuiltPlugin, tmp_path: Path, scenario: str) -> None:
    """Sanitizers and valgrind find nothing; an absent agent changes nothing."""
    checked.run(tmp_path / "absent.sock", scenario)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_scenario_blocks_if_nobody_reads(plain: BuiltPlugin, agent: socket.socket, scenario: str) -> None:
    """The socket of a stopped agent is soon full; a call that waited for it would never return."""
    plain.run(path_of(agent), scenario)


def test_step_is_sent_as_self_contained_events(plain: BuiltPlugin, agent: socket.socket) -> None:
    """Ten datagrams fit into the queue of a socket; the later events of the step are lost."""
    plain.run(path_of(agent), "step")
    events = queued_events(agent)

    assert [event["event"] for event in events][:8] == ["step_start", *["dataset"] * 3, *["sample"] * 4]
    assert {(e["job"], e["step"], e["node"], e["uid"]) for e in events} == {("4711", "0", "n1", "1001")}
    assert [str(number) for number in range(1, len(events) + 1)] == [event["seq"] for event in events]
    assert ("energy,task,network", "2") == (events[0]["profile"], events[0]["tasks"])
    assert ("Tasks", "1", "") == (events[1]["series"], events[1]["task"], events[1]["CPUTime:d"])


def test_sample_holds_values_and_their_sums(plain: BuiltPlugin, agent: socket.socket) -> None:
    """A task used 1.25 s three times: 3.75 s."""
    plain.run(path_of(agent), "step")
    third = queued_events(agent)[6]

    assert ("Tasks", "1", "1700000002") == (third["series"], third["task"], third["time"])
    assert ("jobacct_gather/linux", "0") == (third["from"], third["gpu"])
    assert ("1.25:3.75", "2048:6144") == (third["CPUTime:d"], third["RSS:u"])


def test_absurd_value_spoils_no_sum(plain: BuiltPlugin, agent: socket.socket) -> None:
    """A counter of the kernel was reset: the difference wrapped around."""
    plain.run(path_of(agent), "step")
    network = queued_events(agent)[8]

    assert ("Network", "acct_gather_interconnect/sysfs") == (network["series"], network["from"])
    assert (f"{2**64 - 1}:10", "inf:0.5") == (network["PacketsIn:u"], network["InMB:d"])


def test_gpu_fields_are_measured_from_the_second_sample_on(plain: BuiltPlugin, agent: socket.socket) -> None:
    """Slurm leaves them uninitialised in the first one, and wherever it has no position for either."""
    plain.run(path_of(agent), "gpus")

    assert ["0", "0", "0", "1"] == [e["gpu"] for e in queued_events(agent) if e["event"] == "sample"]


def test_end_of_a_task_names_the_task(plain: BuiltPlugin, agent: socket.socket) -> None:
    """As Slurm's samples do: by its number in the whole step, not on this node."""
    plain.run(path_of(agent), "gpus")

    ends = [(e["pid"], e.get("task")) for e in queued_events(agent) if e["event"] == "task_end"]
    assert [("124", "7"), ("999", None), (str(2**64 - 1), None)] == ends[:3]


@pytest.mark.parametrize("scenario", ["step", "names", "gpus", "choices", "flood", "fork"])
def test_agent_understands_every_event(plain: BuiltPlugin, agent: socket.socket, scenario: str) -> None:
    """The parser refuses a datagram with any wrong part."""
    plain.run(path_of(agent), scenario)
    datagrams = queued_datagrams(agent)

    assert datagrams
    assert {4711} == {parse_event(datagram).key.job_id for datagram in datagrams}


def test_special_steps_have_names(plain: BuiltPlugin, agent: socket.socket) -> None:
    """As sacct and squeue show them."""
    plain.run(path_of(agent), "names")

    expected = ["batch", "extern", "interactive", "unknown", "unknown", "7+2"]
    assert expected == [event["step"] for event in queued_events(agent)]


def test_step_that_is_not_profiled_sends_nothing(plain: BuiltPlugin, agent: socket.socket) -> None:
    """Of three steps only one has --profile=task."""
    plain.run(path_of(agent), "choices")

    assert [("step_start", "task")] == [(e["event"], e["profile"]) for e in queued_events(agent)]


def test_hostile_name_stays_one_value(plain: BuiltPlugin, agent: socket.socket) -> None:
    """Every byte from 1 to 255 is a node's name."""
    plain.run(path_of(agent), "hostile")
    events = queued_events(agent)

    names = [event["node"].encode("utf-8", "replace") for event in events[:3]]
    assert [b"", b"x" * 255] == names[:2]
    assert events[2]["node"].startswith("".join(map(chr, range(1, 128))))
    assert all({"event", "job", "step", "uid", "seq", "lost"} <= event.keys() for event in events)


def test_task_of_the_user_gets_no_socket(plain: BuiltPlugin, agent: socket.socket) -> None:
    """The child sends nothing, its parent goes on."""
    plain.run(path_of(agent), "fork")

    assert ["step_start", "step_end"] == [event["event"] for event in queued_events(agent)]


def test_wrong_configuration_is_reported_and_replaced(plain: BuiltPlugin, tmp_path: Path) -> None:
    """Slurm's daemons start, and their log says what is wrong; the log of a step does not repeat it."""
    lines = plain.run(tmp_path / "none.sock", "configuration").splitlines()

    keys = [word for line in lines[:-2] for word in line.split() if word.startswith("ProfilePrometheus")]
    expected = ["Socket", "Default", "Host", "Socket", "Host"]
    assert [f"ProfilePrometheus{key}" for key in expected] == keys
    assert [
        "ProfilePrometheusSocket=/run/slurmscope-node/profile.sock",
        "ProfilePrometheusDefault=task,lustre",
    ] == lines[-2:]
