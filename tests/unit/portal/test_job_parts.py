# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.archive.job_columns import JobRow
from slurmscope.portal.job_view import make_job_parts
from tests.fakes.archive import make_row
from tests.fakes.reports import make_record, make_report

ROW = replace(make_row(make_report(make_record(1))), het_job_id=70)


def make_part(offset: int, *, cpus: int, ratio: float | None, later: int = 0) -> JobRow:
    return replace(
        ROW, job_id=70 + offset, het_offset=offset, shown_id=f"70+{offset}", cpus=cpus, cpu_ratio=ratio,
        core_seconds=100.0 * cpus, nodes=1 + offset, gpus=2 * offset, submit_seconds=ROW.submit_seconds + later,
    )  # fmt: skip


def test_parts_are_in_order_and_summed() -> None:
    parts = make_job_parts(70, [make_part(1, cpus=24, ratio=0.5), make_part(0, cpus=8, ratio=0.9)])
    assert parts is not None
    assert ["70+0", "70+1"] == [row.shown_id for row in parts.rows]
    assert (3, 32, 2, 3200.0) == (parts.nodes, parts.cpus, parts.gpus, parts.core_seconds)
    # (8 * 0.9 + 24 * 0.5) / 32
    assert 0.6 == pytest.approx(parts.cpu_ratio)


def test_part_that_was_not_measured_leaves_the_sum_unknown() -> None:
    parts = make_job_parts(70, [make_part(0, cpus=8, ratio=None), make_part(1, cpus=8, ratio=0.9)])
    assert parts is not None
    assert parts.cpu_ratio is None


def test_part_whose_cores_are_unknown_leaves_their_sum_unknown() -> None:
    parts = make_job_parts(70, [replace(make_part(0, cpus=8, ratio=0.9), cpus=None), make_part(1, cpus=8, ratio=0.9)])
    assert parts is not None
    assert parts.cpus is None


def test_newest_run_of_a_requeued_part_counts_once() -> None:
    rows = [make_part(0, cpus=8, ratio=0.1), make_part(0, cpus=8, ratio=0.9, later=60), make_part(1, cpus=8, ratio=0.9)]
    parts = make_job_parts(70, rows)
    assert parts is not None
    assert [0.9, 0.9] == [row.cpu_ratio for row in parts.rows]


@pytest.mark.parametrize("rows", [[], [make_part(0, cpus=8, ratio=0.9)]])
def test_single_part_is_not_listed(rows: list[JobRow]) -> None:
    assert None is make_job_parts(70, rows)
