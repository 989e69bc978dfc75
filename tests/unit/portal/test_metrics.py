# SPDX-License-Identifier: Apache-2.0
"""Staff and Prometheus can read metrics of the portal."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from slurmscope import __version__
from slurmscope.archive.size import ArchiveSize
from slurmscope.core.errors import SourceError
from slurmscope.exporter.reading import SharedReading
from slurmscope.exporter.self_metrics import BUILD_INFO, PROCESS_METRICS, READING_METRICS
from slurmscope.jobs.suspect_nodes import JudgedNode, NodeVerdict
from slurmscope.metrics.family import Family
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.write import Format, end, write
from slurmscope.portal.metrics import (
    PORTAL_METRICS,
    PortalMetrics,
    RequestCounts,
    add_metrics_page,
    archive_families,
    reporter_families,
)
from slurmscope.portal.node_list import suspect_families
from slurmscope.prometheus.query_counters import QueryCounters, QueryCounts, series_families
from slurmscope.reporter.reporter import ReporterProgress
from tests.fakes.portal_backend import USER_HEADER, make_backend
from tests.requirements import require_program


def samples(families: Iterable[Family]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Write families and parse them with prometheus_client."""
    page = b"".join(write(families, Format.TEXT)).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_text(page)
        for sample in family.samples
    }


@dataclass
class Reporters:
    """Say what reporters do."""

    progress: ReporterProgress
    elected: Mapping[str, bool] = field(default_factory=lambda: {"alpha": True, "beta": False})
    stopped_comments: Mapping[str, bool] = field(default_factory=lambda: {"alpha": True})


def full_metrics() -> PortalMetrics:
    """Make metrics in which everything has happened once."""
    requests, queries = RequestCounts(), QueryCounters()
    requests.record("/jobs", 200, 0.02)
    queries.note_answer("curves", 0.5, points=900, received_bytes=4096)
    queries.note_failure("totals", 30.0, "timeout", is_up=False)
    queries.note_retry("totals")
    queries.note_split("curves")
    good = SharedReading("nodes", dict, interval_seconds=10.0)
    good.request()
    good.wait(float("inf"))

    bad = SharedReading("jobs", failing, interval_seconds=10.0)
    bad.request()
    bad.wait(float("inf"))
    progress = ReporterProgress(jobs_archived=12, rounds=3, failures=1, read_until_seconds=1000.0)
    readings = {"nodes": good, "jobs": bad}
    reporters = Reporters(progress)
    size = ArchiveSize(used_bytes=7000, free_bytes=9000)
    archive = SharedReading("archive", lambda: size, interval_seconds=10.0)
    archive.request()
    archive.wait(float("inf"))
    return PortalMetrics(
        requests=requests,
        reporters=reporters,  # type: ignore[arg-type]
        query_counters=queries,
        readings=readings,
        archive=archive,
        suspects=judged("suspect", "too little data"),
    )


def test_archive_has_a_size_and_a_disk() -> None:
    values = samples(full_metrics().families())

    assert 7000 == values["slurmscope_archive_size_bytes", ()]
    assert 9000 == values["slurmscope_archive_free_bytes", ()]


def test_archive_that_was_not_measured_has_no_size() -> None:
    unmeasured = SharedReading("archive", lambda: ArchiveSize(used_bytes=1), interval_seconds=10.0)
    server = SharedReading("archive", lambda: ArchiveSize(used_bytes=1), interval_seconds=10.0)
    server.request()
    server.wait(float("inf"))

    assert [] == list(samples(archive_families(unmeasured)))[1:]
    assert [("slurmscope_archive_size_bytes", ())] == list(samples(archive_families(server)))


def judged(*verdicts: str) -> SharedReading:
    """Make a reading that has judged one node with each verdict."""
    nodes = tuple(
        JudgedNode(
            cluster="lab", node=f"n{number}", verdict=NodeVerdict(verdict), runs=50, failed=25, failed_users=4,
            expected_failed=1.5, chance=1e-9, slow_factor=None, is_slow=False, gpu_faults=0,
        )
        for number, verdict in enumerate(verdicts)
    )  # fmt: skip
    reading = SharedReading("suspect_nodes", lambda: nodes, interval_seconds=3600.0)
    reading.request()
    reading.wait(float("inf"))
    return reading


