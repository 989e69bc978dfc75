# SPDX-License-Identifier: Apache-2.0
"""What is wanted is recorded, from samples, families and pages; what is not good is left out and counted."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slurmscope.core.errors import MalformedAnswer
from slurmscope.core.settings import Section
from slurmscope.jobs.queries import TOTALS
from slurmscope.jobs.series import Aggregation, JobSpan, SeriesQuery
from slurmscope.metrics.family import Family, Histogram, counter, gauge, histogram
from slurmscope.recorder.recorder import (
    LABELS_LIMIT_CHARACTERS,
    PROFILED_JOB_SERIES_LIMIT,
    PROFILED_SERIES_LIMIT,
    TRACED_JOB_SERIES_LIMIT,
    TRACED_SERIES_LIMIT,
    Recorder,
)
from slurmscope.recorder.settings import RECORDED_METRICS, RecorderSettings
from tests.fakes.recorded_samples import CPU, INTERVAL, JOB, MEMORY, START, make_recorder, sample

NODES = SeriesQuery(metric=CPU, how=Aggregation.MAX)
THREADS = TOTALS["traced_threads"]


def totals(recorder: Recorder, wanted: SeriesQuery = NODES, job: int = JOB) -> dict[tuple[str, ...], float]:
    spans = [JobSpan(job, START, START + 86400)]
    return dict(recorder.series().read_totals(wanted, spans, until=math.inf).by_job.get(job, {}))


def page(value: str, node: str = "") -> str:
    return f'# TYPE {CPU} counter\n{CPU}{{slurm_job="{JOB}",slurm_node="{node}"}} {value}\n'


def test_metric_that_nobody_asks_for_is_not_kept(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(1.0), sample(1.0, "node_load1")])
        recorder.record_page(START + 15, page("2") + 'node_load1{slurm_job="4711"} 7\n', nodes=("n1",))
        recorder.record_families(START + 30, [Family(gauge("node_load1", "Load."), {(): 1.0})])
        assert 2 == recorder.recorded
        assert {} == totals(recorder, SeriesQuery(metric="node_load1", how=Aggregation.MAX))


def test_every_metric_of_the_reports_is_recorded() -> None:
    assert {"jobs_cpu_seconds_total", "jobs_memory_peak_bytes", "jobs_gpu_held_idle"} <= RECORDED_METRICS


def test_same_series_from_samples_families_and_pages_is_one(tmp_path: Path) -> None:
    family = Family(counter(CPU, "CPU.", "slurm_job", "slurm_node"), {(str(JOB), "n1"): 20.0})
    pairs = (("slurm_node", "n1"), ("slurm_job", str(JOB)))
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(10.0)])
        recorder.record(START + 10, [(CPU, pairs, 15.0)])
        recorder.record_families(START + 15, [family])
        recorder.record_families(START + 20, [Family(family.metric, [((str(JOB), "n1"), 25.0)])])
        recorder.record_page(START + 30, page("30"), nodes=("n1",))
        recorder.record_page(START + 45, page("40"), nodes=("n1",))
        mean = totals(recorder, SeriesQuery(metric=CPU, how=Aggregation.MEAN))
    assert {("n1",): (10 + 15 + 20 + 25 + 30 + 40) / 6} == mean


def test_agent_of_several_nodes_names_them_itself(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record_page(START, page("1", node="virtual7"), nodes=("n1", "virtual7"))
        recorder.record_page(START, page("2"), nodes=("n2",))
        assert {("virtual7",): 1.0, ("n2",): 2.0} == totals(recorder)


def test_agent_reports_its_own_node_only(tmp_path: Path) -> None:
    both = page("900", node="n1") + page("1").partition("\n")[2]
    with make_recorder(tmp_path) as recorder:
        assert 0 == recorder.record_page(START, page("5", node="n1"), nodes=("n1",))
        assert 1 == recorder.record_page(START + 1, page("900", node="n1"), nodes=("rogue",))
        assert 1 == recorder.record_page(START + 2, both, nodes=("rogue",))
        assert {("n1",): 5.0, ("rogue",): 1.0} == totals(recorder)
        assert {"foreign": 2} == +recorder.dropped


def test_agent_reports_nothing_about_the_cluster(tmp_path: Path) -> None:
    wanted = SeriesQuery(metric="slurm_jobs", how=Aggregation.MAX, each=("state",), by=("state",))
    with make_recorder(tmp_path) as recorder:
        assert 1 == recorder.record_page(START, 'slurm_jobs{state="RUNNING"} 9\n', nodes=("rogue",))
        assert () == recorder.series().read_cluster(wanted, START, START + 15, points=1, until=math.inf)


def test_histograms_are_passed_over(tmp_path: Path) -> None:
    family = Family(histogram(CPU, "CPU.", buckets=(1.0,)), {(): Histogram((1, 2), 5.0)})
    with make_recorder(tmp_path) as recorder:
        recorder.record_families(START, [family])
        assert 0 == recorder.recorded


def test_page_is_read_as_another_parser_reads_it(tmp_path: Path) -> None:
    lines = [
        f'{CPU}{{slurm_job="4711",slurm_node="a b"}} 1.5e3',
        f'{CPU}{{slurm_job="4711",slurm_node="q\\"uo\\\\te",}} 2',
        f'  {CPU}{{ slurm_job = "4711" , slurm_node="tab" }}\t3',
        f'{CPU}{{slurm_job="4711",slurm_node="stamp"}} 4 1790000000000',
        f'{CPU}{{slurm_job="4711",slurm_node="new\\nline"}} 5',
        "",
        "# a remark of no meaning 5",
        f"{CPU}_created 9",
    ]
    text = "\n".join(lines) + "\n"
    samples = [found for family in text_string_to_metric_families(text) for found in family.samples]
    oracle = {(found.labels["slurm_node"],): found.value for found in samples if found.labels}
    assert 5 == len(oracle)
    with make_recorder(tmp_path) as recorder:
        for turn in range(3):  # the first time lines are met, then they are known
            recorder.record_page(START + turn, text, nodes=tuple(node for (node,) in oracle))
        assert oracle == totals(recorder)
        assert 15 == recorder.recorded


@pytest.mark.parametrize("number", ["x", "1 2 3", "", "1e", "0x10"])
@pytest.mark.parametrize("is_known", [False, True])
def test_page_that_breaks_the_format_is_not_recorded_at_all(tmp_path: Path, number: str, is_known: bool) -> None:
    other = f'{MEMORY}{{slurm_job="{JOB}"}} 5\n'
    with make_recorder(tmp_path) as recorder:
        if is_known:
            recorder.record_page(START, other + page("1"), nodes=("n1",))
        before = recorder.recorded
        with pytest.raises(MalformedAnswer, match="line 3"):
            recorder.record_page(START + 15, other + page(number), nodes=("n1",))
        assert before == recorder.recorded
        recorder.record_page(START + 30, other + page("2"), nodes=("n1",))
        assert before + 2 == recorder.recorded


def test_cut_page_is_not_recorded(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        with pytest.raises(MalformedAnswer, match=r"line 2 .* truncated"):
            recorder.record_page(START, page("12345")[:-3], nodes=("n1",))
        recorder.record_page(START, "", nodes=("n1",))
        assert 0 == recorder.recorded


def test_numbers_that_are_none_are_left_out_and_counted(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(math.nan), sample(math.inf, node="n2"), sample(-math.inf, node="n3")])
        recorder.record_page(START, page("NaN", node="n4"), nodes=("n4",))
        recorder.record(START, [sample(0.0, node="n5")])
        assert {("n5",): 0.0} == totals(recorder)
        assert {"not_finite": 4} == +recorder.dropped


def test_second_sample_of_one_moment_is_left_out(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record(START + 30, [sample(1.0), sample(5.0)])
        recorder.record(START + 30, [sample(6.0)])
        recorder.record(START + 15, [sample(7.0)])
        assert {("n1",): 1.0} == totals(recorder)
        assert {"late": 3} == +recorder.dropped
        assert 1 == recorder.recorded


def test_clock_that_was_set_back_does_not_stop_the_recording(tmp_path: Path) -> None:
    mean = SeriesQuery(metric=CPU, how=Aggregation.MEAN)
    with make_recorder(tmp_path) as recorder:
        recorder.record(START + 3600, [sample(1.0)])
        recorder.record(START + 3615, [sample(2.0)])
        for turn in range(300):  # catches up with what was recorded before
            recorder.record(START + 15 * turn, [sample(10.0)])
        assert {("n1",): 10.0} == totals(recorder, mean)
        assert 302 == recorder.recorded


def test_more_series_than_the_limit_are_left_out_and_counted(tmp_path: Path) -> None:
    chosen = RecorderSettings(file=tmp_path / "recorder.db")
    with Recorder(chosen, series_limit=2) as recorder:
        for turn in range(2):
            recorder.record(START + turn, [sample(1.0, node=f"n{number}") for number in range(5)])
        assert {("n0",), ("n1",)} == set(totals(recorder))
        assert {"too_many": 6} == +recorder.dropped


def test_agent_that_brings_ever_new_series_keeps_out_no_other(tmp_path: Path) -> None:
    chosen = RecorderSettings(file=tmp_path / "recorder.db")
    rogue = tuple(f"x{turn}{number}" for turn in range(4) for number in range(2))
    with Recorder(chosen, new_series_limit=3) as recorder:
        for turn in range(4):
            sent = page("1", f"x{turn}0") + page("1", f"x{turn}1").partition("\n")[2]
            recorder.record_page(START + turn, sent, nodes=rogue, source="rogue:9798")
        recorder.record_page(START + 9, page("1", "n2"), nodes=("n2",), source="n2:9798")
        assert {("x00",), ("x01",), ("x10",), ("n2",)} == set(totals(recorder))
        assert {"too_many": 5} == +recorder.dropped


def test_agent_may_bring_new_series_again_when_old_ones_were_packed(tmp_path: Path) -> None:
    chosen = RecorderSettings(file=tmp_path / "recorder.db")
    with Recorder(chosen, new_series_limit=1) as recorder:
        for hour in range(3):
            recorder.record_page(START + 7200 * hour, page("1", f"n{hour}"), nodes=("n0", "n1", "n2"), source="n:9798")
        assert {} == +recorder.dropped


def traced_page(pids: Iterable[int], job: int = JOB, host: str = "n1") -> str:
    labels = f'slurm_job="{job}",slurm_node="{host}",rank="0",step="0",command="a"'
    return "".join(f'{THREADS.metric}{{{labels},pid="{pid}"}} {pid}\n' for pid in pids)


def test_traced_processes_are_recorded_by_job_and_node(tmp_path: Path) -> None:
    labels = ("slurm_job", "slurm_node", "pid", "rank", "step", "command")
    family = Family(gauge(THREADS.metric, "Threads.", *labels), {(str(JOB), "n2", "9", "1", "0", "a"): 3.0})
    with make_recorder(tmp_path) as recorder:
        recorder.record_page(START, traced_page([5, 6]), nodes=("n1",))
        recorder.record_families(START, [family])
        assert 1 == recorder.record_page(START + 1, traced_page([7], host="n9"), nodes=("n1",))
        assert 1 == recorder.record_page(START + 2, traced_page([7], job=0), nodes=("n1",))
        found = totals(recorder, THREADS)
        chosen = totals(recorder, replace(THREADS, among=(("pid", ("6", "9")),)))
    assert {("n1", "0", "0", "5", "a"): 5.0, ("n1", "0", "0", "6", "a"): 6.0, ("n2", "0", "1", "9", "a"): 3.0} == found
    assert {("n1", "0", "0", "6", "a"): 6.0, ("n2", "0", "1", "9", "a"): 3.0} == chosen


def test_job_with_ever_new_traced_processes_keeps_out_no_other(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record_page(START, traced_page(range(TRACED_JOB_SERIES_LIMIT + 5)), nodes=("n1",))
        recorder.record_page(START + 1, traced_page([1], job=JOB + 1) + page("1"), nodes=("n1",))
        assert (TRACED_JOB_SERIES_LIMIT, 1, 1) == (
            len(totals(recorder, THREADS)), len(totals(recorder, THREADS, JOB + 1)), len(totals(recorder))
        )  # fmt: skip
        assert {"too_many": 5} == +recorder.dropped


def test_traced_processes_of_many_jobs_keep_out_no_measurement_of_the_agent(tmp_path: Path) -> None:
    jobs = TRACED_SERIES_LIMIT // TRACED_JOB_SERIES_LIMIT + 1
    sent = "".join(traced_page(range(TRACED_JOB_SERIES_LIMIT), JOB + number) for number in range(jobs))
    with make_recorder(tmp_path) as recorder:
        recorder.record_page(START, sent + page("1"), nodes=("n1",))
        assert {"too_many": TRACED_JOB_SERIES_LIMIT} == +recorder.dropped
        assert {("n1",): 1.0} == totals(recorder)


def test_tasks_of_ever_new_profiled_steps_keep_out_no_other(tmp_path: Path) -> None:
    def profiled(job: int, count: int) -> str:
        metric = TOTALS["profiled_cpu"].metric
        labels = f'slurm_job="{job}",slurm_node="n1",task="0"'
        return "".join(f'{metric}{{{labels},step="{step}"}} 1\n' for step in range(count))

    with make_recorder(tmp_path) as recorder:
        recorder.record_page(START, profiled(JOB, PROFILED_JOB_SERIES_LIMIT + 5), nodes=("n1",))
        assert {"too_many": 5} == +recorder.dropped
        others = PROFILED_SERIES_LIMIT - PROFILED_JOB_SERIES_LIMIT
        recorder.record_page(START + 1, profiled(JOB + 1, others) + profiled(JOB + 2, 1) + page("1"), nodes=("n1",))
        assert {"too_many": 6} == +recorder.dropped
        assert (others, 1) == (len(totals(recorder, TOTALS["profiled_cpu"], JOB + 1)), len(totals(recorder)))


def test_series_with_endless_labels_is_left_out(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(1.0, program="x" * LABELS_LIMIT_CHARACTERS), sample(2.0, program="x")])
        recorder.record_page(
            START,
            page("1").replace("slurm_node", "x" * LABELS_LIMIT_CHARACTERS).replace('=""', '="1"'),
            nodes=("n1",),
        )
        assert {("n1",): 2.0} == totals(recorder)
        assert {"too_long": 2} == +recorder.dropped


@pytest.mark.parametrize("job", ["", "x", "12_3", "٣", "9" * 40])
def test_text_that_is_no_job_number_belongs_to_no_job(tmp_path: Path, job: str) -> None:
    wanted = SeriesQuery(metric=CPU, how=Aggregation.MAX, each=("slurm_job",), by=("slurm_job",))
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [(CPU, {"slurm_job": job}, 1.0)])
        (curve,) = recorder.series().read_cluster(wanted, START, START + 15, points=1, until=math.inf)
    assert (job,) == curve.labels


def test_hostile_label_values_come_back_unchanged(tmp_path: Path) -> None:
    program = "'; DROP TABLE slabs; -- \" \\ \n \0 \u202e \ud800"
    wanted = SeriesQuery(metric="jobs_program_threads", how=Aggregation.MAX, each=("program",), by=("program",))
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(1.0, "jobs_program_threads", program=program)])
    with make_recorder(tmp_path) as recorder:
        assert {(program,): 1.0} == totals(recorder, wanted)


def test_threads_read_while_one_records(tmp_path: Path) -> None:
    """Packing must never hide a sample from a reader nor show it twice."""
    counts: list[list[float]] = [[], [], []]
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(1.0)])
        has_ended = threading.Event()

        def read(mine: list[float]) -> None:
            while not has_ended.is_set():
                # The mean of the numbers from 1 to n tells n.
                mine.append(2 * totals(recorder, SeriesQuery(metric=CPU, how=Aggregation.MEAN))[("n1",)] - 1)

        threads = [threading.Thread(target=read, args=(mine,)) for mine in counts]
        for thread in threads:
            thread.start()
        for turn in range(1, 80):  # a period is over every fourth time
            recorder.record(START + 1000 * turn, [sample(1.0 + turn)])
        has_ended.set()
        for thread in threads:
            thread.join(30)
    for mine in counts:
        assert mine == sorted(mine)
        assert set(mine) <= set(range(1, 81))


def test_size_setting_is_at_least_what_is_new() -> None:
    parse = next(s.parse for s in Section(name="recorder", type=RecorderSettings).settings() if s.metavar == "SIZE")

    assert 1 << 30 == parse("1G")
    with pytest.raises(ValueError, match="less than the minimum of 64MiB"):
        parse("1M")


def test_default_interval_is_that_of_the_tests() -> None:
    assert INTERVAL == RecorderSettings().interval
