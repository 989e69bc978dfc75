# SPDX-License-Identifier: Apache-2.0
"""``slurmscope compare`` shows two stored reports side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurmscope.jobs.render.json import render_json, render_run_json
from slurmscope.run.report import make_run_report
from tests.fakes.command_line import run_here
from tests.fakes.reports import make_report
from tests.fakes.traced_runs import make_run, make_sample


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    half = make_run(wall_seconds=300.0, samples=(make_sample(0, 0), make_sample(300, 600)), command=("x\x1b[31m",))
    first.write_bytes(render_run_json(make_run_report(make_run(), made_seconds=0)))
    second.write_bytes(render_run_json(make_run_report(half, made_seconds=0)))
    return str(first), str(second)


def test_text_has_both_and_their_ratio(files: tuple[str, str]) -> None:
    done = run_here("compare", *files)

    assert (0, "") == (done.returncode, done.stderr)
    rows = {line[:18].strip(): line[18:].split() for line in done.stdout.splitlines()[4:]}
    assert ["10", "min", "5", "min", "0.50"] == rows["Wall time"]
    assert ["10", "min", "10", "min", "1.00"] == rows["CPU time"]
    assert ["25", "%", "50", "%", "2.00"] == rows["CPU efficiency"]
    assert "A: /opt/solver --input 'a b' on n1" == done.stdout.splitlines()[0]
    assert "\x1b" not in done.stdout


def test_json_has_numbers(files: tuple[str, str]) -> None:
    figures = {
        figure["name"]: figure for figure in json.loads(run_here("compare", "-f", "json", *files).stdout)["figures"]
    }

    assert (600.0, 300.0, 0.5, "seconds") == tuple(
        figures["run_seconds"][key] for key in ("first", "second", "ratio", "unit")
    )


def test_report_of_a_job_can_be_compared_with_a_run(files: tuple[str, str], tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_bytes(render_json(make_report()))

    done = run_here("compare", files[0], str(job))

    assert (0, True) == (done.returncode, "B: relax on n1\n" in done.stdout)
    assert "not measured" in next(line for line in done.stdout.splitlines() if line.startswith("Threads"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[1, 2]", "is not a report"),
        (b'{"version": 99, "summary": {"record": {}}}', "is not a report"),
    ],
)
def test_file_that_is_no_report_is_named(content: bytes, message: str, files: tuple[str, str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_bytes(content)

    done = run_here("compare", files[0], str(bad))

    assert (2, "") == (done.returncode, done.stdout)
    assert f"slurmscope: {bad} {message}; make one with slurmscope run --format json --output FILE\n" == done.stderr


def test_absent_file_is_named(files: tuple[str, str]) -> None:
    done = run_here("compare", "/nonexistent.json", files[1])

    assert (2, "slurmscope: cannot read /nonexistent.json: No such file or directory\n") == (
        done.returncode,
        done.stderr,
    )


def test_tiny_numbers_are_not_shown_as_zero_and_nothing_is_divided_by_zero(tmp_path: Path) -> None:
    """0.004 s of CPU time in 600 s, then none."""
    for name, cpu_seconds in (("tiny", 0.004), ("none", 0.0)):
        run = make_run(samples=(make_sample(0, 0), make_sample(600, cpu_seconds)))
        (tmp_path / name).write_bytes(render_run_json(make_run_report(run, made_seconds=0)))

    there = run_here("compare", str(tmp_path / "tiny"), str(tmp_path / "none")).stdout
    back = run_here("compare", str(tmp_path / "none"), str(tmp_path / "tiny")).stdout

    assert ["under", "0.01", "s", "0.00", "s", "0.00"] == _row(there, "CPU time")
    assert ["under", "0.01", "0", "0.00"] == _row(there, "Busy cores, mean")
    assert ["0.00", "s", "under", "0.01", "s", "–"] == _row(back, "CPU time")


def _row(text: str, label: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(f"{label}  "))[len(label) :].split()
