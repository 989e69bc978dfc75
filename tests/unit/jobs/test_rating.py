# SPDX-License-Identifier: Apache-2.0
"""The rating of a used share: bounds are those of the rules, worked out by hand."""

from __future__ import annotations

import math

import pytest

from slurmscope.jobs.rating import MANY_JOBS, RatedJob, Rating, rate_use, rated_job
from slurmscope.jobs.rule import Subject
from tests.fakes.job_summaries import GIB, make_summary, with_gpus

CRITICAL, WARNING, FINE, UNRATED = Rating
ENDED = RatedJob("COMPLETED", 7200.0, 0, 4, 8 * GIB)
RUNNING = ENDED._replace(state="RUNNING")
FAILED = ENDED._replace(state="FAILED")


@pytest.mark.parametrize(
    ("subject", "ratio", "job", "expected"),
    [
        (Subject.CPU, None, ENDED, UNRATED),
        (Subject.CPU, math.nan, ENDED, UNRATED),
        (Subject.CPU, 0.0, ENDED, CRITICAL),
        (Subject.CPU, 0.249, ENDED, CRITICAL),
        (Subject.CPU, 0.25, ENDED, WARNING),
        (Subject.CPU, 0.799, ENDED, WARNING),
        (Subject.CPU, 0.8, ENDED, FINE),
        (Subject.CPU, 2.0, ENDED, FINE),
        (Subject.CPU, 0.799, MANY_JOBS, WARNING),
        # A job with GPUs may leave its cores idle; a short one cannot be judged.
        (Subject.CPU, 0.1, ENDED._replace(gpus=1), UNRATED),
        (Subject.CPU, 0.1, ENDED._replace(run_seconds=299.0), UNRATED),
        (Subject.CPU, 0.1, ENDED._replace(run_seconds=300.0), CRITICAL),
        # A running job is never fine, because it is not over.
        (Subject.CPU, 0.9, RUNNING, UNRATED),
        (Subject.CPU, 0.5, RUNNING, WARNING),
        (Subject.CPU, 0.9, FAILED, FINE),
        (Subject.MEMORY, 0.099, ENDED, CRITICAL),
        (Subject.MEMORY, 0.1, ENDED, WARNING),
        (Subject.MEMORY, 0.499, ENDED, WARNING),
        (Subject.MEMORY, 0.5, ENDED, FINE),
        (Subject.MEMORY, 0.949, ENDED, FINE),
        (Subject.MEMORY, 0.95, ENDED, WARNING),
        (Subject.MEMORY, 0.95, RUNNING, WARNING),
        # What is not used yet, or was not used before a failure, may be needed.
        (Subject.MEMORY, 0.1, RUNNING, UNRATED),
        (Subject.MEMORY, 0.1, FAILED, UNRATED),
        # 1 GiB per core is free; and 1.9 GiB of which half is used leave less than 1 GiB.
        (Subject.MEMORY, 0.1, ENDED._replace(requested_bytes=4 * GIB), FINE),
        (Subject.MEMORY, 0.1, ENDED._replace(requested_bytes=4 * GIB, cpus=None), WARNING),
        (Subject.MEMORY, 0.49, ENDED._replace(requested_bytes=1.9 * GIB, cpus=1), FINE),
        (Subject.MEMORY, 0.1, ENDED._replace(requested_bytes=None), WARNING),
        (Subject.GPU, 0.019, ENDED._replace(gpus=1), CRITICAL),
        (Subject.GPU, 0.02, ENDED._replace(gpus=1), WARNING),
        (Subject.GPU, 0.25, ENDED._replace(gpus=1), FINE),
        (Subject.GPU, 0.25, RUNNING._replace(gpus=1), UNRATED),
        # How much of its time a job needs is neither good nor bad, unless it was too little.
        (Subject.TIME, 0.01, ENDED, UNRATED),
        (Subject.TIME, 1.0, ENDED._replace(state="TIMEOUT"), CRITICAL),
        (Subject.FILES, 0.5, ENDED, UNRATED),
    ],
)
def test_share_is_rated(subject: Subject, ratio: float | None, job: RatedJob, expected: Rating) -> None:
    assert expected is rate_use(subject, ratio, job)


def test_job_is_rated_by_its_record() -> None:
    assert RatedJob("COMPLETED", 7200.0, 0, 4, 8 * GIB) == rated_job(make_summary())
    assert 3 == rated_job(with_gpus(3)).gpus
