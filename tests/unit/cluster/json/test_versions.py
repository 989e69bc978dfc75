# SPDX-License-Identifier: Apache-2.0
"""One cluster is the same cluster in every version of Slurm's JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmscope.cluster.json.backends import VERSIONS
from slurmscope.cluster.json.records import parse_jobs, parse_nodes
from slurmscope.cluster.sinfo import Node, NodeGres, Nodes
from slurmscope.cluster.squeue import JobGroup, Jobs, JobStart, StartWindow
from slurmscope.core.tres import Gres

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurmrestd"
MIB = 2**20

# Read by hand from the fixtures.
JOBS = Jobs(
    groups=(
        JobGroup(
            account="physics",
            user="alice",
            partitions=("gpu",),
            qos="normal",
            state="RUNNING",
            reason="None",
            features=(),
            jobs=1,
            nodes=2,
            cpus=8,
            memory_bytes=16 * 2**30,
            gres=(Gres(name="gpu", model="a100", count=4),),
            first_submit_seconds=1794700000,
        ),
        JobGroup(
            account="physics",
            user="alice",
            partitions=("debug",),
            qos="normal",
            state="COMPLETING",
            reason="None",
            features=(),
            jobs=1,
            nodes=1,
            cpus=1,
            memory_bytes=500 * MIB,
            gres=(),
            first_submit_seconds=1794700200,
        ),
        JobGroup(
            account="chemistry",
            user="bob",
            partitions=("debug", "long"),
            qos="high",
            state="PENDING",
            reason="JobHeldUser",
            features=("avx512", "ib"),
            jobs=10,
            nodes=10,
            cpus=30,
            memory_bytes=10 * 300 * MIB,
            gres=(),
            first_submit_seconds=1794700300,
        ),
        JobGroup(
            account="(null)",
            user="4711",
            partitions=("debug",),
            qos="(null)",
            state="PENDING",
            reason="ReqNodeNotAvail, UnavailableNodes:n2",
            features=(),
            jobs=1,
            nodes=1,
            cpus=1,
            memory_bytes=None,
            gres=(),
            first_submit_seconds=1794700400,
        ),
    ),
    taken_at_seconds=1794700600.0,
    starts=(JobStart("debug", "normal", 10, 1),),
)

NODES = Nodes(
    nodes=(
        Node(
            name="n1",
            base_state="mixed",
            flags=frozenset(),
            state_text="mixed",
            partitions=("debug", "gpu"),
            cpus_total=64,
            cpus_allocated=24,
            cpus_idle=40,
            memory_bytes=256000 * MIB,
            allocated_memory_bytes=48000 * MIB,
            weight=1,
            free_memory_bytes=200123 * MIB,
            load=12.34,
            gres=(NodeGres(name="gpu", model="a100", total=4, used=3),),
        ),
        Node(
            name="n2",
            base_state="idle",
            flags=frozenset({"drain"}),
            state_text="drained",
            partitions=("debug", "long"),
            cpus_total=64,
            cpus_allocated=0,
            cpus_idle=0,
            memory_bytes=256000 * MIB,
            allocated_memory_bytes=0,
            weight=10,
            free_memory_bytes=251000 * MIB,
            load=0.05,
            reason="bad dimm, slot 3",
            reason_user="root",
            reason_since_seconds=1794690000,
        ),
        Node(
            name="c1",
            base_state="idle",
            flags=frozenset({"cloud", "powered_down"}),
            state_text="idle~",
            partitions=("long",),
            cpus_total=8,
            cpus_allocated=0,
            cpus_idle=8,
            memory_bytes=16000 * MIB,
            allocated_memory_bytes=0,
            weight=1,
            free_memory_bytes=None,
            load=None,
        ),
    )
)


def test_every_version_that_we_ask_for_has_its_fixtures() -> None:
    assert set(VERSIONS) == {path.name for path in FIXTURES.glob("v*")}


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_are_the_same_in_every_version(version: str) -> None:
    answer = (FIXTURES / version / "jobs.json").read_bytes()

    jobs = parse_jobs(answer, taken_at_seconds=1794700600.0, window=StartWindow(1794700200, 1794709999 + 1))

    assert JOBS == jobs


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_are_the_same_in_every_version(version: str) -> None:
    assert NODES == parse_nodes((FIXTURES / version / "nodes.json").read_bytes())
