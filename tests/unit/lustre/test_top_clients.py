# SPDX-License-Identifier: Apache-2.0
"""Lists of those who use a file system most are queried from our own metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from slurmscope.core.errors import ServerError, ServerTimedOut, SourceError
from slurmscope.lustre.use import ClientKind, Period, Quantity, TopClient, TopClients
from slurmscope.portal.filesystems import read_top_clients, top_expression
from slurmscope.prometheus.query_counters import QueryCounters
from slurmscope.prometheus.responses import FoundSeries, Reply


def test_users_have_the_use_of_their_jobs_and_programs() -> None:
    assert (
        "topk by (filesystem) (20, sum by (filesystem, user) (max by (filesystem, account, user, partition, jobid, "
        'program, group, class) ({__name__=~"cluster_filesystem_read_bytes_per_second|'
        'cluster_filesystem_program_read_bytes_per_second",site="a\\"b"})) > 0)'
    ) == top_expression(Period.NOW, ClientKind.USER, Quantity.READ, (("site", 'a"b'),))


def test_amounts_of_a_day_are_rates_added_up() -> None:
    assert (
        "topk by (filesystem) (20, sum by (filesystem, jobid, user, account) (sum_over_time((max by (filesystem, "
        "account, user, partition, jobid, program, group, class) "
        '({__name__=~"cluster_filesystem_top_job_metadata_operations_per_second"}))[1d:300s]) * 300) > 0)'
    ) == top_expression(Period.DAY, ClientKind.JOB, Quantity.METADATA)


@dataclass
class FakeClient:
    """Answer every query with one series, or fail those that contain a word."""

    error: SourceError | None = None
    word: str = ""
    counters: QueryCounters = field(default_factory=QueryCounters)
    queries: list[str] = field(default_factory=list)

    def query_instant(self, query: str, at_seconds: float, *, kind: str, until: float) -> Reply:
        self.queries.append(query)
        if self.error and self.word in query:
            raise self.error
        labels = {"filesystem": "work", "jobid": "7", "user": "ada", "program": "cp", "account": "physics"}
        return Reply(series=(FoundSeries(labels, (1.0,), (5.0,)), FoundSeries({}, (), ())))

    def query_range(
        self, query: str, times: tuple[float, float], step_seconds: float, *, kind: str, until: float
    ) -> Reply:
        raise NotImplementedError


def test_every_list_is_queried() -> None:
    client = FakeClient()

    top = read_top_clients(client, (), until=0.0)

    assert 18 == len(set(client.queries)) == len(top.clients)
    assert TopClient("work", Period.NOW, ClientKind.JOB, Quantity.READ, "7", "ada", "physics", 5.0) == top.clients[0]
    assert {"7", "ada", "cp"} == {found.name for found in top.clients}
    assert () == top.problems


def test_equal_jobs_of_several_clusters_are_told_apart() -> None:
    assert (
        "topk by (filesystem) (20, sum by (filesystem, jobid, user, account, site) (max by (filesystem, account, user, "
        'partition, jobid, program, group, class, site) ({__name__=~"'
    ) in top_expression(Period.NOW, ClientKind.JOB, Quantity.READ, cluster_label="site")
    # A user has one line, whatever the cluster.
    assert "sum by (filesystem, user) (max by (" in top_expression(
        Period.NOW, ClientKind.USER, Quantity.READ, cluster_label="site"
    )
    top = read_top_clients(FakeClient(), (), cluster_label="account", until=0.0)
    assert "physics" == top.clients[0].cluster


def test_failed_query_costs_its_list_only() -> None:
    top = read_top_clients(FakeClient(ServerError("too many samples"), "[1d:"), (), until=0.0)

    assert {Period.NOW} == {found.period for found in top.clients}
    assert ("too many samples",) == top.problems


def test_server_that_does_not_answer_is_queried_once() -> None:
    client = FakeClient(ServerTimedOut("timed out"))

    with pytest.raises(ServerTimedOut):
        read_top_clients(client, (), until=0.0)
    assert 1 == len(client.queries)


def test_nothing_is_no_client() -> None:
    assert ((), ()) == TopClients()
