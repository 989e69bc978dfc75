# SPDX-License-Identifier: Apache-2.0
"""Check the reload of a running exporter."""

from __future__ import annotations

import logging

import pytest

from slurmscope.core.config import Config, load
from slurmscope.core.errors import ConfigError, SlurmscopeError, SourceError
from slurmscope.exporter.collector import Role, all_collectors
from slurmscope.exporter.exporter import Exporter, RunningExporter
from slurmscope.exporter.reading import ReadingSet, SharedReading
from slurmscope.exporter.settings import exporter_sections
from slurmscope.http.server.app import ScrapeRequest


class Readings(ReadingSet):
    """Provide every reading that a collector of the node agent needs, and count how often it is closed."""

    def __init__(self) -> None:
        names = {name for collector in all_collectors(Role.NODE) for name in collector.needs}
        super().__init__(*(SharedReading(name, object, interval_seconds=60) for name in names))
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def load_defaults() -> Config:
    return load(exporter_sections(Role.NODE), flags={}, environment={})


def is_config_good(running: RunningExporter) -> bool:
    page = b"".join(running.scrape(ScrapeRequest(exclude=frozenset({"gpus", "job_use"}))))
    return b"slurmscope_config_last_reload_successful 1.0\n" in page


def test_reload_replaces_the_readings_and_closes_the_old_ones() -> None:
    made = [Readings(), Readings()]
    opened = iter(made)
    exporter = Exporter(role=Role.NODE, load=load_defaults, make_readings=lambda _: next(opened))
    running = RunningExporter(exporter, load_defaults())

    running.reload()

    assert [1, 0] == [readings.closed for readings in made]
    assert is_config_good(running)


def test_changed_settings_that_need_a_restart_are_named(caplog: pytest.LogCaptureFixture) -> None:
    def load_changed() -> Config:
        environment = {"SLURMSCOPE_OUTPUT_REMOTE_WRITE": "http://h/write", "SLURMSCOPE_METRICS_PROFILE": "full"}
        return load(exporter_sections(Role.NODE), flags={}, environment=environment)

    exporter = Exporter(role=Role.NODE, load=load_changed, make_readings=lambda _: Readings())
    running = RunningExporter(exporter, load_defaults())
    with caplog.at_level(logging.WARNING):
        running.reload()

    assert [{"key": "output.remote-write"}] == [record.__dict__["fields"] for record in caplog.records]
    assert is_config_good(running)


@pytest.mark.parametrize("error", [ConfigError("key is unknown"), SourceError("/proc cannot be read")])
def test_failed_reload_keeps_the_readings_and_is_reported(error: SlurmscopeError) -> None:
    readings = Readings()
    outcomes: list[ReadingSet | SlurmscopeError] = [error, readings]

    def make_readings(_: Config) -> ReadingSet:
        outcome = outcomes.pop()
        if isinstance(outcome, SlurmscopeError):
            raise outcome
        return outcome

    running = RunningExporter(
        Exporter(role=Role.NODE, load=load_defaults, make_readings=make_readings), load_defaults()
    )

    running.reload()

    assert 0 == readings.closed
    assert not is_config_good(running)