def test_suspect_nodes_are_named_and_all_are_counted() -> None:
    values = samples(suspect_families(judged("suspect", "watch", "normal", "normal", "too little data")))

    def named(node: str, verdict: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        return "slurmscope_suspect_node", (("cluster", "lab"), ("slurm_node", node), ("verdict", verdict))

    assert {named("n0", "suspect"): 1.0, named("n1", "watch"): 1.0} == {
        key: value for key, value in values.items() if key[0] == "slurmscope_suspect_node"
    }
    counts = {dict(labels)["verdict"]: value for (name, labels), value in values.items() if "judged" in name}
    assert {"suspect": 1.0, "watch": 1.0, "normal": 2.0, "too little data": 1.0} == counts


def test_nodes_that_could_not_be_judged_have_no_series() -> None:
    assert [] == list(suspect_families(SharedReading("suspect_nodes", failing, interval_seconds=3600.0)))


def failing() -> object:
    raise SourceError("unreachable")


def test_queries_are_counted_by_kind() -> None:
    values = samples(full_metrics().families())

    curves, totals = (("kind", "curves"),), (("kind", "totals"),)
    assert 1 == values["slurmscope_series_queries_total", curves]
    assert 1 == values["slurmscope_series_queries_total", totals]
    assert 0.5 == values["slurmscope_series_query_seconds_total", curves]
    assert 900 == values["slurmscope_series_points_total", curves]
    assert 4096 == values["slurmscope_series_received_bytes_total", curves]
    assert 1 == values["slurmscope_series_retries_total", totals]
    assert 1 == values["slurmscope_series_splits_total", curves]
    assert 1 == values["slurmscope_series_failures_total", (("kind", "totals"), ("reason", "timeout"))]
    assert 0 == values["slurmscope_series_up", ()]


def test_prometheus_that_was_never_queried_is_neither_up_nor_down() -> None:
    assert {} == samples(series_families(QueryCounts()))


def test_reporter_progress_is_reported() -> None:
    values = samples(full_metrics().families())

    assert 12 == values["slurmscope_reporter_jobs_total", ()]
    assert 3 == values["slurmscope_reporter_rounds_total", ()]
    assert 1 == values["slurmscope_reporter_failures_total", ()]
    assert 1 == values["slurmscope_reporter_up", ()]
    assert 1000 == values["slurmscope_reporter_read_until_timestamp_seconds", ()]


def test_reporter_before_its_first_poll_has_no_time_and_no_state() -> None:
    expected = {("slurmscope_reporter_jobs_total", ()), ("slurmscope_reporter_rounds_total", ())}

    assert {*expected, ("slurmscope_reporter_failures_total", ())} == samples(
        reporter_families(ReporterProgress())
    ).keys()


def test_reporter_whose_last_round_failed_is_down() -> None:
    values = samples(reporter_families(ReporterProgress(rounds=7, failures=1, problem="the archive is unreachable")))

    assert 0 == values["slurmscope_reporter_up", ()]


def test_slurm_readings_and_the_process_are_reported_as_by_the_exporters() -> None:
    values = samples(full_metrics().families())

    assert 1 == values["slurmscope_readings_total", (("source", "nodes"),)]
    assert 1 == values["slurmscope_reading_errors_total", (("reason", "failed"), ("source", "jobs"))]
    assert values["process_resident_memory_bytes", ()] > 0
    (build,) = (dict(labels) for name, labels in values if name == "slurmscope_build_info")
    assert __version__ == build["version"]


def test_emitted_metrics_are_the_declared_ones() -> None:
    values = {family.metric for family in full_metrics().families()}

    assert {*PORTAL_METRICS, BUILD_INFO, *READING_METRICS, *PROCESS_METRICS} == values


def test_guard_drops_nothing() -> None:
    guard = Guard()

    admitted = [family.metric.name for family in guard.admit(full_metrics().families())]

    assert {} == dict(guard.dropped)
    assert "slurmscope_portal_request_duration_seconds" in admitted


def test_names_follow_the_conventions() -> None:
    promtool = require_program("promtool")
    page = b"".join(write(full_metrics().families(), Format.TEXT))
    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, timeout=60, check=False)

    assert ("", 0) == (checked.stderr.decode(), checked.returncode)


def make_page(families: Callable[[], Iterable[Family]]) -> FastAPI:
    app = make_backend().make_app()
    add_metrics_page(app, families)
    return app


def request_metrics(app: FastAPI, who: str = "", **headers: str) -> httpx.Response:
    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://portal.test") as client:
            return await client.get("/metrics", headers={**headers, **({USER_HEADER: who} if who else {})})

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("who", "status"), [("", 401), ("ada", 403), ("eve", 403), ("cora", 403), ("sue", 200), ("root", 200)]
)
def test_page_is_for_staff(who: str, status: int) -> None:
    answer = request_metrics(make_page(full_metrics().families), who)

    assert status == answer.status_code
    assert (status == 200) is ("slurmscope_" in answer.text)


def test_page_adds_one_route_and_changes_nothing() -> None:
    plain, metered = make_backend().make_app(), make_page(tuple)

    added = [route for route in metered.routes if getattr(route, "path", "") == "/metrics"]
    assert len(plain.routes) + 1 == len(metered.routes)
    assert [{"GET"}] == [getattr(route, "methods", None) for route in added]
    assert "/metrics" not in metered.openapi()["paths"]


def test_format_is_chosen_by_what_the_client_accepts() -> None:
    app = make_page(full_metrics().families)

    plain, modern = (
        request_metrics(app, "sue"),
        request_metrics(app, "sue", Accept="application/openmetrics-text;version=1.0.0"),
    )

    assert Format.TEXT.content_type == plain.headers["content-type"]
    assert Format.OPENMETRICS.content_type == modern.headers["content-type"]
    assert end(Format.OPENMETRICS) == modern.content[-6:]
    names = {family.name for family in parse_openmetrics(modern.text)}
    assert {"slurmscope_portal_requests", "slurmscope_series_up", "slurmscope_build"} <= names
    assert {family.name for family in parse_text(plain.text)} >= {"slurmscope_portal_requests"}


def test_every_cluster_says_whether_this_process_is_its_reporter() -> None:
    values = samples(full_metrics().families())

    assert 1 == values["slurmscope_reporter_elected", (("cluster", "alpha"),)]
    assert 0 == values["slurmscope_reporter_elected", (("cluster", "beta"),)]


def test_portal_that_only_serves_has_no_metrics_of_a_reporter() -> None:
    values = samples(replace(full_metrics(), reporters=None).families())

    assert not [name for name, _ in values if name.startswith("slurmscope_reporter")]
