# SPDX-License-Identifier: Apache-2.0
"""A client of Prometheus that answers with a function of the query, and the series of its answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from slurmscope.jobs.series import Aggregation, SeriesQuery, SeriesSource
from slurmscope.prometheus.query_counters import QueryCounters
from slurmscope.prometheus.responses import FoundSeries, Reply
from slurmscope.prometheus.series import PrometheusSeries
from slurmscope.prometheus.settings import Matcher, PrometheusSettings

GAUGE = SeriesQuery(metric="jobs_memory_anon_bytes", how=Aggregation.MAX)

COUNTER = SeriesQuery(metric="jobs_cpu_seconds_total", how=Aggregation.RATE)

TOTAL = SeriesQuery(metric="jobs_io_write_bytes_total", how=Aggregation.TOTAL)

MEAN = SeriesQuery(metric="jobs_gpu_utilization_ratio", how=Aggregation.MEAN)

NO_LIMIT = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class SentQuery:
    """Hold one query of the source."""

    query: str
    first: float
    last: float
    step: float | None = None

    @property
    def job_ids(self) -> list[int]:
        """Return the jobs in the query."""
        return [int(number) for text in re.findall(r'slurm_job=~?"([^"]+)"', self.query) for number in text.split("|")]

    @property
    def windows_seconds(self) -> list[float]:
        """Return the windows in the query."""
        return [int(number) / 1000 for number in re.findall(r"\[(\d+)ms\]", self.query)]

    @property
    def times(self) -> list[float]:
        """Return the times of a range."""
        assert self.step
        count = round((self.last - self.first) / self.step)
        return [self.first + index * self.step for index in range(count + 1)]


@dataclass(slots=True)
class FakeClient:
    """Answer with a function of the query, and keep all queries."""

    answer: Callable[[SentQuery], Reply]
    counters: QueryCounters = field(default_factory=QueryCounters)
    queries: list[SentQuery] = field(default_factory=list)

    def query_instant(self, query: str, at_seconds: float, *, kind: str, until: float) -> Reply:
        return self._reply_to(SentQuery(query=query, first=at_seconds, last=at_seconds))

    def query_range(
        self, query: str, times: tuple[float, float], step_seconds: float, *, kind: str, until: float
    ) -> Reply:
        return self._reply_to(SentQuery(query=query, first=times[0], last=times[1], step=step_seconds))

    def _reply_to(self, query: SentQuery) -> Reply:
        self.queries.append(query)
        return self.answer(query)


def reply(*series: FoundSeries) -> Reply:
    return Reply(series=series)


def level(value: float) -> Callable[[SentQuery], Reply]:
    """Answer with a value that every job has on node n1 all the time, before and after it too."""

    def answer(query: SentQuery) -> Reply:
        times = tuple(query.times) if query.step else (query.first,)
        return reply(*(found(job_id, times, (value,) * len(times)) for job_id in query.job_ids))

    return answer


def found(job_id: int | str, times: tuple[float, ...], values: tuple[float, ...], node: str = "n1") -> FoundSeries:
    return FoundSeries({"slurm_job": str(job_id), "slurm_node": node}, times, values)


def opened(answer: Callable[[SentQuery], Reply]) -> tuple[FakeClient, SeriesSource]:
    client = FakeClient(answer)
    return client, PrometheusSeries(client, PrometheusSettings(matchers=(Matcher("cluster", "lab"),)))
