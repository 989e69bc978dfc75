# SPDX-License-Identifier: Apache-2.0
"""Pending jobs of other clusters are read from their controllers; one that does not answer costs only its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from slurmscope.errors import CommandTimedOut
from slurmscope.services.portal.other_queues import OtherQueues
from slurmscope.simulate.cluster.cluster import simulate
from slurmscope.simulate.cluster.records import Shape
from slurmscope.simulate.commands import squeue
from slurmscope.sources.slurm.squeue_waiting import read_waiting
from tests.processes import until

CLUSTER = simulate(Shape(jobs=100, nodes=4), now=int(time.time()))
CONFIG = b"ClusterName = beta\nPrivateData = none\n"


def answer(_: str, arguments: Sequence[str]) -> bytes:
    """Answer as squeue does without the name of a cluster."""
    return squeue.answer(CLUSTER, arguments, {"SLURM_TIME_FORMAT": "%s"})[1]


class Commands:
    """Answer as the commands of a host whose slurmdbd knows beta, and gamma, which is down."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def run(self, command: str, arguments: Sequence[str]) -> bytes:
        self.calls.append((command, *arguments))
        where, *rest = arguments
        if where == "--clusters=gamma":
            raise CommandTimedOut([command], "was killed")
        assert "--clusters=beta" == where
        if command == "scontrol":
            return CONFIG
        return b"CLUSTER: beta\n" + answer(command, rest)


def opened(own: Callable[[], str] = lambda: "alpha") -> tuple[Commands, OtherQueues]:
    commands = Commands()
    return commands, OtherQueues(commands.run, lambda: ("alpha", "beta", "gamma"), own)


def test_queues_of_other_clusters_are_read() -> None:
    _, others = opened()
    until(lambda: others.get() and list(others.problems()))

    (queue,) = others.get()
    plain = read_waiting(answer, "x1", now_seconds=queue.taken_at_seconds, cluster="beta")
    assert plain.jobs
    assert plain == queue
    assert ["Pending jobs of gamma cannot be read: was killed"] == list(others.problems())


def test_nothing_is_read_while_the_own_cluster_is_unknown() -> None:
    commands, others = opened(str)
    assert ((), []) == (others.get(), list(others.problems()))
    assert [] == commands.calls


def test_one_cluster_has_no_others() -> None:
    def fail() -> str:
        raise AssertionError("not needed")

    assert () == OtherQueues(Commands().run, lambda: ("alpha",), fail).get()
