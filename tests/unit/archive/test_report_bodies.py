# SPDX-License-Identifier: Apache-2.0
"""A report is read again as it was written, also by another release."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurmscope.archive import stored_reports
from slurmscope.archive.stored_reports import TOO_LARGE, decode_report, encode_report
from slurmscope.core.errors import ArchiveError, ArchiveTooLarge
from slurmscope.jobs.report import MAX_CHART_POINTS, ChartLine, HeatMap, JobReport
from tests.fakes.reports import (
    make_chart,
    make_gpu_report,
    make_profiled_report,
    make_record,
    make_report,
    make_traced_report,
    make_unmeasured_report,
)

HEAT_MAP = HeatMap(
    name="cpu", title="Busy cores by node", unit="ratio", times=(1.0, 2.0), end_seconds=3.0, full=1.0,
    rows=(ChartLine(label="n1", values=(0.5, None)), ChartLine(label="n2", values=(0.0, 1.0))),
)  # fmt: skip


@pytest.mark.parametrize(
    "report",
    [
        make_report(),
        make_gpu_report(),
        make_traced_report(),
        make_profiled_report(),
        make_unmeasured_report(make_record(1)),
        make_report(charts=()),
        make_report(heat_maps=(HEAT_MAP,)),
    ],
)
def test_report_comes_back_equal(report: JobReport) -> None:
    assert report == decode_report(*encode_report(report))


@given(st.text(alphabet=st.characters(exclude_categories=())))
@example("\x00\ud800")
def test_every_text_comes_back_or_is_made_valid(name: str) -> None:
    report = make_report(make_record(name=name))

    read = decode_report(*encode_report(report))

    is_valid = [not "\ud800" <= char <= "\udfff" for char in name]
    expected = [char if valid else "\ufffd" for char, valid in zip(name, is_valid, strict=True)]
    assert expected == list(read.record.name)


def test_key_that_is_not_known_is_passed_over_and_one_that_is_missing_gets_its_default() -> None:
    body = json.loads(zlib.decompress(encode_report(make_report()).body))
    body["from_the_future"] = {"a": [1]}
    body["summary"]["record"]["also_new"] = 1
    del body["missing"]
    del body["summary"]["record"]["work_dir"]

    read = decode_report(zlib.compress(json.dumps(body).encode()), b"")

    assert ((), "") == (read.missing, read.record.work_dir)
    assert make_report().findings == read.findings


def test_number_that_is_none_is_a_gap_or_not_measured() -> None:
    report = make_report()
    chart = replace(make_chart(), lines=(ChartLine(label="n1", values=(math.nan, math.inf, 1.0)),))
    node = replace(report.summary.nodes[0], run_ratio=math.nan, core_seconds={"0": math.inf, "1": 5.0})
    broken = replace(report, charts=(chart,), summary=replace(report.summary, nodes=(node,)))

    read = decode_report(*encode_report(broken))

    assert (None, None, 1.0) == read.charts[0].lines[0].values
    assert ({"1": 5.0}, 0.0) == (read.summary.nodes[0].core_seconds, read.summary.nodes[0].run_ratio)


def test_curves_that_are_too_large_are_left_out_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = encode_report(make_report())
    monkeypatch.setattr(stored_reports, "BODY_LIMIT_BYTES", len(encoded.curves) - 1)

    read = decode_report(*encode_report(make_report()))

    assert ((), TOO_LARGE) == (read.charts, read.missing[-1])


def test_report_that_is_too_large_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_reports, "BODY_LIMIT_BYTES", 10)

    with pytest.raises(ArchiveTooLarge, match="4711"):
        encode_report(make_report())


@pytest.mark.parametrize(
    "body", [b"", b"garbage", zlib.compress(b"{}"), zlib.compress(b"[1"), encode_report(make_report()).body[:-9]]
)
def test_bytes_that_are_no_report_are_one_sentence(body: bytes) -> None:
    with pytest.raises(ArchiveError, match="in the archive"):
        decode_report(body, b"")


def test_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_reports, "UNPACKED_LIMIT_BYTES", 1000)

    with pytest.raises(ArchiveError, match="too large"):
        decode_report(zlib.compress(b" " * 2000), b"")


def test_job_of_64_nodes_takes_less_than_a_megabyte() -> None:
    times = tuple(float(index) for index in range(MAX_CHART_POINTS))
    lines = tuple(
        ChartLine(label=f"n{node}", values=tuple(math.sin(index * node) for index in range(MAX_CHART_POINTS)))
        for node in range(64)
    )
    charts = tuple(replace(make_chart(name), times=times, lines=lines) for name in ("cpu", "memory", "read", "write"))

    assert len(encode_report(make_report(charts=charts)).curves) < 1_000_000
