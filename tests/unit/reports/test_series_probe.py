# SPDX-License-Identifier: Apache-2.0
"""The doctor queries Prometheus as reports do: with the same headers, and only for whole answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurmscope.http.client.address import parse_address
from slurmscope.http.client.credentials import parse_headers
from slurmscope.prometheus.responses import PartialAnswer
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.reports.series_checks import count_nodes, find_nodes, read_clock_skew
from tests.fakes.prometheus_server import FakePrometheus, vector
from tests.fakes.scripted_server import scripted_server

ONE_NODE = vector(({"slurm_node": "n1"}, (15.0, "1")))


@pytest.fixture
def fake() -> FakePrometheus:
    return FakePrometheus([ONE_NODE])


@pytest.fixture
def settings(fake: FakePrometheus) -> Iterator[PrometheusSettings]:
    with scripted_server(fake.handle) as url:
        yield PrometheusSettings(url=parse_address(url), headers=parse_headers("X-Scope-OrgID=hpc"), retries=0)


def test_every_check_sends_the_headers(fake: FakePrometheus, settings: PrometheusSettings) -> None:
    assert (1, frozenset({"n1"})) == (count_nodes(settings, "up"), find_nodes(settings, "up"))
    read_clock_skew(settings)

    assert ["hpc"] * 3 == [query.headers["X-Scope-OrgID"] for query in fake.queries]


def test_partial_answer_is_a_failure(fake: FakePrometheus, settings: PrometheusSettings) -> None:
    fake.answers = [vector(isPartial=True)]
    with pytest.raises(PartialAnswer, match="only a part of the series"):
        count_nodes(settings, "up")
