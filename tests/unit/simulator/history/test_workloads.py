# SPDX-License-Identifier: Apache-2.0
"""Check that the workload of a simulated job holds together at every moment."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.tres import Gres
from slurmscope.jobs.queries import CURVES, TOTALS
from slurmscope.simulator.history.workload_kinds import WorkloadKind, make_workload
from slurmscope.simulator.history.workload_series import METRICS
from slurmscope.simulator.history.workloads import NodeWorkload, ProgramKind, Work, Workload
from tests.fakes.reports import GIB, make_record

COUNTERS = [*(name for name in METRICS if name.endswith("_total")), "jobs_memory_peak_bytes"]


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Workload, float]:
    """Draw the workload of a job of any kind and size, and its length."""
    kind = draw(st.sampled_from(WorkloadKind))
    nodes = draw(st.integers(1, 4))
    cpus = draw(st.integers(1, 16))
    gpus = draw(st.integers(1, 4)) if kind.value.startswith("gpu") else 0
    record = make_record(
        draw(st.integers(1, 10**7)),
        nodes=tuple(f"n{number}" for number in range(nodes)),
        node_count=nodes,
        cpus=nodes * cpus,
        memory_bytes=draw(st.integers(64 << 20, 512 * GIB)),
        gres=(Gres(name="gpu", count=nodes * gpus),) if gpus else (),
    )
    length = draw(st.floats(5, 10**6))
    return make_workload(record, kind, length_seconds=length, program=draw(st.sampled_from(ProgramKind))), length


shares = st.integers(0, 1500).map(lambda thousandths: thousandths / 1000)
moments = st.lists(shares, min_size=2, max_size=8).map(sorted)


def values_at(metric: str, node: NodeWorkload, at: float) -> dict[tuple[str, ...], float]:
    """Return what one metric says at a moment."""
    return dict(METRICS[metric].values_at(node, at))


def only(metric: str, node: NodeWorkload, at: float) -> float:
    """Return the one number of a metric without further labels."""
    return values_at(metric, node, at)[()]


@given(workloads(), moments)
def test_counters_never_fall(drawn: tuple[Workload, float], parts: list[float]) -> None:
    workload, length = drawn
    for node in workload.nodes:
        for metric in COUNTERS:
            for earlier, later in pairwise(parts):
                before, after = values_at(metric, node, earlier * length), values_at(metric, node, later * length)
                # An error of a GPU has a counter from then on.
                assert before.keys() == after.keys() or metric == "jobs_gpu_faults_total"
                assert before.keys() <= after.keys()
                assert all(before[labels] <= after[labels] * (1 + 1e-9) for labels in before), metric


@given(workloads(), shares)
def test_parts_add_up_to_the_whole(drawn: tuple[Workload, float], part: float) -> None:
    workload, length = drawn
    for node in workload.nodes:
        at = part * length
        total = only("jobs_cpu_seconds_total", node, at)
        user, system = (only(f"jobs_cpu_{mode}_seconds_total", node, at) for mode in ("user", "system"))
        assert math.isclose(total, user + system, abs_tol=1e-6)
        cores = values_at("jobs_cpu_core_seconds_total", node, at)
        assert not cores or math.isclose(total, math.fsum(cores.values()), abs_tol=1e-6)
        states = values_at("jobs_threads", node, at)
        assert node.threads.count == pytest.approx(math.fsum(states.values()))


@given(workloads(), shares)
def test_nothing_is_used_that_a_job_does_not_have(drawn: tuple[Workload, float], part: float) -> None:
    workload, length = drawn
    for node in workload.nodes:
        at = part * length
        limit = only("jobs_memory_limit_bytes", node, at)
        charged = only("jobs_memory_peak_bytes", node, at)
        anon, shared = only("jobs_memory_anon_bytes", node, at), only("jobs_memory_shmem_bytes", node, at)
        assert 0 <= anon + shared <= charged * (1 + 1e-9)
        assert charged <= max(limit, 40 << 20) * (1 + 1e-9)
        assert only("jobs_cpu_seconds_total", node, at) <= len(node.work.cores) * at * (1 + 1e-9) + 1e-6
        assert 0 <= values_at("jobs_gpu_utilization_ratio", node, at).get((), 0.0) <= 1


def test_cpu_time_is_the_integral_of_the_load() -> None:
    """The oracle adds up the load in small steps."""
    work = Work(cores=(1.0,), dip_ratio=0.6, period_seconds=300.0, stop_seconds=700.0)
    step = 0.05
    summed = math.fsum(work.load((index + 0.5) * step) * step for index in range(int(1000 / step)))
    assert summed == pytest.approx(work.done_seconds(1000.0), rel=1e-4)


def test_busy_cores_are_those_of_the_moment() -> None:
    (node,) = make_workload(make_record(), WorkloadKind.GOOD, length_seconds=1000).nodes
    node = replace(node, work=Work(cores=(1.0, 0.5), dip_ratio=0.0, stop_seconds=700.0))
    assert 1.5 == only("jobs_busy_cores", node, 600.0)
    assert 0.0 == only("jobs_busy_cores", node, 701.0)


def test_every_metric_that_reports_ask_for_is_told() -> None:
    # Nothing is profiled in the simulated cluster, its GPUs have no NVLink, and its nodes no networks.
    queries = [query for queries in (CURVES, TOTALS) for query in queries.values() if not query.is_foreign]
    wanted = {query.metric for query in queries if not query.metric.startswith("slurm_profile_")}
    # Its GPUs count the work of each job. Jobs neither hang, wait for a core nor swap,
    # have no CPU limit, and end on all nodes at once.
    absent = {
        "jobs_cpu_throttled_seconds_total",
        "jobs_gpu_counters_unavailable",
        "jobs_gpu_nvlink_received_bytes_total",
        "jobs_gpu_nvlink_transmitted_bytes_total",
        "jobs_held_process_seconds",
        "jobs_info",
        "jobs_memory_refaults_total",
        "jobs_network_transmit_bytes_total",
        "jobs_run_queue_wait_seconds_total",
    }
    assert wanted == set(METRICS) | absent
