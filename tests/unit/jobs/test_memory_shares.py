# SPDX-License-Identifier: Apache-2.0
"""Memory that goes with cores or GPUs is suggested by what Slurm multiplies it with on each node."""

from __future__ import annotations

from typing import Any

import pytest

from slurmscope.core.tres import Gres
from slurmscope.core.units import parse_bytes
from slurmscope.jobs.record import StepRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.summary import GpuSummary, JobSummary, NodeSummary
from slurmscope.jobs.what_if import OtherRequest, Sufficiency, predict
from tests.fakes.job_summaries import GIB, all_findings, covered, make_summary
from tests.fakes.resubmission import header, several, submitted


def above_the_maximum(**memory: Any) -> JobSummary:
    """Return a job that requested 8 GiB for each of 4 cores where MaxMemPerCPU is 4 GiB.

    slurmctld 22.05 allocates cpu=8,mem=32G for that, and ReqTRES has cpu=4,mem=32G.
    """
    state = "OUT_OF_MEMORY" if memory.get("oom_kills") else "COMPLETED"
    record = submitted("-c4 --mem-per-cpu=8G", cpus=8, requested_cpus=4, state=state, memory_bytes=int(32 * GIB))
    return make_summary(
        record=record, busy=0.5, memory={"requested_bytes": 32 * GIB, **memory}, node_memory_bytes=512 * GIB
    )


def test_memory_of_cores_that_slurm_added_is_not_halved() -> None:
    summary = above_the_maximum(working_peak_bytes=12 * GIB)
    lines = [found.suggestion for found in all_findings(summary) if "mem-per-cpu" in found.suggestion]

    # 12 GiB x 1.2 are 15 GiB, for the 4 cores of --cpus-per-task.
    assert ["#SBATCH --mem-per-cpu=3840M"] == lines
    assert ("#SBATCH --mem-per-cpu=3840M",) == header(summary)


def test_job_with_cores_that_slurm_added_gets_more_memory_after_it_ran_out() -> None:
    summary = above_the_maximum(working_peak_bytes=32 * GIB, oom_kills=1)
    found = next(each for each in all_findings(summary) if each.rule == "oom_kill")

    assert "#SBATCH --mem-per-cpu=16G" == found.suggestion
    assert ("#SBATCH --mem-per-cpu=16G",) == header(summary)


def uneven(first: float, second: float, **memory: Any) -> JobSummary:
    """Return a job with 16 and 2 cores on its nodes, 4 GiB for each, and what these needed."""
    nodes = (
        NodeSummary(node="n1", cpus=16.0, mean_cores=16.0, working_peak_bytes=first, limit_bytes=64 * GIB),
        NodeSummary(node="n2", cpus=2.0, mean_cores=2.0, working_peak_bytes=second, limit_bytes=8 * GIB),
    )
    record = submitted("-n18 --mem-per-cpu=4G", cpus=18, nodes=("n1", "n2"), node_count=2)
    return make_summary(
        record=record,
        memory={"requested_bytes": 72 * GIB, "working_peak_bytes": first + second, **memory},
        nodes=nodes,
        node_memory_bytes=256 * GIB,
    )


def test_node_with_few_cores_keeps_what_it_needed() -> None:
    # 6 GiB on two cores are 3 GiB for each: with the margin, no less than it had.
    assert () == header(uneven(2 * GIB, 6 * GIB))
    assert () == header(uneven(2 * GIB, 6 * GIB), *several(6))


def test_other_runs_may_have_needed_their_most_on_the_node_with_few_cores() -> None:
    runs = several(6, peak_bytes=3 * GIB)

    # 1 GiB on the second node is 0.5 GiB for each core; another run may have needed 3 GiB there.
    (line,) = header(uneven(2 * GIB, GIB), *runs)
    assert 2 * parse_bytes(line.partition("=")[2]) >= 1.2 * 3 * GIB


def test_node_with_few_cores_is_near_its_own_limit() -> None:
    summary = uneven(32 * GIB, 7.9 * GIB)
    found = next(each for each in all_findings(summary) if each.rule == "memory_near_limit")

    # 7.9 GiB x 1.2, up to 10 GiB for two cores; the node itself has far more.
    assert "#SBATCH --mem-per-cpu=5G" == found.suggestion
    assert "A node has" not in found.advice
    assert ("#SBATCH --mem-per-cpu=5G",) == header(summary)


def test_node_with_many_cores_may_need_more_than_the_mean() -> None:
    # 35 of 64 GiB: nothing was short.
    assert () == header(uneven(35 * GIB, 4 * GIB))


def test_memory_of_uneven_nodes_is_not_said_to_be_that_of_each() -> None:
    summary = uneven(32 * GIB, 8 * GIB, oom_kills=1)
    found = next(each for each in all_findings(summary) if each.rule == "oom_kill")

    assert "36 GiB per node" not in found.explanation
    assert "72 GiB on all nodes together" in found.explanation


