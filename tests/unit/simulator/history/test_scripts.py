# SPDX-License-Identifier: Apache-2.0
"""Simulated jobs have scripts with the mistakes that people make."""

from __future__ import annotations

from slurmscope.jobs.script import lint_script
from slurmscope.simulator.history.history import make_script
from tests.fakes.reports import HOSTILE_NAME, make_gpu_report, make_record


def test_each_usual_mistake_is_made_by_some_jobs_and_none_by_others() -> None:
    found = [
        {finding.title for finding in lint_script(make_script(make_record(job_id, submit_line="sbatch x")))}
        for job_id in range(4000, 4004)
    ]

    assert [
        set(),
        {"Nothing starts the 4 tasks", "4 threads without --cpus-per-task"},
        {"No time limit"},
        {"An option after the first command is ignored"},
    ] == found


def test_script_requests_what_the_job_got() -> None:
    script = make_script(make_record(4000))

    # It was submitted with -c4: nothing has to start tasks.
    for option in ("--cpus-per-task=4", "--nodes=1", "--time=1440", "--mem=8192M"):
        assert f"#SBATCH {option}\n" in script
    assert "#SBATCH --gpus=2\n" in make_script(make_gpu_report().record)


def test_name_of_a_job_cannot_leave_its_line() -> None:
    plain, odd = make_script(make_record(4000)), make_script(make_record(4000, name=HOSTILE_NAME))

    assert plain.count("\n") == odd.count("\n")
    assert odd.isascii()
