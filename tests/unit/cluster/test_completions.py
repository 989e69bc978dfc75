# SPDX-License-Identifier: Apache-2.0
"""Sums over ended jobs become metrics."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from slurmscope.cluster.completions import COLLECTOR, RUN_BUCKETS_SECONDS, Completions, EndedJob, RunTimes, add_jobs
from slurmscope.exporter.collector import NoOptions
from slurmscope.metrics.family import Family
from slurmscope.metrics.write import Format, write

EMPTY = Completions(since=1_794_732_000, read_until=1_794_735_600)


def job(**changes: object) -> EndedJob:
    values: dict[str, object] = {
        "job_id": 7,
        "submit_time": 1,
        "end_time": 2,
        "partition": "debug",
        "account": "physics",
        "state": "COMPLETED",
        "elapsed_seconds": 60,
        "cpu_seconds": 240,
        "gpus": 0,
    }
    return EndedJob(**{**values, **changes})  # type: ignore[arg-type]


def collect(completions: Completions) -> list[Family]:
    return list(COLLECTOR.collect(NoOptions(), completions=completions))


def page(completions: Completions) -> Mapping[tuple[str, ...], float]:
    """Return what Prometheus would read: name and label values to value."""
    text = b"".join(write(collect(completions), Format.TEXT)).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


RICH = add_jobs(
    EMPTY,
    [
        job(),
        job(state="FAILED", exit_code=3, elapsed_seconds=61, cpu_seconds=244),
        job(state="FAILED", exit_signal=11, elapsed_seconds=0, cpu_seconds=0),
        job(state="CANCELLED", account="chemistry", elapsed_seconds=None, cpu_seconds=0, tasks=7),
        job(state="TIMEOUT", partition="gpus", elapsed_seconds=604_801, cpu_seconds=1_209_602, gpus=4),
        job(state="COMPLETED", partition="gpus", elapsed_seconds=10, cpu_seconds=10, gpus=None),
    ],
)


def test_every_declared_metric_is_served_and_no_other() -> None:
    families = collect(RICH)

    assert list(COLLECTOR.metrics) == [family.metric for family in families]
    assert all(family.samples for family in families)


def test_jobs_are_counted_by_how_they_ended() -> None:
    served = page(RICH)

    assert {
        ("debug", "physics", "COMPLETED", "ok"): 1,
        ("debug", "physics", "FAILED", "error"): 1,
        ("debug", "physics", "FAILED", "signal"): 1,
        ("debug", "chemistry", "CANCELLED", "none"): 7,
        ("gpus", "physics", "TIMEOUT", "none"): 1,
        ("gpus", "physics", "COMPLETED", "ok"): 1,
    } == {key[1:]: value for key, value in served.items() if key[0] == "slurm_jobs_ended_total"}


def test_run_times_are_a_histogram_of_jobs_that_ran() -> None:
    served = page(RICH)

    assert 3 == served["slurm_job_run_seconds_count", "debug"]
    assert 121 == served["slurm_job_run_seconds_sum", "debug"]
    assert [1, 2, 3] == [served["slurm_job_run_seconds_bucket", "debug", le] for le in ("10.0", "60.0", "300.0")]
    assert 1 == served["slurm_job_run_seconds_bucket", "gpus", "604800.0"]
    assert 2 == served["slurm_job_run_seconds_bucket", "gpus", "+Inf"]


def test_held_cpus_and_gpus_are_summed() -> None:
    served = page(RICH)

    assert 240 + 244 == served["slurm_ended_job_cpu_seconds_total", "debug", "physics"]
    assert 4 * 604_801 == served["slurm_ended_job_gpu_seconds_total", "gpus", "physics"]
    assert ("slurm_ended_job_gpu_seconds_total", "debug", "physics") not in served
    assert ("slurm_ended_job_cpu_seconds_total", "debug", "chemistry") not in served


def test_time_of_the_sums_is_exported_even_before_the_first_end() -> None:
    assert {
        ("slurm_completions_since_timestamp_seconds",): 1_794_732_000,
        ("slurm_completions_read_until_timestamp_seconds",): 1_794_735_600,
        ("slurm_completions_unreadable_rows",): 0,
    } == page(EMPTY)


def test_run_that_is_exactly_as_long_as_a_bound_is_within_it() -> None:
    for position, bound in enumerate(RUN_BUCKETS_SECONDS):
        counts = RunTimes().plus(int(bound)).counts
        assert [position] == [bucket for bucket, count in enumerate(counts) if count]


def test_adding_changes_no_sums_that_were_returned() -> None:
    before = add_jobs(EMPTY, [job()])
    add_jobs(before, [job()])

    assert {("debug", "physics", "COMPLETED", "ok"): 1} == before.ended
    assert EMPTY == Completions(since=1_794_732_000, read_until=1_794_735_600)
