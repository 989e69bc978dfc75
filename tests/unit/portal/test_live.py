# SPDX-License-Identifier: Apache-2.0
"""Each cluster is shown from its own controller; one that does not answer costs only its own numbers."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from slurmscope.cluster.backends import TextCommands
from slurmscope.core.errors import CommandMissing, CommandTimedOut
from slurmscope.portal.live import LiveClusters
from slurmscope.simulator.cluster.cluster import simulate
from slurmscope.simulator.cluster.records import Shape, SimulatedCluster
from slurmscope.simulator.commands.executables import answer
from tests.processes import until

NOW = int(time.time())
FACTS = ("priorities", "diag", "limits", "licenses", "reservations")


class Hosts:
    """Answer as the commands on a host of alpha, whose slurmdbd also knows beta, and gamma, which is down."""

    def __init__(self) -> None:
        self.own = "alpha"
        self.private_data = "none"
        self.controllers: dict[str, SimulatedCluster] = {
            "alpha": simulate(Shape(jobs=100, nodes=4), now=NOW, name="alpha"),
            "beta": simulate(Shape(jobs=60, nodes=6, seed=7), now=NOW, name="beta"),
        }
        self.calls: Counter[tuple[str, str]] = Counter()
        self.down = {"gamma"}

    def run(self, command: str, arguments: Sequence[str]) -> bytes:
        name, rest = (arguments[1], arguments[2:]) if arguments[:1] == ("-M",) else ("", arguments)
        self.calls[name, command] += 1
        if (name or self.own) in self.down:
            raise CommandTimedOut([command], "was killed")
        title = f"CLUSTER: {name}\n".encode() if name and command == "squeue" else b""
        cluster = self.controllers[name or self.own]
        text = title + answer(cluster, command, rest)[1]
        return re.sub(rb"(?m)^(PrivateData +=).*", rb"\1 " + self.private_data.encode(), text)

    def open(self, clusters: Sequence[str] = ("alpha", "beta", "gamma"), *, has_commands: bool = True) -> LiveClusters:
        live = LiveClusters(self.run, TextCommands(self.run), lambda: clusters, has_commands=has_commands)
        live.queue("")
        until(lambda: live.own() or live.host.has_failed)
        return live

    def pending(self, name: str) -> set[int]:
        return {job.id for job in self.controllers[name].jobs if job.state == "PENDING"}

    def count(self, name: str) -> int:
        return sum(calls for (cluster, _), calls in self.calls.items() if cluster == name)


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


def test_every_cluster_is_shown_from_its_own_controller(hosts: Hosts) -> None:
    live = hosts.open()
    assert ("alpha", "beta", "gamma") == live.names()
    # The sizes come from how the clusters were made.
    until(lambda: [4, 6] == [live.now(name).nodes for name in ("", "beta")])
    assert live.now("alpha").nodes == live.now("").nodes
    until(lambda: live.queue("beta") is not None)
    for name in ("alpha", "beta"):
        queue = live.queue(name)
        assert queue is not None
        assert (name, hosts.pending(name)) == (queue.cluster, {job.job_id for job in queue.jobs})
    assert ["beta"] == [queue.cluster for queue in live.other_queues()]


def test_nodes_are_for_all_unless_private_data_hides_them(hosts: Hosts) -> None:
    live = LiveClusters(hosts.run, TextCommands(hosts.run), lambda: ("alpha", "beta"))
    assert not live.shows_nodes("")  # while it is not known
    live.queue("")
    until(lambda: live.shows_nodes(""))
    hosts.private_data = "nodes,usage"
    hidden = hosts.open()
    assert not hidden.shows_nodes("alpha")
    assert not hidden.shows_nodes("unknown")


def test_facts_and_nodes_are_those_of_the_cluster(hosts: Hosts) -> None:
    live = hosts.open()
    until(lambda: all(getattr(live.facts("beta", FACTS), name) is not None for name in FACTS))
    priorities = live.facts("beta", FACTS).priorities
    assert priorities is not None
    assert {priority.job_id for priority in priorities.priorities} <= hosts.pending("beta")
    until(lambda: 2 == len(live.nodes(("", "beta"))))
    found = live.nodes(("", "beta", "gamma", "unknown"))
    assert {"": 4, "beta": 6} == {name: len(nodes.nodes) for name, nodes in found.items()}
    assert {("sprio", 1), ("sdiag", 1), ("sinfo", 1)} <= {
        (command, calls) for (name, command), calls in hosts.calls.items() if name == "beta"
    }


def test_cluster_that_is_down_costs_only_its_own_numbers(hosts: Hosts) -> None:
    live = hosts.open()
    live.other_queues()
    until(lambda: list(live.problems()))
    assert ["Pending jobs of gamma cannot be read: was killed"] == list(live.problems())
    until(lambda: 2 == len(live.now("gamma").problems))
    now = live.now("gamma")
    assert (None, None) == (now.jobs_by_state, now.nodes)
    assert "Slurm jobs of gamma cannot be read: was killed" == now.problems[0]
    assert live.queue("gamma") is None
    assert () == live.now("").problems
    until(lambda: 6 == live.now("beta").nodes)


def test_cluster_that_no_page_shows_is_not_read(hosts: Hosts) -> None:
    live = hosts.open()
    assert ("alpha", []) == (live.names()[0], list(live.problems()))
    assert live.queue("alpha") is not None
    until(lambda: live.now("").nodes and live.facts("alpha", ()).nodes)
    assert [0, 0, 0] == [hosts.count(name) for name in ("alpha", "beta", "gamma")]


def test_cluster_outside_of_accounting_is_not_read(hosts: Hosts) -> None:
    live = hosts.open(("alpha",))
    assert ("alpha",) == live.names()
    (problem,) = live.now("beta").problems
    assert "This portal does not read the controller of cluster beta." == problem
    assert (None, {}, None) == (live.queue("beta"), live.nodes(["beta"]), live.facts("beta", FACTS).nodes)
    assert () == live.other_queues()
    assert 0 == hosts.count("beta")


def test_only_cluster_of_accounting_may_be_another_one(hosts: Hosts) -> None:
    live = hosts.open(("beta",))
    assert ("alpha", "beta") == live.names()
    until(lambda: [4, 6] == [live.now(name).nodes for name in ("", "beta")])


def test_only_cluster_of_accounting_may_be_the_own_one_that_is_down(hosts: Hosts) -> None:
    hosts.down = {"alpha"}
    live = hosts.open(("alpha",))
    assert ((), ()) == (live.names(), live.other_queues())
    assert 0 == hosts.count("alpha")


def test_word_for_all_clusters_is_not_the_name_of_one(hosts: Hosts) -> None:
    """A portal that only serves pages does not list the clusters of slurmdbd."""
    live = hosts.open(("all",))
    assert (("alpha",), ()) == (live.names(), live.other_queues())


def test_controller_of_another_cluster_is_not_shown(hosts: Hosts) -> None:
    """A new cluster was set up on the host of beta, whose address slurmdbd still has."""
    hosts.controllers["beta"] = hosts.controllers["alpha"]
    live = hosts.open()
    live.facts("beta", FACTS)
    until(lambda: 2 == len(live.now("beta").problems))
    assert all(problem.endswith("is that of another cluster") for problem in live.now("beta").problems)
    assert (None, None) == (live.now("beta").nodes, live.queue("beta"))
    assert {"scontrol"} == {command for name, command in hosts.calls if name == "beta"}


def test_others_are_read_while_the_own_controller_is_down(hosts: Hosts) -> None:
    hosts.down = {"alpha"}
    live = hosts.open()
    assert {"alpha", "beta", "gamma"} == set(live.names())
    until(lambda: 6 == live.now("beta").nodes)
    assert None is live.now("").nodes


def test_another_cluster_is_not_taken_for_the_own_one_that_is_down(hosts: Hosts) -> None:
    hosts.own, hosts.down = "beta", {"beta"}
    live = hosts.open(("alpha", "beta"))
    # Only the order of names could suggest that alpha is the own cluster.
    assert (("alpha", "beta"), "") == (live.names(), live.own())
    hosts.down = set()
    again = hosts.open(("alpha", "beta"))
    assert (("beta", "alpha"), "beta") == (again.names(), again.own())


def test_no_other_cluster_is_read_where_there_are_no_commands(hosts: Hosts) -> None:
    """A site with slurmrestd may have none: each cluster would cause a message on every page."""

    def run(command: str, arguments: Sequence[str]) -> bytes:
        hosts.calls[arguments[1] if arguments[0] == "-M" else "", command] += 1
        raise CommandMissing([command], f"{command} was not found")

    live = LiveClusters(run, TextCommands(hosts.run), lambda: ("alpha", "beta"), has_commands=False)
    until(lambda: live.queue("") is None and live.host.readings[2].last_error)
    assert ((), (), []) == (live.names(), live.other_queues(), list(live.problems()))
    assert {""} == {name for name, _ in hosts.calls}


@pytest.mark.parametrize("has_commands", [True, False])
def test_site_without_working_commands_has_no_message_for_each_cluster(hosts: Hosts, *, has_commands: bool) -> None:
    hosts.down = {"alpha", "beta"}
    live = hosts.open(("alpha", "beta"), has_commands=has_commands)
    live.other_queues()
    until(lambda: hosts.count("alpha") and hosts.count("beta"))
    # That of the host is one of the three.
    until(lambda: len(list(live.problems())) == (3 if has_commands else 0))


def test_only_jobs_of_the_own_cluster_are_requested(hosts: Hosts) -> None:
    """In a federation whose FederationParameters are fed_display, squeue and sprio list those of all clusters."""
    calls: list[tuple[str, ...]] = []

    def run(command: str, arguments: Sequence[str]) -> bytes:
        calls.append((command, *arguments))
        return hosts.run(command, arguments)

    live = LiveClusters(run, TextCommands(run), lambda: ("alpha", "beta"))
    until(lambda: live.queue("") and live.now("").jobs_by_state and live.facts("", FACTS).priorities)
    requests = [arguments for command, *arguments in calls if command in {"squeue", "sprio"}]
    assert 3 <= len(requests)
    assert all("--local" in arguments for arguments in requests)


def test_nothing_is_read_while_the_own_cluster_is_unknown(hosts: Hosts) -> None:
    live = LiveClusters(hosts.run, TextCommands(hosts.run), lambda: ("alpha", "beta"))
    assert ((), ()) == (live.names(), live.other_queues())
    assert not hosts.calls
