# SPDX-License-Identifier: Apache-2.0
"""All rules together: silence without data, thresholds, texts, order."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurmscope.core.errors import ConfigError
from slurmscope.core.tres import Gres
from slurmscope.jobs.findings import RULES, judge, resolve_thresholds
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.resubmission import suggest_resubmission
from slurmscope.jobs.rule import Rule, Severity
from slurmscope.jobs.summary import (
    Coverage,
    CpuSummary,
    GpuSummary,
    IoSummary,
    JobSummary,
    MemorySummary,
    NodeSummary,
    UsedShare,
)
from slurmscope.slurm.states import ENDED_STATES
from tests.fakes.job_summaries import (
    GIB,
    all_findings,
    covered,
    make_summary,
    with_cores,
    with_gpus,
    with_io,
    with_nodes,
)
from tests.fakes.reports import make_record, make_report

EXPECTED_RULES = {
    "scratch_unused", "small_files", "cpu_idle", "cpu_uneven_over_time", "memory_over_requested", "core_imbalance",
    "too_many_threads", "serial_code", "node_imbalance", "memory_near_limit", "oom_kill", "time_over_requested",
    "timed_out", "metadata_storm", "tiny_requests", "gpu_idle", "gpu_held_without_process", "gpu_low", "stopped_early",
    "memory_growing", "too_many_nodes", "too_short", "node_failed", "gpu_busy_without_work", "gpu_tensor_unused",
    "gpu_memory_bound", "kernel_time", "gpu_fault", "gpu_stuck", "gpu_only_copies", "gpu_launch_bound", "gpu_starved",
    "gpu_some_idle", "gpu_unused_memory", "gpu_throttled", "network_fallback", "process_held", "straggler",
    "node_oversubscribed", "part_stopped", "cpu_queued", "memory_thrashing", "lost_since_checkpoint",
}  # fmt: skip
DEFAULTS = resolve_thresholds({})


def bare(state: str, **changed: object) -> JobSummary:
    """Make a job of two hours of which only accounting knows, in which accounting shows nothing wrong."""
    record = make_record(state=state, time_limit_seconds=3 * 3600, cpu_seconds=None, steps=())
    record = replace(record, **changed)  # type: ignore[arg-type]
    return JobSummary(record=record, run_seconds=7200.0, time=UsedShare(requested=10800.0, used=7200.0))


def test_every_rule_of_the_plan_is_there_once() -> None:
    ids = [rule.id for rule in RULES]

    assert EXPECTED_RULES == set(ids)
    assert len(EXPECTED_RULES) == len(ids)


def test_rules_explain_and_replace_only_rules_that_exist() -> None:
    assert {other for rule in RULES for other in (*rule.explains, *rule.replaces)} <= EXPECTED_RULES
    assert not [rule.id for rule in RULES if rule.id in rule.explains or set(rule.explains) & set(rule.replaces)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "RUNNING"])
def test_rule_is_silent_where_nothing_was_measured(rule: Rule, state: str) -> None:
    gpus = (Gres(name="gpu", count=2),)

    assert rule.check(bare(state), DEFAULTS[rule.id]) is None
    assert rule.check(bare(state, gres=gpus), DEFAULTS[rule.id]) is None


MEASURED_BADLY = Coverage(nodes=1, nodes_measured=1, run_ratio=0.5)


@pytest.mark.parametrize(
    "summary",
    [
        make_summary(busy=0.1, coverage=MEASURED_BADLY),
        make_summary(memory={"working_peak_bytes": 0.1 * GIB, "growth_ratio": 9.0, "coverage": MEASURED_BADLY}),
        make_summary(cpu={"idle_tail_seconds": 7000.0}, coverage=MEASURED_BADLY),
        make_summary(
            memory={"coverage": MEASURED_BADLY},
            nodes=(NodeSummary(node="n1", working_peak_bytes=1.0, limit_bytes=1.0),),
        ),
        with_gpus(mean_utilization=0.0, coverage=MEASURED_BADLY),
        with_cores(1000.0, 0.0, coverage=MEASURED_BADLY),
        with_nodes(*[4.0] * 8, *[0.0] * 8, coverage=MEASURED_BADLY),
        make_summary(busy=0.25, coverage=MEASURED_BADLY),
    ],
)
def test_incomplete_measurements_have_no_findings(summary: JobSummary) -> None:
    # What was allocated is known without any measurement.
    assert () == judge(summary, {"too_many_nodes.max_needed_ratio": 0.0})


def test_findings_come_worst_first() -> None:
    summary = make_summary(
        busy=0.5,
        record={"state": "TIMEOUT"},
        memory={"working_peak_bytes": GIB, "growth_ratio": 2.0},
        cpu={"peak_cores": 4.0},
    )

    assert ["timed_out", "memory_over_requested", "cpu_uneven_over_time", "memory_growing"] == [
        finding.rule for finding in judge(summary)
    ]


def test_job_with_idle_cores_and_unused_memory_has_both_findings() -> None:
    by_rule = {finding.rule: finding for finding in judge(make_report().summary)}

    assert {"cpu_idle", "memory_over_requested", "time_over_requested", "scratch_unused"} == set(by_rule)
    assert ["core_imbalance"] == [finding.rule for finding in by_rule["cpu_idle"].consequences]
    assert (
        "Only 2 of 4 cores were busy on average: 50 % of the requested CPU time. 2 cores did nearly all of the work."
    ) == by_rule["cpu_idle"].explanation
    assert "#SBATCH --cpus-per-task=2" == by_rule["cpu_idle"].suggestion
    assert "#SBATCH --mem=1G" == by_rule["memory_over_requested"].suggestion
    assert {"busy_ratio": 0.5, "mean_cores": 2.0, "cores": 4.0, "min_busy_ratio": 0.8}.items() <= (
        by_rule["cpu_idle"].numbers.items()
    )


STUCK = make_summary(record={"state": "TIMEOUT"}, cpu={"idle_tail_seconds": 3600.0})
MANY = {f"p{number:02}": 20.0 + number for number in range(12)}


@pytest.mark.parametrize(
    ("rule", "summary", "expected"),
    [
        ("cpu_idle", make_summary(busy=0.5, record={"cpus": 1}), "Your one core was not busy all the time: 50 %"),
        ("oom_kill", make_summary(memory={"oom_kills": 3}), "The job completed all the same"),
        (
            "oom_kill",
            make_summary(memory={"oom_kills": 1, "requested_bytes": None}),
            "exceeded its memory limit. How much it needs is not known",
        ),
        ("timed_out", STUCK, "at its time limit after 3 h. It had been idle for the last 1 h."),
        ("timed_out", bare("TIMEOUT", time_limit_seconds=None), "at its time limit"),
        ("stopped_early", STUCK, "was idle for the last 1 h before it ended: 50 % of its 2 h."),
        (
            "stopped_early",
            replace(STUCK, record=make_record(state="RUNNING", end_seconds=None)),
            "was idle for the last 1 h up to now",
        ),
        ("memory_growing", make_summary(memory={"growth_ratio": 1.9}), "At its end the job used 1.9 times as much"),
        (
            "memory_growing",
            make_summary(memory={"growth_ratio": 1.9}, record={"state": "RUNNING"}),
            "The job now uses 1.9 times as much",
        ),
        ("gpu_idle", with_gpus(1, mean_utilization=0.0), "The GPU was busy for only 0 % of the time"),
        ("gpu_idle", with_gpus(2, mean_utilization=0.01), "The 2 GPUs were busy for only 1.0 % of the time"),
        ("gpu_held_without_process", with_gpus(4, held_idle=1), "1 of 4 GPUs had no process of the job for most of"),
        ("gpu_held_without_process", with_gpus(4, held_idle=3), "3 of 4 GPUs had no process of the job"),
        ("gpu_low", with_gpus(1, mean_utilization=0.1, peak_memory_bytes=GIB), "used up to 1 GiB of GPU memory"),
        (
            "too_many_threads",
            make_summary(program_threads={"a": 9.0, "b": 12.0, "c": 8.0}),
            "b had 12 threads, a had 9",
        ),
        (
            "too_many_threads",
            make_summary(program_threads=MANY),
            "p02 had 22 threads, and 2 more programs exceeded the limit, on",
        ),
        (
            "too_many_threads",
            make_summary(program_threads={"a": 9.0}, mean_running_threads=6.0),
            "on 4 cores. 6 of them were runnable on average.",
        ),
        # Shares of four cores: 1 and 1/4, mean 5/8; eight of fourteen nodes are 57 %.
        ("node_imbalance", with_nodes(4.0, 1.0), "n1 had 25 % of its cores busy, while the mean was 62 %."),
        ("node_imbalance", with_nodes(4.0, 1.0), "1 of 2 nodes did much less than the others"),
        (
            "node_imbalance",
            with_nodes(*[4.0] * 8, *[0.0] * 6),
            "n8 had 0 % of its cores busy, and 1 more node, while the mean was 57 %.",
        ),
        (
            "too_many_nodes",
            make_summary(record={"node_count": 4}),
            "4 nodes with 1 core and 2 GiB of memory each",
        ),
        (
            "too_many_nodes",
            make_summary(record={"node_count": 4}, memory={"requested_bytes": None}),
            "4 nodes with 1 core each. 1 node would have been enough.",
        ),
        (
            "metadata_storm",
            with_io(metadata_operations=1e6),
            "made 1,000,000 file system requests that transfer no data",
        ),
    ],
)
def test_explanation_has_the_numbers_of_the_job(rule: str, summary: JobSummary, expected: str) -> None:
    (explanation,) = (finding.explanation for finding in all_findings(summary) if finding.rule == rule)

    assert expected in explanation


@pytest.mark.parametrize("state", sorted(ENDED_STATES))
@pytest.mark.parametrize(
    ("summary", "submit_line", "line"),
    [
        (make_summary(busy=0.25, cpu={"peak_cores": 1.0}), "sbatch -c4 --mem=8G x", "#SBATCH --cpus-per-task=1"),
        (with_nodes(4.0, 4.0, 0.0), "sbatch -N3 --mem=8G x", "#SBATCH --nodes=2"),
        (with_gpus(2, held_idle=1), "sbatch --gpus=2 --mem=8G x", "#SBATCH --gpus=1"),
    ],
)
def test_findings_suggest_a_smaller_size_where_the_header_has_it(
    summary: JobSummary, submit_line: str, line: str, state: str
) -> None:
    job = replace(summary, record=replace(summary.record, submit_line=submit_line, state=state))
    findings = judge(job)
    made = suggest_resubmission(JobReport(summary=job, made_seconds=0, findings=findings))

    # What others did not let end, or what failed, may have needed all of it later.
    is_representative = state in {"COMPLETED", "TIMEOUT", "CANCELLED"}
    assert is_representative == any(finding.suggestion == line for finding in findings)
    assert is_representative == (made is not None and line in made.lines)


def test_threshold_can_be_set() -> None:
    summary = make_summary(busy=0.7)

    assert ["cpu_idle"] == [finding.rule for finding in judge(summary)]
    assert () == judge(summary, {"cpu_idle.min_busy_ratio": 0.7})


@pytest.mark.parametrize(("busy", "severity"), [(0.2, Severity.CRITICAL), (0.3, Severity.WARNING)])
def test_less_than_a_quarter_of_the_cores_is_critical(busy: float, severity: Severity) -> None:
    assert [severity] == [finding.severity for finding in judge(make_summary(busy=busy))]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (
            "cpu_idle.busy_ratio",
            0.5,
            "unknown threshold 'cpu_idle.busy_ratio'; did you mean 'cpu_idle.min_busy_ratio'?",
        ),
        ("zzz", 0.5, "unknown threshold 'zzz'"),
        ("node_failed.x", 0.5, "unknown threshold 'node_failed.x'"),
        ("cpu_idle.min_busy_ratio", -1, "threshold cpu_idle.min_busy_ratio: -1 is not a number of 0 or more"),
        ("cpu_idle.min_busy_ratio", math.nan, "threshold cpu_idle.min_busy_ratio: nan is not a number of 0 or more"),
        ("cpu_idle.min_busy_ratio", math.inf, "threshold cpu_idle.min_busy_ratio: inf is not a number of 0 or more"),
        ("cpu_idle.min_busy_ratio", True, "threshold cpu_idle.min_busy_ratio: True is not a number of 0 or more"),
        ("cpu_idle.min_busy_ratio", "half", "threshold cpu_idle.min_busy_ratio: 'half' is not a number of 0 or more"),
    ],
)  # fmt: skip
def test_wrong_threshold_is_reported_in_one_sentence(key: str, value: float, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        judge(make_summary(), {key: value})

    assert expected == str(error.value)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_texts_are_sentences(rule: Rule) -> None:
    assert rule.advice.endswith(".")
    assert not rule.title.endswith(".")
    assert {threshold.unit for threshold in rule.thresholds} <= {"ratio", "seconds", "bytes", "count", "per second"}
    assert all(threshold.help.endswith(".") for threshold in rule.thresholds)


AMOUNT = st.none() | st.just(0.0) | st.floats(min_value=1e-6, max_value=1e24) | st.floats(min_value=1e-6, max_value=10)
RATIO = st.floats(min_value=0, max_value=1)
COUNT = st.integers(min_value=0, max_value=5000)
COVERAGE = st.sampled_from([covered(), covered(4), MEASURED_BADLY, Coverage(nodes=0, nodes_measured=0, run_ratio=0.0)])
SHARE = st.builds(UsedShare, requested=AMOUNT, used=AMOUNT, coverage=st.none() | COVERAGE)
NODE = st.builds(
    NodeSummary, node=st.text(max_size=5), cpus=AMOUNT, cpu_seconds=AMOUNT, mean_cores=AMOUNT,
    working_peak_bytes=AMOUNT, limit_bytes=AMOUNT,
    core_seconds=st.dictionaries(st.sampled_from("0123"), st.floats(min_value=0, max_value=1e9)),
)  # fmt: skip
SUMMARY = st.builds(
    JobSummary,
    record=st.builds(
        make_record, state=st.sampled_from(sorted(ENDED_STATES | {"RUNNING", "PENDING"})), cpus=COUNT, node_count=COUNT,
        gres=st.just(()) | st.just((Gres(name="gpu", count=2),)), submit_line=st.just("") | st.just("--mem-per-cpu=1G"),
    ),
    run_seconds=st.just(0.0) | st.floats(min_value=1e-6, max_value=1e8),
    time=SHARE,
    cpu=st.builds(
        CpuSummary, time=SHARE, mean_cores=AMOUNT, peak_cores=AMOUNT, cores_used=st.none() | COUNT,
        idle_tail_seconds=AMOUNT,
    ),
    memory=st.builds(
        MemorySummary, requested_bytes=AMOUNT, limit_bytes=AMOUNT, working_peak_bytes=AMOUNT, slurm_peak_bytes=AMOUNT,
        growth_ratio=AMOUNT, oom_kills=st.none() | COUNT, coverage=COVERAGE,
    ),
    gpu=st.builds(
        GpuSummary, requested=COUNT, mean_utilization=st.none() | RATIO, peak_memory_bytes=AMOUNT,
        held_idle=st.none() | COUNT, coverage=COVERAGE,
    ),
    io=st.builds(
        IoSummary, read_bytes=AMOUNT, write_bytes=AMOUNT, reads=AMOUNT, writes=AMOUNT, peak_open_files=AMOUNT,
        uses_scratch=st.none() | st.booleans(), metadata_operations=AMOUNT,
    ),
    nodes=st.lists(NODE, max_size=4).map(tuple),
    program_threads=st.dictionaries(st.text(max_size=5), st.floats(min_value=0, max_value=1e6), max_size=15),
    mean_running_threads=AMOUNT,
    coverage=COVERAGE,
)  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SUMMARY)
def test_any_job_can_be_checked(summary: JobSummary) -> None:
    findings = judge(summary)

    ranks = [finding.severity.rank for finding in findings]
    assert sorted(ranks) == ranks
    every = [each for finding in findings for each in finding.with_consequences]
    assert len({finding.rule for finding in every}) == len(every)
    matched = {rule.id for rule in RULES if rule.find(summary, DEFAULTS[rule.id]) is not None}
    replaced = {other for rule in RULES if rule.id in matched for other in rule.replaces}
    assert matched - replaced == {finding.rule for finding in every}
    for finding in every:
        assert all(math.isfinite(number) and number >= 0 for number in finding.numbers.values()), finding
        assert finding.explanation.endswith(".")
        assert "nan" not in finding.suggestion
