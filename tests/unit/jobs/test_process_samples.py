# SPDX-License-Identifier: Apache-2.0
"""Check the summary of traced processes against examples that are worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from slurmscope.jobs.charts import AGENTS, TRACED, make_charts
from slurmscope.jobs.process_samples import MAX_PROCESSES, label_processes
from slurmscope.jobs.processes import ProcessSummary, TraceDifference, TraceSummary
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import Chart
from slurmscope.jobs.series import Measured, Series
from slurmscope.jobs.summarize import summarize
from tests.fakes.measured import curve, measure_nodes
from tests.fakes.reports import START, make_record

MIB = float(1 << 20)
NOW = START + 10_000.0
RANK_0: tuple[str, ...] = ("n1", "0", "0", "100", "solver")
RANK_1: tuple[str, ...] = ("n1", "0", "1", "101", "solver")
RANK_2: tuple[str, ...] = ("n2", "0", "2", "102", "solver")
ON_TWO_NODES = make_record(nodes=("n1", "n2"), node_count=2, cpus=8, steps=())


def traces_of(record: JobRecord, measured: Measured) -> TraceSummary:
    return summarize(record, measured, now_seconds=NOW).traces


def trace(
    cpu: Mapping[tuple[str, ...], float],
    *,
    cores: Mapping[str, float] | None = None,
    seconds: float = 7200.0,
    node_memory: Mapping[str, float] | None = None,
    agent_memory: float = 100 * MIB,
) -> Measured:
    """Trace processes with this CPU time beside agents that measured so many busy cores."""
    agents = measure_nodes(dict(cores or {}), seconds=seconds, memory_bytes=agent_memory / 1.1)
    by_node = tuple(curve((node,), value, last=seconds) for node, value in (node_memory or {}).items())
    return Measured(
        curves={**agents.curves, "traced_memory_node": by_node}, totals={**agents.totals, "traced_cpu": dict(cpu)}
    )


def test_job_without_traces_has_none() -> None:
    assert TraceSummary() == traces_of(make_record(), measure_nodes({"n1": 2.0}))


def test_processes_are_ordered_by_cpu_time_and_have_their_own_numbers() -> None:
    measured = Measured(
        totals={
            "traced_cpu": {RANK_0: 10.0, RANK_1: 20.0},
            "traced_memory": {RANK_0: 3e9, RANK_1: 1e9},
            "traced_threads": {RANK_0: 4.0},
            "traced_read": {RANK_1: 5e6},
            "traced_write": {RANK_1: 0.0},
        }
    )
    first, second = traces_of(make_record(), measured).processes

    assert ("n1", "0", "1", "101", "solver") == (first.node, first.step, first.rank, first.pid, first.command)
    assert (20.0, 1e9, None, 5e6, 0.0) == (
        first.cpu_seconds, first.peak_memory_bytes, first.peak_threads, first.read_bytes, first.write_bytes,
    )  # fmt: skip
    assert (10.0, 4.0, None) == (second.cpu_seconds, second.peak_threads, second.read_bytes)


def test_sender_without_cpu_time_comes_last_and_is_ordered_by_memory() -> None:
    old, older = ("n1", "", "", "7", ""), ("n1", "", "", "8", "")
    measured = Measured(totals={"traced_cpu": {RANK_0: 0.0}, "traced_memory": {old: 1e6, older: 2e6, RANK_0: 1.0}})
    found = traces_of(make_record(), measured).processes

    assert [("100", 0.0), ("8", None), ("7", None)] == [(process.pid, process.cpu_seconds) for process in found]


def test_number_of_processes_is_bounded_and_others_are_counted() -> None:
    many: dict[tuple[str, ...], float] = {("n1", "0", str(rank), str(rank), "mpi"): float(rank) for rank in range(500)}
    found = traces_of(make_record(), Measured(totals={"traced_cpu": many}))

    assert [str(499 - place) for place in range(MAX_PROCESSES)] == [process.rank for process in found.processes]
    assert 500 - MAX_PROCESSES == found.others


def test_process_on_no_node_of_the_job_is_left_out() -> None:
    foreign = ("n9", "0", "0", "100", "solver")

    assert () == traces_of(make_record(), Measured(totals={"traced_cpu": {foreign: 5.0}})).processes


# The agent measured 2 cores for 7,200 s: 14,400 s of CPU time, of which a tenth is 1,440 s.
@pytest.mark.parametrize(
    ("traced_seconds", "is_different"), [(14_400.0, False), (12_961.0, False), (12_959.0, True), (15_841.0, True)]
)
def test_cpu_time_disagrees_beyond_a_tenth(traced_seconds: float, is_different: bool) -> None:
    cpu = {RANK_0: traced_seconds / 2, RANK_1: traced_seconds / 2}
    found = traces_of(make_record(), trace(cpu, cores={"n1": 2.0})).differences

    expected = TraceDifference(quantity="cpu_seconds", traced=traced_seconds, measured=14_400.0)
    assert ((expected,) if is_different else ()) == found


def test_short_run_disagrees_beyond_a_minute_of_its_use() -> None:
    # 2 cores for 150 s are 300 s; a minute of them is 120 s.
    record = make_record(end_seconds=START + 150)
    measured = trace({RANK_0: 181.0}, cores={"n1": 2.0}, seconds=150.0)
    beyond = trace({RANK_0: 179.0}, cores={"n1": 2.0}, seconds=150.0)

    assert () == traces_of(record, measured).differences
    assert (TraceDifference(quantity="cpu_seconds", traced=179.0, measured=300.0),) == (
        traces_of(record, beyond).differences
    )


def test_seconds_without_work_are_no_difference() -> None:
    idle = trace({RANK_0: 1.0}, cores={"n1": 0.001})

    assert () == traces_of(make_record(), idle).differences


def test_only_nodes_that_the_agents_measured_are_compared() -> None:
    cpu = {RANK_0: 14_400.0, RANK_2: 14_400.0}

    assert () == traces_of(ON_TWO_NODES, trace(cpu, cores={"n1": 2.0})).differences
    assert () == traces_of(ON_TWO_NODES, trace(cpu)).differences


# The agent measured 400 MiB on each of two nodes, of which a quarter is 200 MiB.
@pytest.mark.parametrize(("second", "is_different"), [(599, False), (601, True), (201, False), (199, True)])
def test_memory_disagrees_beyond_a_quarter(second: float, is_different: bool) -> None:
    cpu = {RANK_0: 14_400.0, RANK_2: 14_400.0}
    measured = trace(
        cpu,
        cores={"n1": 2.0, "n2": 2.0},
        node_memory={"n1": 400 * MIB, "n2": second * MIB},
        agent_memory=400 * MIB,
    )
    found = traces_of(ON_TWO_NODES, measured).differences

    assert (["memory_bytes"] if is_different else []) == [one.quantity for one in found]
    assert not found or (found[0].traced, found[0].measured) == pytest.approx(((400 + second) * MIB, 800 * MIB))


def test_little_memory_is_no_difference() -> None:
    measured = trace({RANK_0: 14_400.0}, cores={"n1": 2.0}, node_memory={"n1": 70 * MIB}, agent_memory=10 * MIB)

    assert () == traces_of(make_record(), measured).differences


def charts_of(record: JobRecord, measured: Measured) -> dict[str, Chart]:
    made = make_charts(summarize(record, measured, now_seconds=NOW), measured)
    return {chart.name: chart for chart in made if chart.name.startswith("traced_")}


def with_curves(**curves: tuple[Series, ...]) -> Measured:
    agents = measure_nodes({"n1": 2.0, "n2": 1.0})
    totals: dict[str, Mapping[tuple[str, ...], float]] = {
        **agents.totals,
        "traced_cpu": {RANK_0: 9.0, RANK_1: 8.0},
        "traced_memory": {("n1", "", "", "7", ""): 1.0},
    }
    return Measured(curves={**agents.curves, **curves}, totals=totals)


def last(chart: Chart) -> dict[str, float | None]:
    return {line.label: line.values[-1] for line in chart.lines}


def test_charts_have_a_line_for_each_process() -> None:
    measured = with_curves(
        traced_cpu=(curve(RANK_0, 0.5), curve(RANK_1, 0.25), curve(("n1", "0", "9", "9", "other"), 9.0)),
        traced_memory=(curve(RANK_0, 5e6),),
    )
    charts = charts_of(ON_TWO_NODES, measured)

    assert {"rank 0: solver on n1": 0.5, "rank 1: solver on n1": 0.25} == last(charts["traced_cpu"])
    assert {"rank 0: solver on n1": 5e6} == last(charts["traced_memory"])
    assert {"traced_cpu", "traced_memory"} == charts.keys()


def test_sum_of_processes_is_drawn_beside_that_of_the_agents() -> None:
    measured = with_curves(
        traced_cpu_node=(curve(("n1",), 0.75), curve(("n2",), 0.5, last=3600.0)),
        traced_memory_node=(curve(("n2",), 7e6),),
    )
    charts = charts_of(ON_TWO_NODES, measured)

    # The second node has no traced process in the second half.
    assert [1.25, 0.75] == [charts["traced_cpu_node"].lines[0].values[place] for place in (0, -1)]
    assert {TRACED: 0.75, AGENTS: 3.0} == last(charts["traced_cpu_node"])
    assert {TRACED: 7e6, AGENTS: 2.2e9} == last(charts["traced_memory_node"])


def test_sum_without_agents_has_no_chart() -> None:
    measured = Measured(curves={"traced_cpu_node": (curve(("n1",), 1.0),)}, totals={"traced_cpu": {RANK_0: 9.0}})

    assert {} == charts_of(make_record(), measured)


def test_cores_that_the_sender_states_are_drawn_where_it_sends_no_cpu_time() -> None:
    measured = with_curves(
        traced_cpu=(curve(RANK_0, 0.5),), traced_cores=(curve(RANK_0, 9.0), curve(("n1", "", "", "7", ""), 0.75))
    )

    assert {"rank 0: solver on n1": 0.5, "process on n1": 0.75} == last(charts_of(ON_TWO_NODES, measured)["traced_cpu"])


def test_gaps_are_gaps_of_the_sums() -> None:
    measured = with_curves(
        traced_memory_node=(curve(("n1",), 5e6, first=3600.0),),
        memory_anon=(curve(("n1",), 1e6, last=5400.0), curve(("n2",), 1e6)),
        memory_shared=(),
    )
    traced, agents = charts_of(ON_TWO_NODES, measured)["traced_memory_node"].lines

    assert (None, 5e6) == (traced.values[0], traced.values[-1])
    assert (2e6, None) == (agents.values[0], agents.values[-1])


def test_processes_with_the_same_name_are_told_apart() -> None:
    def process(step: str, rank: str, pid: str) -> ProcessSummary:
        return ProcessSummary(node="n1", step=step, rank=rank, pid=pid, command="a")

    same = [process("0", "0", "5"), process("1", "0", "6"), process("", "", "7"), process("", "", "8")]
    assert [
        "rank 0: a on n1 (step 0, PID 5)", "rank 0: a on n1 (step 1, PID 6)", "a on n1 (PID 7)", "a on n1 (PID 8)",
    ] == list(label_processes(same).values())  # fmt: skip
