# SPDX-License-Identifier: Apache-2.0
"""Output is found where sbatch puts it; expected paths follow the documentation of sbatch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.jobs.failure import OutputFiles, expand_pattern, explain_failure, find_output_files
from slurmscope.jobs.record import StepRecord
from tests.fakes.reports import make_record, make_report


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("slurm-%j.out", "slurm-4711.out"),
        ("%x-%A_%a.%u", "relax-40_7.ada"),
        ("log/%N/%n-%s-%t", "log/n1/0-0-0"),
        ("%8j", "00004711"),
        ("%99j", "0000004711"),
        ("%%j-%J", "%j-4711"),
        ("%z %", "%z %"),
        (r"job\%j", "job%j"),
    ],
)
def test_patterns_are_expanded(pattern: str, expected: str) -> None:
    record = make_record(array_job_id=40, array_task_id=7, nodes=("n1.example.org", "n2"))

    assert expected == expand_pattern(pattern, record)


def test_patterns_without_array_and_nodes() -> None:
    assert "4711_4294967294 %N 4" == expand_pattern("%A_%a %N %b", make_record(nodes=()))


BATCH = StepRecord(name="batch", state="FAILED")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # Slurm 24.05 and later know.
        (
            {"stdout": "/scratch/%j.out", "stderr": "/scratch/%j.err"},
            OutputFiles("/scratch/4711.out", "/scratch/4711.err", is_assumed=False),
        ),
        (
            {"stdout": "out/%x", "work_dir": "/home/ada/"},
            OutputFiles("/home/ada/out/relax", "/home/ada/out/relax", is_assumed=False),
        ),
        # Before that, the submit line may know.
        (
            {"submit_line": "sbatch -o o.txt --error=e.txt x.sh"},
            OutputFiles("/home/ada/relax/o.txt", "/home/ada/relax/e.txt", is_assumed=False),
        ),
        ({}, OutputFiles("/home/ada/relax/slurm-4711.out", "/home/ada/relax/slurm-4711.out", is_assumed=True)),
        (
            {"array_job_id": 40, "array_task_id": 7, "work_dir": ""},
            OutputFiles("slurm-40_7.out", "slurm-40_7.out", is_assumed=True),
        ),
        # Without a submit line (before 21.08) the step of the script shows that it is a batch job.
        (
            {"submit_line": "", "steps": (BATCH,), "work_dir": "/w"},
            OutputFiles("/w/slurm-4711.out", "/w/slurm-4711.out", is_assumed=True),
        ),
        # On a terminal.
        ({"submit_line": "srun -n4 ./a.out", "steps": ()}, OutputFiles("", "", is_assumed=False)),
        ({"submit_line": "", "steps": ()}, OutputFiles("", "", is_assumed=False)),
        (
            {"submit_line": "/usr/bin/srun -e e.txt ./a.out", "steps": ()},
            OutputFiles("", "/home/ada/relax/e.txt", is_assumed=False),
        ),
    ],
)
def test_output_is_found(changed: dict[str, object], expected: OutputFiles) -> None:
    record = replace(make_record(), **changed)  # type: ignore[arg-type]

    assert expected == find_output_files(record)


@pytest.mark.parametrize(("stderr", "is_lost"), [("", True), ("/dev/null", True), ("err.txt", False)])
def test_output_that_went_to_dev_null_cannot_be_looked_at(stderr: str, is_lost: bool) -> None:
    record = make_record(state="FAILED", exit_code=1, stdout="/dev/null", stderr=stderr, steps=())
    failure = explain_failure(make_report(record))

    assert failure is not None
    assert is_lost == find_output_files(record).is_discarded
    assert is_lost == (failure.advice == "Its output went to /dev/null: submit it again with --output, to see why.")
    assert "" == failure.stdout
