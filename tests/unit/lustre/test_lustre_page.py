# SPDX-License-Identifier: Apache-2.0
"""The page of the cluster exporter with Lustre statistics, from simulated commands and a fake Prometheus."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.cli.options import load_config
from slurmscope.cli.roles import all_collectors
from slurmscope.core.errors import ConfigError
from slurmscope.exporter.collector import Role
from slurmscope.exporter.exporter import enabled_collectors
from slurmscope.exporter.page import PageService
from slurmscope.exporter.self_metrics import SelfMetrics
from slurmscope.http.server.app import ScrapeRequest
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.write import Format
from tests.fakes.exporters import open_role
from tests.fakes.prometheus_server import FakePrometheus, failure, vector
from tests.fakes.scripted_server import scripted_server
from tests.fakes.slurm_scripts import make_commands
from tests.processes import until, values

SQUEUE = r"""
case "$*" in *JobID*) ids='7\0377\036';; *) ids='';; esac
names='physics\037alice\037debug\037normal\037RUNNING\037None\037(null)'
printf "$ids$names"'\0361\0372\037cpu=2\0361794732498\0371794732500\n'
"""
BYTES = vector(({"jobid": "7", "filesystem": "work"}, (1.0, "1000")), ({"jobid": "8"}, (1.0, "5")))


@pytest.fixture
def fake() -> FakePrometheus:
    return FakePrometheus([BYTES])


@pytest.fixture
def flags(fake: FakePrometheus, tmp_path: Path) -> Iterator[dict[str, object]]:
    commands = {"squeue": f"echo >> {tmp_path}/calls{SQUEUE}", "scontrol": "printf 'PrivateData = none\n'"}
    with scripted_server(fake.handle) as url:
        yield {
            "prometheus_url": url,
            "slurm_bin_path": str(make_commands(tmp_path / "bin", commands)),
            "slurm_poll_limit": "0.01s",
            "collector_disable_defaults": True,
            "collector_lustre": True,
        }


class Page:
    """Scrape a cluster exporter in this process."""

    def __init__(self, **given: object) -> None:
        config = load_config("cluster", given)
        readings = open_role("cluster", config)
        guard = Guard()
        own = SelfMetrics(features=readings, guard=guard)
        collectors = enabled_collectors(all_collectors(Role.CLUSTER), config)
        self.service = PageService(collectors, readings, guard=guard, self_families=own.families)

    def scrape(self, seconds: float = 30.0) -> str:
        request = ScrapeRequest(format=Format.TEXT, is_gzip=False, deadline_seconds=seconds)
        return b"".join(self.service.scrape(request)).decode()


def calls(tmp_path: Path) -> int:
    return len((tmp_path / "calls").read_text().splitlines())


def test_one_squeue_call_serves_jobs_and_lustre(flags: dict[str, object], tmp_path: Path) -> None:
    page = Page(**{**flags, "slurm_poll_limit": "1h"}, collector_jobs=True).scrape()

    assert {("physics", "alice"): 1000.0, ("unknown", "unknown"): 5.0} == values(
        page, "cluster_job_read_throughput_bytes"
    )
    assert {("RUNNING",): 1.0} == values(page, "slurm_jobs")
    assert {(): 1.0} == values(page, "cluster_exporter_scrape_ok")
    assert {("lustre_metadata",): 1.0, ("lustre_read",): 1.0, ("lustre_write",): 1.0} == values(
        page, "slurmscope_series_queries_total"
    )
    assert 6 == len(values(page, "cluster_exporter_stage_execution_seconds"))
    assert 1 == calls(tmp_path)


def test_failed_scrape_serves_the_last_good_answer_with_its_age(flags: dict[str, object], fake: FakePrometheus) -> None:
    service = Page(**flags)
    service.scrape()
    fake.answers = [failure(422, "execution", "too many samples")]

    until(lambda: {(): 0.0} == values(service.scrape(), "cluster_exporter_scrape_ok"))
    page = service.scrape()

    assert {("lustre",): 0.0} == values(page, "slurmscope_collector_success")
    assert 1000.0 == values(page, "cluster_job_read_throughput_bytes")["physics", "alice"]
    assert values(page, "slurmscope_reading_age_seconds")[("lustre",)] > 0


def test_failed_stages_keep_their_durations(flags: dict[str, object], fake: FakePrometheus) -> None:
    fake.answers = [failure(422, "execution", "too many samples")]

    page = Page(**flags).scrape()

    assert {(): 0.0} == values(page, "cluster_exporter_scrape_ok")
    assert 6 == len(values(page, "cluster_exporter_stage_execution_seconds"))


def test_one_failed_query_makes_the_scrape_not_ok_but_serves_the_rest(
    flags: dict[str, object], fake: FakePrometheus
) -> None:
    fake.answers = [BYTES, failure(422, "execution", "too many samples"), vector()]

    page = Page(**flags).scrape()

    assert {(): 0.0} == values(page, "cluster_exporter_scrape_ok")
    assert {("lustre",): 1.0} == values(page, "slurmscope_collector_success")
    assert values(page, "cluster_job_read_throughput_bytes")
    assert "cluster_job_write_throughput_bytes" not in page


def test_scrape_that_cannot_wait_is_logged_as_before(
    flags: dict[str, object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\nsleep 3\n")
    caplog.set_level(logging.WARNING)

    page = Page(**flags).scrape(seconds=0.05)

    assert {(): 0.0} == values(page, "cluster_exporter_scrape_ok")
    assert "Collect is still active... - Skipping now" in caplog.messages


def test_collector_is_off_without_an_address_and_on_with_one(flags: dict[str, object]) -> None:
    given = {name: value for name, value in flags.items() if not name.startswith("collector")}

    def names(**more: object) -> set[str]:
        config = load_config("cluster", more)
        return {enabled.name for enabled in enabled_collectors(all_collectors(Role.CLUSTER), config)}

    assert "lustre" not in names()
    assert "lustre" in names(**given)
    assert "lustre" not in names(**given, collector_lustre=False)
    assert "lustre" not in names(**given, collector_disable_defaults=True)


def test_page_without_the_collector_has_none_of_its_metrics(flags: dict[str, object], tmp_path: Path) -> None:
    page = Page(**{**flags, "collector_lustre": False, "collector_jobs": True}).scrape()

    assert {("RUNNING",): 1.0} == values(page, "slurm_jobs")
    assert "cluster_" not in page
    assert "slurmscope_series" not in page


def test_collector_without_an_address_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"set --prometheus\.url"):
        Page(collector_lustre=True)


def test_private_data_hides_series_by_user_and_account(flags: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "bin" / "scontrol").write_text("#!/bin/sh\nprintf 'PrivateData = jobs\n'\n")

    page = Page(**flags).scrape()

    assert "alice" not in page
    assert values(page, "cluster_filesystem_unknown_read_bytes_per_second")


@pytest.mark.parametrize(
    ("answers", "is_good", "message"),
    [
        ([BYTES], True, "2 jobs and programs use Lustre"),
        ([vector()], True, "no use of Lustre was found"),
        (
            [BYTES, failure(422, "execution", "too many samples"), vector()],
            False,
            "build_write_throughput_metrics: .* it answered 422: too many samples",
        ),
    ],
)
def test_doctor_reports_what_was_found(
    flags: dict[str, object], fake: FakePrometheus, answers: list[bytes], is_good: bool, message: str
) -> None:
    fake.answers = answers
    readings = open_role("cluster", load_config("cluster", flags))
    readings.read(("lustre",), time.monotonic() + 30)

    (check,) = (check for check in readings.checks() if check.name == "lustre statistics")

    assert is_good == check.is_good
    assert re.fullmatch(message, check.message)
