# SPDX-License-Identifier: Apache-2.0
"""Check that the GPUs on pages of node agents, recorded without Prometheus, become rows of a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmscope.core.tres import Gres
from slurmscope.jobs.report import JobReport
from slurmscope.metrics.write import Format, write
from slurmscope.node.cgroup.names import ProcessPlace
from slurmscope.node.gpu.collector import COLLECTOR, GpusOptions
from slurmscope.node.gpu.records import Gpu, GpuProcess, Gpus
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs
from slurmscope.reports.make import ReportMaker
from tests.fakes.recorded_samples import INTERVAL, START, make_recorder
from tests.fakes.reports import make_record

RUN_SECONDS = 600
GIB = 1 << 30
JOB = JobUse(
    key=JobKey(job_id=4711, node_name="n1"), uid=1000, environment={"CUDA_VISIBLE_DEVICES": "GPU-aaaaaaaa,GPU-bbbbbbbb"}
)


def agent_page(after_seconds: float, *, size_of_second: int | None = 40 * GIB) -> str:
    """Write the page of an agent with two unequal GPUs; the job fills the first one, and the second does nothing."""
    place = ProcessPlace(job_id=4711, node_name="n1")
    used = int(30 * GIB * after_seconds / RUN_SECONDS)
    devices = (
        Gpu(
            index=0, uuid="GPU-aaaaaaaa", model="NVIDIA A100", utilization_ratio=0.5, memory_size_bytes=80 * GIB,
            processes=(GpuProcess(pid=1, memory_bytes=used, uid=1000, place=place),),
        ),
        Gpu(index=1, uuid="GPU-bbbbbbbb", utilization_ratio=0.0, memory_size_bytes=size_of_second, processes=()),
        Gpu(index=2, uuid="GPU-cccccccc", utilization_ratio=0.9, memory_size_bytes=80 * GIB, processes=()),
    )  # fmt: skip
    families = COLLECTOR.collect(GpusOptions(), gpus=Gpus(devices=devices), node_jobs=NodeJobs(jobs=(JOB,)))
    return b"".join(write(families, Format.TEXT)).decode()


def make_report(folder: Path, *, size_of_second: int | None = 40 * GIB) -> JobReport:
    """Record ten minutes, and make the report of a job with two GPUs."""
    with make_recorder(folder) as recorder:
        for turn in range(int(RUN_SECONDS / INTERVAL) + 1):
            page = agent_page(turn * INTERVAL, size_of_second=size_of_second)
            recorder.record_page(START + turn * INTERVAL, page, nodes=("n1",))
        record = make_record(
            start_seconds=int(START), end_seconds=int(START) + RUN_SECONDS, gres=(Gres(name="gpu", count=2),)
        )
        (made,) = ReportMaker(recorder.series()).make([record])
    return made


def test_report_has_the_gpus_that_the_job_held(tmp_path: Path) -> None:
    gpu = make_report(tmp_path).summary.gpu

    assert [("n1", "0", "GPU-aaaaaaaa", "NVIDIA A100"), ("n1", "1", "GPU-bbbbbbbb", "")] == [
        (device.node, device.gpu, device.uuid, device.model) for device in gpu.devices
    ]
    assert [pytest.approx(0.5), 0.0] == [device.mean_utilization for device in gpu.devices]
    assert [30.0 * GIB, 0.0] == [device.peak_memory_bytes for device in gpu.devices]
    # 30 of 80 + 40 GiB: the third GPU of the node is not the job's.
    assert (120.0 * GIB, 30.0 * GIB, 0.25) == (gpu.memory_size_bytes, gpu.peak_memory_bytes, gpu.memory_ratio)


def test_gpu_that_reports_no_size_leaves_that_of_the_job_unknown(tmp_path: Path) -> None:
    gpu = make_report(tmp_path, size_of_second=None).summary.gpu

    assert (None, None, 30.0 * GIB) == (gpu.memory_size_bytes, gpu.memory_ratio, gpu.peak_memory_bytes)
    assert [80.0 * GIB, None] == [device.memory_size_bytes for device in gpu.devices]
