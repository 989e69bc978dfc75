# SPDX-License-Identifier: Apache-2.0
"""Dashboards written for the exporter that we replace still work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import SlurmLab
from lab.prometheus import Server
from tests.e2e.busy_lab import FEATURE, numbers, watch_busy_lab

# What people ask for, in the words in which they ask.
QUERIES = (
    'sum(slurm_user_state_total{state="RUNNING"}) by (username)',
    'topk(5, slurm_user_cpu_alloc{state="RUNNING"})',
    'sum by (username) (slurm_user_mem_alloc{state=~"RUNNING|PENDING"}) / 1024 / 1024 / 1024',
    "sort_desc(sum(slurm_account_cpu_alloc) by (account))",
    "sum(slurm_account_mem_alloc)",
    'sum(slurm_account_job_state_total{state="PENDING"}) by (account) > 0',
    'slurm_account_job_state_cpu_alloc{state="RUNNING"} / on (account) slurm_account_cpu_limit',
    'sum(slurm_partition_job_state_total{partition!=""}) by (partition, state)',
    "100 * sum(slurm_partition_alloc_cpus) by (partition) / sum(slurm_partition_total_cpus) by (partition)",
    "slurm_partition_idle_cpus / slurm_partition_total_cpus",
    "(slurm_cpus_total - slurm_cpus_idle) / slurm_cpus_total * 100",
    "1 - slurm_mem_free / slurm_mem_real",
    "slurm_mem_alloc / slurm_mem_real",
    "slurm_cpu_load / slurm_cpus_total",
    'sum(slurm_node_count_per_state{state=~"mixed|allocated|idle|planned"}) or vector(0)',
    'sum(slurm_node_count_per_state{state=~"drain.*|down.*"})',
    'max by (partition) (slurm_partition_node_count{state=~"mix.*|drain.*"})',
    "topk(10, slurm_pending_reason_total)",
    f'slurm_feature_total{{feature="{FEATURE}"}}',
    "slurm_job_scrape_duration + slurm_node_scrape_duration",
    "rate(slurm_job_scrape_error[1m]) + rate(job_scrape_errors[1m]) == 0",
    "increase(slurm_node_scrape_error[1m])",
    'slurm_lic_used{name="matlab"} / slurm_lic_total{name="matlab"} * 100',
    "slurm_lic_free - slurm_lic_reserved",
    "slurm_account_mem_alloc / slurm_account_mem_limit",
    "slurm_account_job_limit - slurm_account_job_alloc_limit",
    "topk(5, rate(slurm_rpc_msg_type_count[1m]))",
    "slurm_rpc_msg_type_avg_time / 1e6",
    "sum(irate(slurm_rpc_user_total_time[1m])) by (user)",
    "slurm_daemon_thread_count > 0 and slurm_dbd_agent_queue_size >= 0",
    "slurm_backfill_last_depth_try_sched / slurm_backfill_last_depth",
    "idelta(slurm_backfill_cycle_counter[1m])",
    "slurm_gpus_alloc / slurm_gpus_total",
    'slurm_gpus_idle_per_type{type="a100"}',
    "sum(ncpus) by (user)",
)


@pytest.fixture(scope="module")
def prometheus(slurm_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with watch_busy_lab(slurm_lab, tmp_path_factory.mktemp("watched")) as server:
        yield server


@pytest.mark.parametrize("query", QUERIES)
def test_older_query_gives_numbers(prometheus: Server, query: str) -> None:
    assert numbers(prometheus, query)


def test_values_are_right(prometheus: Server, slurm_lab: SlurmLab) -> None:
    rows = slurm_lab.run("squeue", "--noheader", "--states=RUNNING", "--format=%a %C").splitlines()
    physics = sum(int(row.split()[1]) for row in rows if row.startswith("physics "))

    def one(query: str) -> float:
        return numbers(prometheus, query)[0].value

    assert physics == one('slurm_account_cpu_alloc{account="physics"}')
    assert 4 * 4000 * 1024**2 == one("slurm_mem_real")
    # One CPU and 100 MiB for each job of the lab.
    assert physics * 100 * 1024**2 == one('slurm_account_mem_alloc{account="physics"}')
    assert 8 * 1024**3 == one('slurm_account_mem_limit{account="physics"}')
    assert 20 == one('slurm_pending_reason_total{reason="JobHeldUser"}')
