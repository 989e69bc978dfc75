# SPDX-License-Identifier: Apache-2.0
"""Whatever a job requested, did, and showed of it: its report contradicts neither itself nor what was measured."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurmscope.jobs.charts import make_charts
from slurmscope.jobs.findings import judge
from slurmscope.jobs.heat_maps import make_heat_maps
from slurmscope.jobs.render import contents
from slurmscope.jobs.render.brief import render_brief
from slurmscope.jobs.render.html import render_html
from slurmscope.jobs.render.json import render_json
from slurmscope.jobs.render.text import render_text
from slurmscope.jobs.report import JobReport, RequestedSize, Resubmission
from slurmscope.jobs.resubmission import suggest_resubmission
from slurmscope.jobs.rule import Severity
from slurmscope.jobs.summarize import summarize
from slurmscope.jobs.what_if import OtherRequest, Sufficiency, describe_outcome, predict
from tests.fakes.any_job import MIB, AnyJob, make_any_job

LIMITS = ("COMPLETED", "TIMEOUT")
"""Only such runs show that a time limit is too short."""
MEMORY_OPTIONS = {"mem", "mem-per-cpu", "mem-per-gpu"}
# A time limit may be exceeded: Slurm checks it twice a minute. Growth is a quotient of two amounts, not a share.
NO_SHARE = re.compile(r"growth|crowded_ratio|time\.ratio")
anything = st.integers(0, 2**32).map(lambda seed: make_any_job(Random(seed)))
killed = st.integers(0, 2**32).map(lambda seed: make_any_job(Random(seed), "OUT_OF_MEMORY"))
for_any_job = settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])


def report_of(job: AnyJob) -> JobReport:
    summary = summarize(job.record, job.measured, now_seconds=job.now)
    summary = replace(summary, node_cpus=job.node_cpus, node_memory_bytes=job.node_memory_bytes)
    report = JobReport(
        summary=summary,
        made_seconds=int(job.now),
        findings=judge(summary),
        charts=make_charts(summary, job.measured),
        heat_maps=make_heat_maps(summary, job.measured),
    )
    return replace(report, resubmission=suggest_resubmission(report))


def header_of(report: JobReport) -> Resubmission | None:
    made = report.resubmission
    return made if made is not None and made.changes else None


def changed_options(made: Resubmission) -> set[str]:
    return {change.option for change in made.changes}


def per_node(size: RequestedSize) -> float:
    return (size.memory_bytes or 0.0) / size.nodes


def node_bytes(job: AnyJob) -> float:
    """Return the most memory that can be requested; Slurm takes whole MiB for each core or GPU."""
    shares = max(job.record.cpus or 0, job.record.gpus) / job.record.node_count
    return math.inf if job.node_memory_bytes is None else job.node_memory_bytes - (shares + 1) * MIB


@for_any_job
@given(anything)
def test_numbers_are_finite_and_shares_are_shares(job: AnyJob) -> None:
    for path, number in numbers_in(json.loads(render_json(report_of(job)))):
        assert math.isfinite(number), path
        assert number >= 0, path
        # A process may take a little more than its cores, by the clock of another.
        assert number <= 1.05 or not path.endswith("ratio") or NO_SHARE.search(path), path


def numbers_in(plain: object, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield from numbers_in(value, f"{path}.{key}")
    elif isinstance(plain, list):
        for value in plain:
            yield from numbers_in(value, path)
    elif isinstance(plain, int | float) and not isinstance(plain, bool):
        yield path, plain


@for_any_job
@given(anything)
def test_texts_hold_no_odd_numbers(job: AnyJob) -> None:
    report = report_of(job)
    texts = render_text(report, width=200), render_brief(report), render_html(report).partition("</head>")[2]
    for text in texts:
        assert not re.search(r"\b(nan|inf|None)\b|-\d[\d.]* (%|[KMGT]iB)", text)
        for line in text.splitlines():
            shares = re.findall(r"\b([\d,]+(?:\.\d+)?) %", line)
            assert all(float(share.replace(",", "")) <= 105 for share in shares) or "of 1 min" in line


@for_any_job
@given(anything)
def test_smaller_memory_is_above_what_the_run_needed(job: AnyJob) -> None:
    report = report_of(job)
    made = header_of(report)
    if made is None or not changed_options(made) & MEMORY_OPTIONS or made.suggested.nodes < made.submitted.nodes:
        return
    gets, had = per_node(made.suggested), per_node(made.submitted)

    assert min(job.seen_bytes, node_bytes(job)) <= gets
    # The truth, which nobody measured: advice to request less holds against it.
    assert gets >= min(had, job.need_bytes) * 0.999


@for_any_job
@given(anything)
def test_nothing_is_raised_that_was_not_short(job: AnyJob) -> None:
    report = report_of(job)
    made = header_of(report)
    if made is None:
        return
    before, after, state = made.submitted, made.suggested, job.record.state
    charged = max(job.measured.totals.get("memory_peak", {}).values(), default=0.0)
    was_killed = state == "OUT_OF_MEMORY" or (job.record.exit_signal == 9 and job.seen_bytes > per_node(before))
    was_short = was_killed or max(job.seen_bytes, charged) > 0.89 * per_node(before)
    was_late = state in LIMITS and report.summary.run_seconds > 0.9 * (before.limit_seconds or math.inf)

    assert after.nodes <= before.nodes
    assert after.cpus <= before.cpus
    assert after.gpus <= before.gpus
    # Whole MiB for each core may be a little more.
    cores = after.cpus / after.nodes
    assert was_short or after.nodes < before.nodes or per_node(after) <= per_node(before) + max(cores, 1) * MIB
    assert was_late or (after.limit_seconds or 0) <= (before.limit_seconds or math.inf)


@for_any_job
@given(anything)
def test_time_limit_is_enough_for_the_same_run(job: AnyJob) -> None:
    report = report_of(job)
    made = header_of(report)
    if made is not None and "time" in changed_options(made):
        assert report.summary.run_seconds <= (made.suggested.limit_seconds or math.inf)


@for_any_job
@given(killed)
def test_killed_job_gets_more_memory_than_it_had_and_what_it_would_have_needed(job: AnyJob) -> None:
    report = report_of(job)
    memory, made = report.summary.memory, report.resubmission
    needed = max(memory.expected_bytes or 0.0, job.seen_bytes)
    room = node_bytes(job)
    # More does not help where no node has it, or where a step had a limit of its own.
    if made is None or not made.submitted.memory_bytes or needed > room:
        return
    if per_node(made.submitted) >= 0.9 * room or job.seen_bytes < 0.9 * per_node(made.submitted):
        return

    assert per_node(made.submitted) < per_node(made.suggested)
    assert needed <= per_node(made.suggested)


@for_any_job
@given(anything)
def test_slurm_accepts_the_header(job: AnyJob) -> None:
    made = header_of(report_of(job))
    if made is None:
        return
    lines = {change.option: change.suggested for change in made.changes}
    after = {**{name: text for name, text in job.record.options.items() if name not in lines}, **lines}
    gpus = [name for name in ("gpus", "gpus-per-node") if name in after] + ["gres"] * ("gpu" in after.get("gres", ""))

    assert all(change.submitted != change.suggested for change in made.changes)
    assert len(after.keys() & MEMORY_OPTIONS) <= 1
    assert len(gpus) <= 1
    assert re.fullmatch(r"([1-9]\d*-)?\d\d:\d\d:00", lines.get("time", "01:00:00"))
    memory = [text for name, text in lines.items() if name in MEMORY_OPTIONS]
    assert all(re.fullmatch(r"[1-9]\d*[MG]", text) for text in memory)
    assert 1 <= made.suggested.nodes <= made.suggested.cpus
    assert int(after.get("ntasks", made.suggested.nodes)) >= made.suggested.nodes
    assert per_node(made.suggested) <= max(per_node(made.submitted), job.node_memory_bytes or math.inf) + MIB


@for_any_job
@given(anything)
def test_header_is_worth_something_and_no_sentence_denies_it(job: AnyJob) -> None:
    report = report_of(job)
    made = header_of(report)
    if made is None:
        return
    freed = (made.freed.core_seconds, made.freed.gpu_seconds, made.freed.memory_byte_seconds)

    assert all(amount is None or amount > 0 for amount in freed)
    assert made.submitted != made.suggested
    assert "nothing to change" not in render_text(report) + render_brief(report) + render_html(report)
    assert "needed 0 B" not in render_text(report)


@for_any_job
@given(anything)
def test_what_if_agrees_with_the_header(job: AnyJob) -> None:
    report = report_of(job)
    made = header_of(report)
    if made is None:
        return
    before, after, options = made.submitted, made.suggested, changed_options(made)
    request = OtherRequest(
        cpus=after.cpus if after.cpus != before.cpus else None,
        memory_bytes=per_node(after) if options & MEMORY_OPTIONS else None,
        limit_seconds=after.limit_seconds if "time" in options else None,
        gpus=after.gpus if after.gpus != before.gpus else None,
    )
    outcome = predict(report, request, {})

    if options & MEMORY_OPTIONS and per_node(after) < node_bytes(job):
        assert outcome.memory.verdict is not Sufficiency.TOO_LITTLE, describe_outcome(report, outcome)
    if job.record.state == "COMPLETED":
        assert outcome.time.verdict is not Sufficiency.TOO_LITTLE, describe_outcome(report, outcome)


@for_any_job
@given(anything)
def test_report_has_one_need_of_a_job_on_one_node(job: AnyJob) -> None:
    report = report_of(job)
    memory = report.summary.memory
    if job.record.node_count > 1 or memory.working_peak_bytes is None or job.record.state == "OUT_OF_MEMORY":
        return
    what_if = describe_outcome(report, predict(report, OtherRequest(memory_bytes=1e9), {}))
    header = [change.reason for change in report.resubmission.changes] if report.resubmission else []
    found = [each.explanation for finding in report.findings for each in finding.with_consequences]
    said = re.findall(r"needed (?:at most |at least )?([\d.,]+ [KMGT]?i?B)", " ".join([*what_if, *header, *found]))
    rows = [row.text for row in contents.memory_rows(report) if row.label.startswith("Needed")]

    assert len({*said, *rows}) == 1


@for_any_job
@given(anything)
def test_gauge_and_table_of_memory_name_the_same_need(job: AnyJob) -> None:
    report = report_of(job)
    gauge = next(gauge.text for gauge in contents.gauges(report) if gauge.label == "Memory")
    needed = next(row.text for row in contents.memory_rows(report) if row.label.startswith("Needed"))

    # After an OOM kill, the kernel's peak of other nodes counts as well.
    if report.summary.memory.working_peak_bytes is not None and job.record.state != "OUT_OF_MEMORY":
        assert re.match(rf"{re.escape(needed)}( of | \(|$)", gauge)


@for_any_job
@given(anything)
def test_findings_say_what_happened(job: AnyJob) -> None:
    report = report_of(job)
    found = {each.rule: each for finding in report.findings for each in finding.with_consequences}
    texts = {rule: finding.explanation for rule, finding in found.items()}

    # No thread of these jobs waited for a core, and srun only waits for the others.
    assert "srun" not in texts.get("too_many_threads", "")
    assert "too_many_threads" not in found or found["too_many_threads"].severity is Severity.INFO
    assert ("completed all the same" in texts.get("oom_kill", "")) <= (job.record.state == "COMPLETED")
    busy = [value for series in job.measured.curves.get("cpu", ()) for value in series.values]
    assert any(busy) or "did nearly all of the work" not in texts.get("cpu_idle", "")
    shared = re.search(r"(\d+) of (\d+) nodes? did much less", texts.get("node_imbalance", ""))
    assert shared is None or int(shared[1]) < int(shared[2])


@for_any_job
@given(anything)
def test_what_was_not_measured_is_unknown(job: AnyJob) -> None:
    report = report_of(job)
    io, memory = report.summary.io, report.summary.memory
    read = {
        "read": io.read_bytes, "reads": io.reads, "write": io.write_bytes, "writes": io.writes,
        "oom_kills": memory.oom_kills, "memory_peak": memory.charged_peak_bytes, "memory_limit": memory.limit_bytes,
        "gpu": report.summary.gpu.mean_utilization, "cpu_queue": report.summary.cpu.queue_ratio,
    }  # fmt: skip
    assert [] == [name for name, value in read.items() if not job.measured.totals.get(name) and value is not None]
    assert memory.working_peak_bytes is None or job.measured.curves.get("memory_anon")
    assert report.summary.cpu.peak_cores is None or job.measured.curves.get("cpu") or "busy_peak" in job.measured.totals


@pytest.mark.parametrize("seed", range(3))
def test_jobs_are_of_many_kinds(seed: int) -> None:
    """Notice a maker of jobs that makes nothing to check."""
    reports = [report_of(make_any_job(Random(1000 * seed + number))) for number in range(300)]
    rules = {each.rule for report in reports for finding in report.findings for each in finding.with_consequences}
    options = {option for report in reports if (made := header_of(report)) for option in changed_options(made)}

    assert {"oom_kill", "memory_over_requested", "memory_near_limit", "cpu_idle", "timed_out"} <= rules
    assert {"mem", "mem-per-cpu", "time"} <= options
    assert 50 < sum(header_of(report) is not None for report in reports) < 250
