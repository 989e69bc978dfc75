# SPDX-License-Identifier: Apache-2.0
"""Numbers go to Slurm's AdminComment, and come back from it, as jobstats and reportseff understand them."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reportseff.job import _parse_admin_comment_to_dict as read_as_reportseff

from slurmscope.core.tres import Gres
from slurmscope.jobs.js1 import MAX_COMMENT_CHARS, add_js1, write_js1
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.series import Measured
from slurmscope.jobs.summarize import summarize
from slurmscope.jobs.summary import GpuSummary, HeldGpu, JobSummary, NodeSummary
from tests.fakes.reports import GIB, START, make_record, make_report

RUN_SECONDS = 7200


def unmeasured(**changed: object) -> JobSummary:
    return summarize(make_record(**changed), Measured(), now_seconds=START + 90_000)  # type: ignore[arg-type]


def comment_of(data: object) -> str:
    return "JS1:" + base64.b64encode(gzip.compress(json.dumps(data).encode(), mtime=0)).decode()


def measured_on(*nodes: NodeSummary, gpu: GpuSummary | None = None) -> JobSummary:
    return replace(make_report().summary, nodes=nodes, gpu=gpu or GpuSummary())


def node(name: str = "n1", **changed: float | None) -> NodeSummary:
    numbers: dict[str, float | None] = {
        "cpus": 4,
        "cpu_seconds": 3600.04,
        "working_peak_bytes": GIB,
        "limit_bytes": 8 * GIB,
    }
    return NodeSummary(node=name, **{**numbers, **changed})  # type: ignore[arg-type]


def test_reportseff_reads_what_is_written() -> None:
    gpus = (
        HeldGpu(node="n1", gpu="0", mean_utilization=0.731, peak_memory_bytes=GIB, memory_size_bytes=80 * GIB),
        HeldGpu(node="n2", gpu="1", mean_utilization=0.2),
        HeldGpu(node="n2", gpu="1", mig="3:0", mean_utilization=0.9),
    )
    summary = measured_on(node(), node("n2", working_peak_bytes=None), gpu=GpuSummary(requested=3, devices=gpus))
    first = {"total_memory": 8 * GIB, "used_memory": GIB, "total_time": 3600.0, "cpus": 4}
    assert {
        "nodes": {
            "n1": first
            | {"gpu_total_memory": {"0": 80 * GIB}, "gpu_used_memory": {"0": GIB}, "gpu_utilization": {"0": 73.1}},
            "n2": {"total_memory": 8 * GIB, "total_time": 3600.0, "cpus": 4, "gpu_utilization": {"1": 20.0}},
        },
        "total_time": RUN_SECONDS,
        "gpus": 3,
    } == read_as_reportseff(write_js1(summary))


def test_same_numbers_give_the_same_comment() -> None:
    assert write_js1(measured_on(node())) == write_js1(measured_on(node()))


@pytest.mark.parametrize(
    ("run_seconds", "nodes", "expected"),
    [
        (7200.0, (node(cpu_seconds=None),), "JS1:None"),
        (7200.0, (node(), node("n2", cpus=None)), "JS1:None"),
        (7200.0, (), "JS1:None"),
        (59.0, (), "JS1:Short"),
        (60.0, (), "JS1:None"),
    ],
)
def test_job_that_was_not_measured_whole_has_no_numbers(
    run_seconds: float, nodes: tuple[NodeSummary, ...], expected: str
) -> None:
    assert expected == write_js1(replace(measured_on(*nodes), run_seconds=run_seconds))


def test_comment_of_jobstats_fills_in_what_was_not_measured() -> None:
    summary = unmeasured(
        nodes=("n1", "n2"), node_count=2, cpus=8, memory_bytes=16 * GIB, cpu_seconds=None,
        gres=(Gres(name="gpu", count=1),), steps=(),
    )  # fmt: skip
    gpu = {"gpu_utilization": {"0": 60}, "gpu_used_memory": {"0": GIB}, "gpu_total_memory": {"0": 4 * GIB}}
    first = {"total_memory": 8 * GIB, "used_memory": 2 * GIB, "total_time": 14400, "cpus": 4} | gpu
    second = {"total_memory": 8 * GIB, "used_memory": GIB, "total_time": 14400.0, "cpus": 4}
    found = add_js1(
        summary, comment_of({"nodes": {"n1": first, "n2": second, "other": second}, "total_time": 1, "gpus": 1})
    )
    # 28,800 of 8 cores times 7,200 s.
    assert (0.5, 4.0) == (found.cpu.time.ratio, found.cpu.mean_cores)
    assert (3 * GIB, 16 * GIB, False) == (
        found.memory.best_peak_bytes,
        found.memory.limit_bytes,
        found.memory.is_bounded,
    )
    assert (0.6, 0.25, ["0"]) == (
        found.gpu.mean_utilization,
        found.gpu.memory_ratio,
        [one.gpu for one in found.gpu.devices],
    )
    assert ("n1", "n2") == tuple(each.node for each in found.nodes)
    assert found.coverage.is_good


def test_gpus_of_a_comment_are_averaged_and_their_memory_is_added_up() -> None:
    summary = unmeasured(nodes=("n1",), cpu_seconds=None, gres=(Gres(name="gpu", count=2),), steps=())
    gpu = {"gpu_utilization": {"0": 60, "1": 20}, "gpu_used_memory": {"0": GIB, "1": 2 * GIB}}
    found = add_js1(summary, comment_of({"nodes": {"n1": {"total_time": 3600, "cpus": 2} | gpu}}))

    assert (0.4, 3 * GIB) == (found.gpu.mean_utilization, found.gpu.peak_memory_bytes)


def test_comment_of_one_of_two_nodes_gives_no_sum() -> None:
    summary = unmeasured(nodes=("n1", "n2"), node_count=2, cpu_seconds=None, steps=())
    found = add_js1(summary, comment_of({"nodes": {"n1": {"total_time": 3600, "cpus": 2, "used_memory": GIB}}}))
    assert (None, None, False) == (found.cpu.time.used, found.memory.working_peak_bytes, found.coverage.is_good)
    assert [3600.0, None] == [each.cpu_seconds for each in found.nodes]


def test_own_measurements_are_kept() -> None:
    report: JobReport = make_report()
    assert report.summary is add_js1(report.summary, comment_of({"nodes": {"n1": {"total_time": 1, "cpus": 1}}}))


HUGE = "JS1:" + base64.b64encode(gzip.compress(b" " * (5 << 20), mtime=0)).decode()


@pytest.mark.parametrize(
    "comment",
    [
        "", "JS1:", "JS1:Short", "JS1:None", "JS1:äö", "JS2:abc", HUGE, "JS1:" + "A" * MAX_COMMENT_CHARS,
        comment_of([]), comment_of({"nodes": []}), comment_of({"nodes": {"n1": 3}}), comment_of({"nodes": {"n2": {}}}),
    ],
)  # fmt: skip
def test_comment_without_numbers_changes_nothing(comment: str) -> None:
    summary = unmeasured()
    assert summary is add_js1(summary, comment)


@given(
    st.dictionaries(
        st.sampled_from(["total_time", "cpus", "used_memory", "total_memory", "gpu_utilization", "gpu_used_memory"]),
        st.one_of(
            st.none(), st.booleans(), st.text(), st.integers(), st.floats(),
            st.dictionaries(st.text(), st.one_of(st.integers(), st.floats(), st.text())),
        ),
    )
)  # fmt: skip
def test_no_comment_gives_an_impossible_number(numbers: dict[str, object]) -> None:
    summary = unmeasured(gres=(Gres(name="gpu", count=1),), cpu_seconds=None, steps=())
    found = add_js1(summary, comment_of({"nodes": {"n1": numbers}}))
    (row,) = found.nodes
    known = [
        found.cpu.time.used,
        found.memory.working_peak_bytes,
        row.cpus,
        row.gpu_utilization,
        found.gpu.mean_utilization,
    ]
    assert all(number is None or 0 <= number < 1e18 for number in known)