def test_default_for_each_core_shows_in_the_limits_of_nodes() -> None:
    # 12 and 6 GiB by DefMemPerCPU=1G; 23 GiB for each node would be of no use to the first one, and 8 too little.
    nodes = (
        NodeSummary(node="n1", cpus=12.0, working_peak_bytes=10 * GIB, limit_bytes=12 * GIB),
        NodeSummary(node="n2", cpus=6.0, working_peak_bytes=5.9 * GIB, limit_bytes=6 * GIB),
    )
    record = submitted("-N2 -n18", cpus=18, nodes=("n1", "n2"), node_count=2)
    memory = {"requested_bytes": 18 * GIB, "working_peak_bytes": 15.9 * GIB}
    summary = make_summary(record=record, memory=memory, nodes=nodes, node_memory_bytes=256 * GIB)

    found = next(each for each in all_findings(summary) if each.rule == "memory_near_limit")
    # 5.9 GiB x 1.2, up to 8 GiB for 6 cores, up to a multiple of 64 MiB.
    assert "#SBATCH --mem-per-cpu=1408M" == found.suggestion
    assert ("#SBATCH --mem-per-cpu=1408M",) == header(summary)


def test_memory_per_core_is_kept_where_the_cores_of_a_node_are_unknown() -> None:
    nodes = tuple(NodeSummary(node=name, working_peak_bytes=GIB) for name in ("n1", "n2"))
    record = submitted("-n18 --mem-per-cpu=4G", cpus=18, nodes=("n1", "n2"), node_count=2)
    memory = {"requested_bytes": 72 * GIB, "working_peak_bytes": 2 * GIB}

    assert () == header(make_summary(record=record, memory=memory, nodes=nodes), *several(6, peak_bytes=GIB))


def test_memory_per_gpu_is_kept_where_the_gpus_of_a_node_are_unknown() -> None:
    gpus = {"gres": (Gres(name="gpu", count=3),), "cpus": 8, "nodes": ("n1", "n2"), "node_count": 2}
    record = submitted("--gpus=3 --mem-per-gpu=24G", **gpus)
    memory = {"requested_bytes": 72 * GIB, "working_peak_bytes": 20 * GIB}
    nodes = tuple(NodeSummary(node=name, cpus=4.0, working_peak_bytes=10 * GIB) for name in ("n1", "n2"))
    summary = make_summary(record=record, memory=memory, nodes=nodes)

    # One of the nodes had one GPU.
    assert [] == [each.suggestion for each in all_findings(summary) if each.suggestion]
    assert () == header(summary, *several(6, peak_bytes=10 * GIB))


def idle_gpus(options: str, needed: float) -> JobSummary:
    """Return a job that used one of its four GPUs, and had 64 GiB."""
    return make_summary(
        record=submitted(options, cpus=16, gres=(Gres(name="gpu", count=4),)),
        memory={"requested_bytes": 64 * GIB, "working_peak_bytes": needed},
        gpu=GpuSummary(requested=4, held_idle=3, mean_utilization=0.2, coverage=covered()),
        node_memory_bytes=512 * GIB,
    )


@pytest.mark.parametrize(
    ("options", "needed", "line"),
    [
        ("--gpus=4 --mem-per-gpu=16G -c16", 50 * GIB, "#SBATCH --gpus=1 --mem-per-gpu=60G"),
        ("--gpus=4 --mem-per-gpu=16G -c16", 8 * GIB, "#SBATCH --gpus=1"),
        ("--gpus=4 --mem=64G -c16", 50 * GIB, "#SBATCH --gpus=1"),
        ("--gpus=4 --mem-per-cpu=4G -c16", 50 * GIB, "#SBATCH --gpus=1"),
        # The default of the site may be an amount for each GPU.
        ("--gpus=4 -c16", 50 * GIB, "#SBATCH --gpus=1 --mem=60G"),
        # Three quarters of the cores would go with the GPUs.
        ("--gpus=4 --cpus-per-gpu=4 --mem-per-cpu=4G", 50 * GIB, ""),
    ],
)
def test_line_for_fewer_gpus_keeps_the_memory_that_goes_with_them(options: str, needed: float, line: str) -> None:
    summary = idle_gpus(options, needed)
    found = next(each for each in all_findings(summary) if each.rule == "gpu_held_without_process")

    assert line == found.suggestion
    assert set(line.removeprefix("#SBATCH ").split()) <= {each.removeprefix("#SBATCH ") for each in header(summary)}


def test_what_if_takes_memory_away_with_the_gpus_that_it_goes_with() -> None:
    report = JobReport(summary=idle_gpus("--gpus=4 --mem-per-gpu=16G -c16", 50 * GIB), made_seconds=0)

    assert Sufficiency.TOO_LITTLE is predict(report, OtherRequest(gpus=1), {}).memory.verdict
    assert Sufficiency.ENOUGH is predict(report, OtherRequest(gpus=1, memory_bytes=60 * GIB), {}).memory.verdict


def test_part_of_a_heterogeneous_job_gets_lines_for_its_own_options() -> None:
    line = "--ntasks=1 --mem=4G : --cpus-per-task=4 --mem=8G"
    step = StepRecord(name="0", state="COMPLETED", tasks=1)
    record = submitted(line, het_job_id=4711, het_offset=1, steps=(step,))

    assert ("#SBATCH --cpus-per-task=1",) == header(make_summary(record=record, busy=0.25))
