# SPDX-License-Identifier: Apache-2.0
"""Check the JSON of a report: its keys are a promise, and it holds nothing that JSON does not know."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from slurmscope.core.tres import Gres
from slurmscope.jobs.render.compat import render_seed_usage
from slurmscope.jobs.render.json import render_json
from slurmscope.jobs.summary import UsedShare
from tests.fakes.reports import (
    GIB,
    HOSTILE_NAME,
    make_chart,
    make_gpu_report,
    make_record,
    make_report,
    make_unmeasured_report,
)

COVERAGE = {"nodes", "nodes_measured", "run_ratio", "is_good"}
SHARE = {"requested", "used", "coverage", "ratio"}
REPORT = {"version", "made_seconds", "worst", "has_warning", "summary", "findings", "charts", "missing"}
SUMMARY = {
    "record", "run_seconds", "time", "cpu", "memory", "gpu", "io", "nodes", "program_threads", "mean_running_threads",
    "coverage",
}  # fmt: skip
RECORD = {
    "cluster", "job_id", "shown_id", "name", "user", "uid", "account", "partition", "qos", "state", "submit_seconds",
    "eligible_seconds", "start_seconds", "end_seconds", "time_limit_seconds", "array_job_id", "array_task_id",
    "het_job_id", "het_offset", "nodes", "node_count", "cpus", "memory_bytes", "gres", "gpus", "exit_code",
    "exit_signal", "restarts", "cpu_seconds", "reason", "submit_line", "work_dir", "steps", "is_running", "has_ended",
}  # fmt: skip
MEMORY = {
    "requested_bytes", "limit_bytes", "charged_peak_bytes", "working_peak_bytes", "slurm_peak_bytes", "best_peak_bytes",
    "ratio", "growth_ratio", "oom_kills", "coverage",
}  # fmt: skip
FINDING = {"rule", "severity", "subject", "title", "explanation", "advice", "suggestion", "numbers"}
CHART = {"name", "title", "unit", "subject", "times", "lines", "reference", "reference_label", "help"}


def _load(text: bytes) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text.decode("ascii"), parse_constant=refuse)


def test_no_promised_key_is_missing() -> None:
    plain = _load(render_json(make_gpu_report()))

    assert plain.keys() >= REPORT
    assert plain["summary"].keys() >= SUMMARY
    assert plain["summary"]["record"].keys() >= RECORD
    assert plain["summary"]["cpu"]["time"].keys() >= SHARE
    assert plain["summary"]["cpu"]["time"]["coverage"].keys() >= COVERAGE
    assert plain["summary"]["memory"].keys() >= MEMORY
    assert plain["findings"][0].keys() >= FINDING
    assert plain["charts"][0].keys() >= CHART


def test_values_and_what_follows_from_them_are_there() -> None:
    plain = _load(render_json(make_gpu_report()))

    assert (1, "critical", True) == (plain["version"], plain["worst"], plain["has_warning"])
    assert (0.5, 14400.0) == (plain["summary"]["cpu"]["time"]["ratio"], plain["summary"]["cpu"]["time"]["used"])
    assert 0.8 * GIB == plain["summary"]["memory"]["best_peak_bytes"]
    assert ("4712", 2) == (plain["summary"]["record"]["shown_id"], plain["summary"]["record"]["gpus"])
    assert [{"name": "gpu", "model": "h200", "count": 2}] == plain["summary"]["record"]["gres"]
    assert {"relax": 2.0} == plain["summary"]["program_threads"]
    assert None is plain["charts"][0]["lines"][0]["values"][100]


def test_what_was_not_measured_is_null() -> None:
    plain = _load(render_json(make_unmeasured_report(make_record())))

    assert None is plain["summary"]["cpu"]["time"]["ratio"]
    assert None is plain["summary"]["memory"]["ratio"]
    assert None is plain["worst"]


def test_a_number_that_is_none_becomes_null() -> None:
    report = make_report(charts=(replace(make_chart(), reference=math.inf),))
    report = replace(
        report,
        summary=replace(
            report.summary,
            time=UsedShare(requested=1.0, used=math.nan),
            program_threads=MappingProxyType({"a": -math.inf}),
        ),
    )
    plain = _load(render_json(report))

    assert (None, None) == (plain["summary"]["time"]["used"], plain["summary"]["time"]["ratio"])
    assert {"a": None} == plain["summary"]["program_threads"]
    assert None is plain["charts"][0]["reference"]


def test_hostile_names_come_back_whole_and_are_no_markup() -> None:
    raw = render_json(make_report(make_record(name=HOSTILE_NAME, work_dir="/tmp/ä\udcff")))

    assert HOSTILE_NAME == _load(raw)["summary"]["record"]["name"]
    assert "/tmp/ä?" == _load(raw)["summary"]["record"]["work_dir"]
    assert not set(b"<>&") & set(raw)


def test_the_older_application_s_keys_have_right_numbers() -> None:
    usage = render_seed_usage(make_report())

    assert {
        "jobid": "4711",
        "sponsor": "physics",
        "username": "ada",
        "runtime": "02:00:00",
        "uses_scratch": "False",
        "alloc_tres": {"billing": None, "alloc_cpu": 4, "alloc_mem": "8192M", "alloc_nodes": "n1"},
        "threads": {"relax": 2.0},
        "cpu": {
            "available": {"amount": 4, "unit": "cores"},
            "used": {"amount": 2, "unit": "cores"},
            "time_core": [
                {"core": "n1_core_0", "time": 7200.0, "unit": "s", "percent_of_total": 720000 / 14412},
                {"core": "n1_core_1", "time": 7200.0, "unit": "s", "percent_of_total": 720000 / 14412},
                {"core": "n1_core_2", "time": 0.0, "unit": "s", "percent_of_total": 0.0},
                {"core": "n1_core_3", "time": 12.0, "unit": "s", "percent_of_total": 1200 / 14412},
            ],
            "time_total": {"time": 14400.0, "unit": "s"},
            "avg_usage_job": {"usage": 200.0, "lowest_expected_usage": 320, "unit": "%"},
            "max_usage_job": {"usage": 210.0, "unit": "%"},
        },
        "ram": {
            "used": {"amount": 819.2, "unit": "MB", "usage": 0.1},
            "available": {"amount": "8192", "unit": "MB"},
        },
        "io": {
            "opened_files": 30,
            "read": {"amount": 5e9 / 1048576, "unit": "MB", "count": 50_000},
            "write": {"amount": 1e9 / 1048576, "unit": "MB", "count": 9_000},
        },
    } == usage


def test_the_older_application_s_numbers_are_none_when_not_measured() -> None:
    record = make_record(memory_bytes=None, array_job_id=12, array_task_id=3, gres=(Gres(name="gpu", count=1),))
    usage: Any = render_seed_usage(make_unmeasured_report(record))

    assert "12_3" == usage["jobid"]
    assert None is usage["uses_scratch"]
    assert None is usage["alloc_tres"]["alloc_mem"]
    assert None is usage["ram"]["used"]["amount"]
    assert None is usage["cpu"]["avg_usage_job"]["usage"]
    assert [] == usage["cpu"]["time_core"]
