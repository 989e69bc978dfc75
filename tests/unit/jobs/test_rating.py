# SPDX-License-Identifier: Apache-2.0
"""The rating of a used share: bounds are those of the rules, worked out by hand."""

from __future__ import annotations

import math

import pytest

from slurmscope.jobs.findings import RULES
from slurmscope.jobs.rating import BUSY_FOR_NOTHING, MANY_JOBS, RatedJob, Rating, rate_use, rated_job
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.summary import GpuWork, HeldGpu
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
        # Two GPUs of 73 % and 0 % are not fine, whatever their mean is; the 73 % of one of them are.
        (Subject.GPU, 0.365, ENDED._replace(gpus=2, gpu_ratio=0.365, least_gpu_ratio=0.0), CRITICAL),
        (Subject.GPU, 0.73, ENDED._replace(gpus=2, gpu_ratio=0.365, least_gpu_ratio=0.0), FINE),
        (Subject.GPU, 0.5, ENDED._replace(gpus=2, gpu_ratio=0.5, least_gpu_ratio=0.2), WARNING),
        (Subject.GPU, 0.5, ENDED._replace(gpus=2, gpu_ratio=0.5, least_gpu_ratio=0.4), FINE),
        # A GPU that is busy all the time may do nothing at all.
        (Subject.GPU, 1.0, ENDED._replace(gpus=1, is_busy_for_nothing=True), CRITICAL),
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


def test_gpus_that_are_busy_for_nothing_are_known_by_their_work() -> None:
    def is_for_nothing(*, stuck_seconds: float | None = None, jobs: int = 1, **work: float | None) -> bool:
        device = HeldGpu(node="n1", gpu="0", stuck_seconds=stuck_seconds, jobs=jobs)
        return rated_job(with_gpus(1, work=GpuWork(**work), devices=(device,))).is_busy_for_nothing  # type: ignore[arg-type]

    # Measured on an H200: a spinning thread, tiny kernels, an idle context, a training.
    assert is_for_nothing(busy_ratio=0.9999, sm_ratio=0.0076)
    assert is_for_nothing(busy_ratio=0.18, sm_ratio=0.0002)
    assert not is_for_nothing(busy_ratio=0.0001, sm_ratio=0.0)
    assert (True, False) == tuple(is_for_nothing(busy_ratio=0.18, sm_ratio=ratio) for ratio in (0.0199, 0.02))
    assert not is_for_nothing(busy_ratio=0.98, sm_ratio=0.89)
    assert is_for_nothing(busy_ratio=0.98, sm_ratio=0.4, stuck_seconds=600.0)
    assert not is_for_nothing(busy_ratio=0.98, sm_ratio=0.4, stuck_seconds=599.0)
    # The work of a shared GPU is an estimate, and that of an older one is unknown.
    assert not is_for_nothing(busy_ratio=0.9999, sm_ratio=0.0076, jobs=2)
    assert not is_for_nothing(busy_ratio=1.0)


def test_list_has_the_rules_of_jobs_that_are_busy_for_nothing() -> None:
    assert {rule.id for rule in RULES} > BUSY_FOR_NOTHING
