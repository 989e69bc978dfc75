# SPDX-License-Identifier: Apache-2.0
"""Prometheus and the portal give the same rows as a node's page does, as far as they know them."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import replace
from urllib.parse import parse_qs

import pytest

from slurmscope.core.errors import CommandRefused, ConfigError, ServerRefused
from slurmscope.http.client.address import parse_address
from slurmscope.prometheus.settings import Matcher, PrometheusSettings
from slurmscope.reports.local_jobs import ListedJobs
from slurmscope.top.jobs import TopJob
from slurmscope.top.sources import COLUMNS, KnownJobs, PortalSource, PrometheusSource, make_reported_job, parse_node
from tests.fakes.reports import make_gpu_report, make_record, make_report
from tests.fakes.scripted_server import read_whole_request, scripted_server

UNKNOWN = KnownJobs(None)


def _answer(query: str) -> list[dict[str, object]]:
    """Return what Prometheus would: two nodes of one job that runs, and one that has ended."""

    def series(node: str, value: float, job: str = "12", **more: str) -> dict[str, object]:
        return {"metric": {"slurm_job": job, "slurm_node": node, **more}, "value": [1.0, str(value)]}

    if query.startswith("jobs_info"):
        running, ended = {"user": "ada", "has_ended": "false"}, {"user": "ada", "has_ended": "true"}
        return [series("n1", 1, **running), series("n2", 1, **running), series("n1", 1, "13", **ended)]
    if query.startswith("rate(jobs_cpu_seconds_total"):
        return [series("n1", 3.5), series("n2", 4.0)]
    return [series("n1", 4.0), series("n2", 4.0)] if query.startswith("jobs_cores") else []


def test_prometheus_is_asked_for_the_jobs_of_the_user() -> None:
    queries: list[str] = []

    def serve(connection: socket.socket) -> None:
        request = read_whole_request(connection)
        (query,) = parse_qs(request.body.decode())["query"]
        queries.append(query)
        data = {"resultType": "vector", "result": _answer(query)}
        body = json.dumps({"status": "success", "data": data}).encode()
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    with scripted_server(serve) as url:
        settings = PrometheusSettings(url=parse_address(url), scrape_interval=15.0, matchers=(Matcher("site", "a"),))
        source = PrometheusSource(settings, UNKNOWN, labels={"user": 'a"}'})
        (job,) = source.poll()

    assert (7.5, 8.0, ("n1", "n2")) == (job.cores_used, job.cores, job.nodes)
    assert job.memory_bytes is None
    assert 'jobs_info{site="a",user="a\\"}"}' == queries[0]
    assert 'rate(jobs_cpu_seconds_total{site="a",slurm_job=~"12"}[60s])' in queries
    assert all(re.match(r"(rate\()?jobs_[a-z_]+\{", query) for query in queries)


def test_prometheus_without_jobs_is_asked_once() -> None:
    def serve(connection: socket.socket) -> None:
        read_whole_request(connection)
        body = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with scripted_server(serve) as url:
        source = PrometheusSource(PrometheusSettings(url=parse_address(url)), UNKNOWN, labels={"user": "ada"})
        assert () == source.poll()
    with pytest.raises(ServerRefused):
        source.poll()


def test_report_becomes_a_row_with_the_last_points() -> None:
    report = make_report(make_record(state="RUNNING", end_seconds=None))
    job = make_reported_job(report)
    cpu = next(chart for chart in report.charts if chart.name == "cpu")

    assert ("4711", "relax", 4.0) == (job.job_id, job.name, job.cores)
    assert cpu.lines[0].values[-1] == job.cores_used
    assert (7200.0, 86400.0) == (job.elapsed_seconds, job.time_limit_seconds)
    ended = replace(cpu, lines=(replace(cpu.lines[0], values=(*cpu.lines[0].values[:-1], None)),))
    assert make_reported_job(replace(report, charts=(ended,))).cores_used is None
    assert 2 == len(make_reported_job(make_gpu_report()).gpus)


def test_portal_lists_running_jobs_of_the_user() -> None:
    class Portal:
        def user(self) -> str:
            return "ada"

        def list_jobs(self, wanted: object, _limit: int) -> ListedJobs:
            assert ("ada", "RUNNING") == (wanted.user, wanted.state)  # type: ignore[attr-defined]
            from slurmscope.archive.job_rows import make_job_row

            return ListedJobs(rows=tuple(make_job_row(make_report(make_record(job))) for job in (1, 2, 3)))

        def report(self, shown_id: str, _cluster: str) -> object:
            # The first one has ended since, the second is gone.
            states = {"1": "COMPLETED", "3": "RUNNING"}
            return make_report(make_record(int(shown_id), state=states[shown_id])) if shown_id in states else None

    assert ["3"] == [job.job_id for job in PortalSource(Portal()).poll()]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("n17", "http://n17:9798"),
        ("n17:80", "http://n17:80"),
        ("https://n17", "https://n17:9798"),
        ("unix:/run/a", "unix:/run/a"),
    ],
)
def test_nodes_are_named_by_host_or_address(text: str, shown: str) -> None:
    assert shown == str(parse_node(text))


@pytest.mark.parametrize("text", ["", "a b", "n17:x", "ftp://n17"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_node(text)


def test_squeue_is_asked_for_new_jobs_only_and_may_fail() -> None:
    calls: list[tuple[str, ...]] = []
    now = [100.0]

    def run(_name: str, arguments: tuple[str, ...]) -> bytes:
        calls.append(arguments)
        mark = arguments[-1].rpartition(":")[2]
        mark = mark[: len(mark) // 2]
        cells = dict(
            zip(
                COLUMNS,
                ["12", "12", "N/A", "0", "N/A", "1-00:00:30", "UNLIMITED", "1", "8", "ada", "re,lax"],
                strict=True,
            )
        )
        return (mark.join(cells[name] for name in COLUMNS) + mark * 2 + "\n" + "broken").encode()

    known = KnownJobs(run, clock=lambda: now[0])  # type: ignore[arg-type]
    for _ in range(2):
        (job, other) = known.complete([TopJob(job_id="12"), TopJob(job_id="99")])
    assert 1 == len(calls)
    assert ("re,lax", 86430.0, None) == (job.name, job.elapsed_seconds, job.time_limit_seconds)
    assert 8.0 == job.cores
    assert 2.0 == known.complete([TopJob(job_id="12", cores=2.0)])[0].cores
    assert "" == other.name
    now[0] += 10
    assert 86440.0 == known.complete([TopJob(job_id="12")])[0].elapsed_seconds
    now[0] += 60
    known.complete([TopJob(job_id="12")])
    assert 2 == len(calls)

    def refuse(name: str, _arguments: object) -> bytes:
        raise CommandRefused((name,), "down")

    assert "" == KnownJobs(refuse).complete([TopJob(job_id="12")])[0].name
