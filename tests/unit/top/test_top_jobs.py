# SPDX-License-Identifier: Apache-2.0
"""Rows of running jobs have the numbers of the pages, worked by hand; what was not measured is absent."""

from __future__ import annotations

import math

import pytest

from slurmscope.core.errors import MalformedAnswer
from slurmscope.top.jobs import Rates, TopGpu, TopJob, filter_jobs, make_jobs, sort_jobs
from slurmscope.top.sources import read_page

GIB = 1 << 30


def _info(job: str, node: str, **changed: str) -> dict[str, str]:
    return {"slurm_job": job, "slurm_node": node, "user": "ada", "account": "", "has_ended": "false", **changed}


def _of(job: str, node: str, **more: str) -> dict[str, str]:
    return {"slurm_job": job, "slurm_node": node, **more}


def test_rate_is_the_growth_between_two_different_values() -> None:
    rates, labels = Rates(), _of("1", "n1")

    def read(value: float, now: float) -> list[float]:
        return [
            rate for _, rate in rates.of({"jobs_cpu_seconds_total": [(labels, value)]}, now)["jobs_cpu_seconds_total"]
        ]

    assert [] == read(100.0, 10.0)
    assert [2.5] == read(105.0, 12.0)
    # The agent has not read again: the last rate stays, but not for ever.
    assert [2.5] == read(105.0, 14.0)
    assert [0.0] == read(105.0, 60.0)
    # A counter that falls begins anew.
    assert [] == read(3.0, 62.0)
    assert [1.0] == read(5.0, 64.0)


def test_first_value_that_stands_still_is_idle() -> None:
    rates, numbers = Rates(), {"jobs_cpu_seconds_total": [(_of("1", "n1"), 7.0)]}
    rates.of(numbers, 0.0)

    assert [0.0] == [rate for _, rate in rates.of(numbers, 2.0)["jobs_cpu_seconds_total"]]


def test_jobs_of_several_nodes_are_sums_and_a_missing_node_makes_a_number_unknown() -> None:
    numbers: dict[str, list[tuple[dict[str, str], float]]] = {
        "jobs_info": [(_info("12", "n1"), 1.0), (_info("12", "n2"), 1.0), (_info("13", "n1", has_ended="true"), 1.0)],
        "jobs_cpu_seconds_total": [(_of("12", "n1"), 3.5), (_of("12", "n2"), 4.0)],
        "jobs_cores": [(_of("12", "n1"), 4.0), (_of("12", "n2"), 4.0)],
        "jobs_memory_anon_bytes": [(_of("12", "n1"), GIB), (_of("12", "n2"), GIB)],
        "jobs_memory_shmem_bytes": [(_of("12", "n1"), GIB / 2), (_of("12", "n2"), 0.0)],
        "jobs_memory_limit_bytes": [(_of("12", "n1"), 4.0 * GIB)],
    }
    (job,) = make_jobs(numbers)

    assert ("12", "ada", ("n1", "n2")) == (job.job_id, job.user, job.nodes)
    assert (7.5, 8.0, 0.9375) == (job.cores_used, job.cores, job.cpu_ratio)
    assert 2.5 * GIB == job.memory_bytes
    assert job.limit_bytes is None
    assert job.memory_ratio is None
    assert job.read_rate is None


def test_gpus_have_rows_with_what_is_counted() -> None:
    def gpu(value: float, index: str = "0", **more: str) -> tuple[dict[str, str], float]:
        return _of("12", "n1", gpu=index, mig="", **more), value

    numbers = {
        "jobs_info": [(_info("12", "n1"), 1.0)],
        "jobs_gpu_held": [gpu(1.0), gpu(0.0, "1"), gpu(1.0, "2")],
        "jobs_gpu_busy_seconds_total": [gpu(0.9)],
        "jobs_gpu_sm_active_seconds_total": [gpu(0.4)],
        "jobs_gpu_energy_joules_total": [gpu(412.0)],
        "jobs_gpu_held_memory_bytes": [gpu(62.0 * GIB)],
        "jobs_gpu_held_memory_size_bytes": [gpu(80.0 * GIB)],
        "jobs_gpu_held_utilization_ratio": [gpu(0.1), gpu(0.5, "2")],
    }
    (job,) = make_jobs(numbers)

    first = TopGpu(
        node="n1",
        name="0",
        busy_ratio=0.9,
        sm_ratio=0.4,
        memory_bytes=62.0 * GIB,
        size_bytes=80.0 * GIB,
        power_watts=412.0,
    )
    # GPU 1 is that of another job; GPU 2 counts nothing but has a gauge.
    assert (first, TopGpu(node="n1", name="2", busy_ratio=0.5)) == job.gpus
    assert job.gpu_ratio is not None
    assert math.isclose(0.7, job.gpu_ratio)


def test_sorting_puts_what_was_not_measured_last() -> None:
    jobs = [
        TopJob(job_id="9", read_rate=1.0),
        TopJob(job_id="10", cores_used=2.0, write_rate=5.0),
        TopJob(job_id="8", cores_used=0.0, elapsed_seconds=5.0, time_limit_seconds=10.0),
    ]

    assert ["10", "8", "9"] == [job.job_id for job in sort_jobs(jobs, "cpu")]
    assert ["10", "9", "8"] == [job.job_id for job in sort_jobs(jobs, "io")]
    assert ["8", "9", "10"] == [job.job_id for job in sort_jobs(jobs, "job")]
    assert ["8", "9", "10"] == [job.job_id for job in sort_jobs(jobs, "time")]


def test_id_of_any_length_is_sorted() -> None:
    jobs = [TopJob(job_id="9" * 5000), TopJob(job_id="12_3"), TopJob(job_id="x")]

    assert {job.job_id for job in jobs} == {job.job_id for job in sort_jobs(jobs, "job")}


def test_filter_finds_any_name_in_any_case() -> None:
    jobs = [TopJob(job_id="1", user="Ada"), TopJob(job_id="2", nodes=("n17",)), TopJob(job_id="3", name="relax")]

    assert [["1"], ["2"], ["3"], ["1", "2", "3"]] == [
        [job.job_id for job in filter_jobs(jobs, text)] for text in ("aDA", "n17", "LAX", "")
    ]


def test_page_is_read_with_its_age() -> None:
    page = (
        "# TYPE jobs_on_node gauge\njobs_on_node 1\n"
        '# TYPE jobs_cores gauge\njobs_cores{slurm_job="1",slurm_node="n1"} 4\n'
        "# TYPE slurmscope_reading_age_seconds gauge\n"
        'slurmscope_reading_age_seconds{source="gpus"} 9\nslurmscope_reading_age_seconds{source="node_jobs"} 0.7\n'
    )

    assert ({"jobs_cores": [({"slurm_job": "1", "slurm_node": "n1"}, 4.0)]}, 0.7) == read_page(page.encode())


@pytest.mark.parametrize("page", [b"", b"up 1\n", b"<html>", b"\xff", b"jobs_on_node 1"])
def test_other_pages_are_refused_in_one_sentence(page: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        read_page(page)
