# SPDX-License-Identifier: Apache-2.0
"""Samples have the keys that the endpoint takes, and nothing that was not measured."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.traced_run import SlurmContext, TreeSample
from slurmscope.run.delivery import COMMAND_BYTES, SampleWriter, cut_bytes
from slurmscope.run.runner import RunPlan
from tests.fakes.traced_runs import GIB, START, make_sample


def make_writer(slurm: SlurmContext | None = None) -> SampleWriter:
    plan = RunPlan(
        command=("/opt/bin/solver", "--fast"),
        environment={},
        host="n1",
        user="ada",
        slurm=slurm or SlurmContext(job_id=7, rank=0, step_id="3"),
        sample_rate=1.0,
    )
    return SampleWriter(plan, pid=99, start_seconds=START, interval_seconds=10.0)


def test_use_is_that_since_the_sample_before() -> None:
    writer = make_writer()

    percents = [writer.write(make_sample(time, cpu))["cpus"] for time, cpu in ((2, 1), (4, 5), (6, 4))]

    # 1 s of 2, then 4 s of 2; totals that fall are no use.
    assert [50.0, 200.0, 0.0] == percents


def test_use_at_the_end_is_not_that_of_a_moment() -> None:
    """A busy core, 2 ms after a sample: the kernel shows the last hundredths of a second only now."""
    writer = make_writer()

    percents = [
        writer.write(make_sample(time, cpu))["cpus"] for time, cpu in ((10, 9.98), (20, 19.98), (20.002, 20.002))
    ]

    assert [99.8, 100.0, 100.2] == percents


def test_use_of_a_short_command_is_that_of_its_whole_run() -> None:
    writer = make_writer()

    percents = [writer.write(make_sample(time, cpu)).get("cpus") for time, cpu in ((0, 0), (0.01, 0), (0.0101, 0.001))]

    assert [None, 0.0, 9.9] == percents


def test_everything_is_written_by_its_key() -> None:
    sample = make_writer().write(make_sample(2, 1))

    assert {
        "job_id": 7, "pid": 99, "cpus": 50.0, "threads": 8.0, "mem": float(GIB), "read_bytes": 4096.0,
        "write_bytes": 8192.0, "username": "ada", "hostname": "n1", "command": "solver", "rank": 0, "step_id": "3",
        "cpu_seconds": 1.0, "interval": 10.0, "time": START + 2, "start_time": START,
    } == sample  # fmt: skip
    assert sample == json.loads(json.dumps(sample))


def test_what_is_not_known_is_left_out() -> None:
    sample = make_writer(SlurmContext()).write(TreeSample(START + 1, 0.0, 0.0, 0, 0, 0))

    assert not {"read_bytes", "write_bytes", "rank", "step_id", "mem", "threads"} & sample.keys()
    assert 0 == sample["job_id"]


@given(st.text())
def test_command_is_short_and_valid(text: str) -> None:
    cut = cut_bytes(text)

    assert len(cut.encode()) <= COMMAND_BYTES
    assert text.startswith(cut) or "\ud800" <= max(text) or "?" in cut
