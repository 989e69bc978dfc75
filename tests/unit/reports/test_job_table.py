# SPDX-License-Identifier: Apache-2.0
"""Several jobs are one table: with what was found, in any width, and as files."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from datetime import timedelta, timezone

import pytest

from slurmscope.archive.job_columns import JobRow
from slurmscope.archive.job_rows import make_job_row
from slurmscope.jobs.rule import Severity
from slurmscope.reports.job_table import (
    render_array_text,
    render_job_table,
    render_job_table_csv,
    render_job_table_json,
)
from tests.fakes.reports import HOSTILE_NAME, START, make_gpu_report, make_record, make_report

_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def _row(job_id: int = 4711, **changed: object) -> JobRow:
    return replace(
        make_job_row(make_report(make_record(job_id, **changed))), rules=("idle", "large"), worst=Severity.CRITICAL
    )


def test_row_says_how_a_job_ended_what_it_used_and_what_was_found() -> None:
    text = render_job_table([_row()], width=120, titles={"idle": "Cores were idle"}.get)  # type: ignore[arg-type]

    head, row = text.splitlines()
    assert ["Job", "Name", "State", "Submitted", "(UTC)", "Run", "time", "CPU", "Memory", "Findings"] == head.split()
    assert "4711  relax  COMPLETED  2026-09-21 14:03       2 h  50 %    10 %  Cores were idle, and 1 more" == row


def test_times_are_in_the_zone_of_the_reader() -> None:
    zone = timezone(timedelta(hours=9), "JST")

    text = render_job_table([_row()], width=120, zone=zone)

    assert "2026-09-21 23:03" in text
    assert "Submitted (JST)" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_columns_that_do_not_fit_are_left_out_before_findings(width: int) -> None:
    lines = render_job_table([_row(), _row(job_id=2, state="OUT_OF_MEMORY")], width=width).splitlines()

    assert width >= max(map(len, lines))
    assert all("idle" in line for line in lines[1:])
    assert ["4711", "2"] == [line.split()[0] for line in lines[1:]]
    assert ("Submitted" in lines[0]) == (width >= 100)


def test_jobs_of_several_users_have_their_names_and_gpus_have_a_column() -> None:
    one = render_job_table([_row()], width=120)
    several = render_job_table([_row(), _row(user="bob"), make_job_row(make_gpu_report())], width=120)

    assert "User" not in one
    assert "GPU" not in one
    assert re.search(r"GPU +User +Findings", several.splitlines()[0])
    assert re.search(r"1\.0 % +bob", several)


def test_unmeasured_waiting_and_short_jobs_are_no_zeros() -> None:
    waiting = _row(state="PENDING", start_seconds=None, end_seconds=None)
    plain = replace(waiting, cpu_ratio=None, memory_ratio=None, rules=(), worst=None, run_seconds=0.0)
    short = replace(plain, start_seconds=START, end_seconds=START + 60, run_seconds=60.0)

    assert re.search(r"relax +PENDING .* –    –       –  –", render_job_table([plain], width=120))
    assert render_job_table([short], width=120).splitlines()[1].endswith("too short to judge")


def test_hostile_names_are_shown_and_not_sent() -> None:
    text = render_job_table([_row(name=HOSTILE_NAME)], width=120, use_color=True)

    assert "\x1b" not in _COLOR.sub("", text)
    assert "\x1b[1;31m" in text
    cells = list(csv.reader(io.StringIO(render_job_table_csv([_row(name=HOSTILE_NAME)]))))
    assert dict(zip(*cells, strict=True))["name"].startswith("'=cmd")


def test_files_have_every_number_and_say_what_is_missing() -> None:
    row = replace(_row(), gpu_ratio=None)
    (made,) = json.loads(render_job_table_json([row], is_cut=True))["jobs"]

    assert ("4711", 0.5, None, ["idle", "large"], "critical") == (
        made["shown_id"], made["cpu_ratio"], made["gpu_ratio"], made["rules"], made["worst"]
    )  # fmt: skip
    assert json.loads(render_job_table_json([], is_cut=True)) == {"jobs": [], "is_cut": True}
    head, cells = csv.reader(io.StringIO(render_job_table_csv([row])))
    assert ("0.5", "", "idle large") == tuple(
        dict(zip(head, cells, strict=True))[n] for n in ("cpu_ratio", "gpu_ratio", "rules")
    )


def test_sentences_below_are_wrapped() -> None:
    text = render_job_table([_row()], width=40, notes=["word " * 20])

    assert max(map(len, text.splitlines())) <= 40
    assert 20 == text.count("word")


def test_names_stay_in_a_narrow_table() -> None:
    assert "relax" in render_job_table([_row()], width=60)


def test_pending_tasks_of_an_array_are_counted() -> None:
    done = make_job_row(make_report(make_record(4711, array_job_id=4700, array_task_id=1)))
    rest = _row(array_job_id=4700, job_id=4700, state="PENDING", start_seconds=None, end_seconds=None)
    text = render_array_text("4700", [done, replace(rest, array_tasks=23)])

    assert "Array 4700: relax, 24 tasks (23 PENDING, 1 COMPLETED)" == text.splitlines()[0]
    assert "23 not started" in text
    assert "2 tasks (1 COMPLETED, 1 PENDING)" in render_array_text("4700", [done, rest])
