# SPDX-License-Identifier: Apache-2.0
"""Text and JSON of the same cluster at the same moment give equal families, in every release they were taken from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from slurmscope.cluster import sinfo, squeue
from slurmscope.cluster.jobs import COLLECTOR as JOBS
from slurmscope.cluster.jobs import JobsOptions
from slurmscope.cluster.json import records as json_jobs
from slurmscope.cluster.json import records as json_nodes
from slurmscope.cluster.nodes import COLLECTOR as NODES
from slurmscope.cluster.nodes import NodesOptions
from slurmscope.cluster.sinfo import Nodes
from slurmscope.cluster.squeue import Jobs
from slurmscope.metrics.family import Family

FIXTURES = Path(__file__).parents[2] / "fixtures"
RELEASES = ("slurm-22.05", "slurm-24.11", "slurm-26.05")
# The mark with which the columns of sinfo were taken.
SEPARATOR = "5eparat0r"
NOW = 1_794_736_000.0
ALWAYS = squeue.StartWindow(0, 2**31)


def samples_of(families: Iterable[Family]) -> dict[str, Mapping[tuple[str, ...], object]]:
    return {family.metric.name: dict(family.samples) for family in families}


def job_families(jobs: Jobs) -> dict[str, Mapping[tuple[str, ...], object]]:
    return samples_of(JOBS.collect(JobsOptions(), jobs=jobs))


def node_families(nodes: Nodes) -> dict[str, Mapping[tuple[str, ...], object]]:
    return samples_of(NODES.collect(NodesOptions(partition_map=True), nodes=nodes))


@pytest.mark.parametrize("release", RELEASES)
def test_jobs_are_the_same_in_text_and_json(release: str) -> None:
    folder = FIXTURES / release
    text = squeue.parse_jobs((folder / "both-jobs.txt").read_bytes(), taken_at_seconds=NOW, window=ALWAYS)
    json = json_jobs.parse_jobs((folder / "both-jobs.json").read_bytes(), taken_at_seconds=NOW, window=ALWAYS)

    assert set(text.starts) == set(json.starts)
    assert job_families(text) == job_families(json)


@pytest.mark.parametrize("release", RELEASES)
def test_nodes_are_the_same_in_text_and_json(release: str) -> None:
    folder = FIXTURES / release
    text = sinfo.parse_nodes((folder / "both-nodes.txt").read_bytes(), SEPARATOR)
    json = json_nodes.parse_nodes((folder / "both-nodes.json").read_bytes())

    assert set(text.nodes) == set(json.nodes)
    assert node_families(text) == node_families(json)


@pytest.mark.parametrize("release", RELEASES)
def test_the_fixtures_hold_what_is_hard(release: str) -> None:
    answer = (FIXTURES / release / "both-jobs.json").read_bytes()
    jobs = json_jobs.parse_jobs(answer, taken_at_seconds=NOW, window=ALWAYS)

    assert b"raw\xff\xfebytes" in answer
    assert ("debug", "long") in {group.partitions for group in jobs.groups}
    held = [group.jobs for group in jobs.groups if group.reason == "JobHeldUser"]
    # The tasks of two arrays, one job for two partitions, and two jobs whose names are hostile.
    assert 10 + 32 + 1 + 2 == sum(held)
    assert {"PENDING", "RUNNING"} <= {group.state for group in jobs.groups}
