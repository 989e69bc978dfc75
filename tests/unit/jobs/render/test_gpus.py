# SPDX-License-Identifier: Apache-2.0
"""Every rendering has one row for each GPU, and memory against the size of the GPUs where that is known."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest

from slurmscope.archive.stored_reports import decode_report, encode_report
from slurmscope.jobs.rating import Rating
from slurmscope.jobs.render.contents import Gauge, gauges
from slurmscope.jobs.render.html import render_html
from slurmscope.jobs.render.json import render_json
from slurmscope.jobs.render.tables import make_gpu_table
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.summary import HeldGpu, OtherGpus
from tests.fakes.reports import GIB, make_gpu_report, make_report

HELD = HeldGpu(
    node="n1", gpu="0", uuid="GPU-01234567-89ab-cdef", model="NVIDIA A100", mean_utilization=0.5,
    peak_memory_bytes=20.0 * GIB, memory_size_bytes=80.0 * GIB, jobs=1,
)  # fmt: skip


def with_gpu(**changes: Any) -> JobReport:
    report = make_gpu_report()
    gpu = replace(report.summary.gpu, peak_memory_bytes=20.0 * GIB, memory_size_bytes=80.0 * GIB, devices=(HELD,))
    return replace(report, summary=replace(report.summary, gpu=replace(gpu, **changes)))


def memory_gauge(report: JobReport) -> Gauge:
    return next(gauge for gauge in gauges(report) if gauge.label == "GPU memory")


def test_gauge_compares_memory_with_the_size_of_the_gpus() -> None:
    gauge = memory_gauge(with_gpu())

    assert (0.25, "20 GiB of 80 GiB at its peak", Rating.UNRATED) == (gauge.ratio, gauge.text, gauge.rating)


def test_unknown_size_leaves_the_gauge_without_a_bar() -> None:
    gauge = memory_gauge(with_gpu(memory_size_bytes=None))

    assert (None, "20 GiB at its peak", "") == (gauge.ratio, gauge.text, gauge.percent)


def test_gauge_says_that_a_gpu_is_shared() -> None:
    gauge = memory_gauge(with_gpu(devices=(replace(HELD, jobs=2, mean_utilization=None),)))

    assert "20 GiB of 80 GiB at its peak, shared with other jobs" == gauge.text


def test_row_names_the_gpu_and_its_share() -> None:
    table = make_gpu_table(with_gpu())

    assert (("n1", "0 (GPU-01234567)", "50 %", "20 GiB", "80 GiB", "25 %"),) == table.rows
    assert (2, "Model: NVIDIA A100.") == (table.names, table.note)


def test_models_that_differ_have_a_column() -> None:
    table = make_gpu_table(with_gpu(devices=(HELD, replace(HELD, gpu="1", model="NVIDIA T4"))))

    assert ("Model", 3) == (table.head[2], table.names)
    assert ["NVIDIA A100", "NVIDIA T4"] == [row[2] for row in table.rows]


def test_what_is_not_measured_is_a_dash() -> None:
    slice_of_gpu = HeldGpu(node="n1", gpu="3", mig="2/0")

    assert (("n1", "3 MIG 2/0", "", "–", "–", "–", "–"),) == make_gpu_table(with_gpu(devices=(slice_of_gpu,))).rows


def test_remaining_gpus_are_one_row() -> None:
    others = OtherGpus(count=8, mean_utilization=0.75, peak_memory_bytes=160.0 * GIB, memory_size_bytes=640.0 * GIB)
    table = make_gpu_table(with_gpu(others=others))

    assert ("8 more GPUs", "", "75 %", "160 GiB", "640 GiB", "25 %") == table.rows[-1]
    assert table.note.startswith("Model: NVIDIA A100. The last row sums up the remaining GPUs")


def test_note_explains_shared_gpus() -> None:
    assert "Other jobs share" in make_gpu_table(with_gpu(devices=(replace(HELD, jobs=2),))).note


def test_hostile_names_are_made_safe() -> None:
    hostile = replace(HELD, model="\x1b[31m" + "x" * 200, uuid="<script>")
    for devices in ((hostile,), (hostile, HELD)):
        table = make_gpu_table(with_gpu(devices=devices))
        assert "\x1b" not in "".join((table.note, *table.rows[0]))
        assert len(table.rows[0][2]) < 50
        assert len(table.note) < 100


@pytest.mark.parametrize("render", [render_text, render_html])
def test_renderings_have_the_table_and_the_gauge(render: Any) -> None:
    text = render(with_gpu())

    for words in ("GPU-01234567", "NVIDIA A100", "20 GiB of 80 GiB at its peak"):
        assert words in text


def test_job_without_gpus_has_no_table() -> None:
    assert () == make_gpu_table(make_report()).rows


def test_json_has_every_gpu_and_null_for_what_is_unknown() -> None:
    gpu = json.loads(render_json(with_gpu(devices=(replace(HELD, memory_size_bytes=None),))))["summary"]["gpu"]

    assert (0.25, 80.0 * GIB, False) == (gpu["memory_ratio"], gpu["memory_size_bytes"], gpu["is_shared"])
    (device,) = gpu["devices"]
    assert ("GPU-01234567-89ab-cdef", None, None) == (
        device["uuid"], device["memory_size_bytes"], device["memory_ratio"]
    )  # fmt: skip


def test_archived_report_keeps_its_gpus() -> None:
    report = with_gpu(others=OtherGpus(count=1))
    packed = encode_report(report)

    assert report.summary.gpu == decode_report(packed.body, packed.curves).summary.gpu


def test_report_of_an_older_release_has_no_sizes() -> None:
    plain = json.loads(zlib.decompress(encode_report(with_gpu()).body))
    for name in ("memory_size_bytes", "devices", "others"):
        del plain["summary"]["gpu"][name]
    for node in plain["summary"]["nodes"]:
        del node["gpu_memory_size_bytes"]
    older = decode_report(zlib.compress(json.dumps(plain).encode()), b"")

    assert (None, (), 20.0 * GIB) == (
        older.summary.gpu.memory_size_bytes, older.summary.gpu.devices, older.summary.gpu.peak_memory_bytes
    )  # fmt: skip
    assert memory_gauge(older).ratio is None
