# SPDX-License-Identifier: Apache-2.0
"""Check the reload of a running exporter."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import bcrypt
import pytest

from slurmscope.cli.roles import all_collectors
from slurmscope.core.config import Config, load
from slurmscope.core.errors import ConfigError, SlurmscopeError, SourceError
from slurmscope.exporter.collector import Role
from slurmscope.exporter.exporter import Exporter, RunningExporter
from slurmscope.exporter.feature import Feature, Host, Running, open_features
from slurmscope.exporter.reading import SharedReading
from slurmscope.exporter.settings import exporter_sections
from slurmscope.http.server.app import ScrapeRequest
from slurmscope.http.server.response import text_response
from slurmscope.http.server.server import Server

COLLECTORS = all_collectors(Role.NODE)


class Part:
    """Provide every reading that a collector of the node agent needs, and count how often it is closed."""

    def __init__(self) -> None:
        self.closed = 0
        self.taken_over: list[object] = []

    def open(self, _: Host) -> Running:
        names = {name for collector in COLLECTORS for name in collector.reading_names}
        return Running(
            readings=tuple(SharedReading(name, object, interval_seconds=60) for name in names),
            state=self,
            start=self.taken_over.append,
            close=self.close,
        )

    def close(self) -> None:
        self.closed += 1


def make_exporter(open: Callable[[Host], Running], load: Callable[[], Config]) -> Exporter:
    return Exporter(role=Role.NODE, features=(Feature(name="test", collectors=COLLECTORS, open=open),), load=load)


def load_defaults() -> Config:
    return load(exporter_sections(Role.NODE, COLLECTORS), flags={}, environment={})


def is_config_good(running: RunningExporter) -> bool:
    page = b"".join(running.scrape(ScrapeRequest(exclude=frozenset({"gpus", "job_use"}))))
    return b"slurmscope_config_last_reload_successful 1.0\n" in page


def test_reload_replaces_the_features_and_closes_the_old_ones() -> None:
    made = [Part(), Part()]
    opened = iter(made)
    running = RunningExporter(make_exporter(lambda host: next(opened).open(host), load_defaults), load_defaults())
    running.start()

    running.reload()

    assert [1, 0] == [part.closed for part in made]
    assert [[None], [made[0]]] == [part.taken_over for part in made]
    assert is_config_good(running)


def test_changed_settings_that_need_a_restart_are_named(caplog: pytest.LogCaptureFixture) -> None:
    def load_changed() -> Config:
        environment = {"SLURMSCOPE_OUTPUT_PUSH": "http://h", "SLURMSCOPE_METRICS_PROFILE": "full"}
        return load(exporter_sections(Role.NODE, COLLECTORS), flags={}, environment=environment)

    running = RunningExporter(make_exporter(Part().open, load_changed), load_defaults())
    with caplog.at_level(logging.WARNING):
        running.reload()

    assert [{"key": "output.push"}] == [record.__dict__["fields"] for record in caplog.records]
    assert is_config_good(running)


@pytest.mark.parametrize("error", [ConfigError("key is unknown"), SourceError("/proc cannot be read")])
def test_failed_reload_keeps_the_features_and_is_reported(error: SlurmscopeError) -> None:
    part = Part()
    outcomes: list[Part | SlurmscopeError] = [error, part]

    def open_part(host: Host) -> Running:
        outcome = outcomes.pop()
        if isinstance(outcome, SlurmscopeError):
            raise outcome
        return outcome.open(host)

    running = RunningExporter(make_exporter(open_part, load_defaults), load_defaults())

    running.reload()

    assert 0 == part.closed
    assert not is_config_good(running)


def test_features_that_were_opened_are_closed_if_a_later_one_cannot_be_opened() -> None:
    part = Part()

    def refuse(_: Host) -> Running:
        raise ConfigError("no such socket")

    features = (Feature(name="first", open=part.open), Feature(name="second", open=refuse))
    with pytest.raises(ConfigError):
        open_features(features, Role.NODE, load_defaults(), {})

    assert 1 == part.closed


def test_reload_accepts_that_the_web_configuration_protects_less(tmp_path: Path) -> None:
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{alice: {bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}}}\n")
    running = RunningExporter(make_exporter(Part().open, load_defaults), load_defaults())
    server = Server(lambda _: text_response(200, ""), config_file=web)
    running.watch_server(server)
    web.write_text("# nobody\n")
    refused = server.is_config_good

    running.reload()

    assert [False, True] == [refused, server.is_config_good]
    server.close()
