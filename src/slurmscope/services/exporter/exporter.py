# SPDX-License-Identifier: Apache-2.0
"""Run an exporter: build it from a configuration, serve it, reload it, end it."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, fields
from typing import IO

from slurmscope import log
from slurmscope.config import Config
from slurmscope.errors import ConfigError
from slurmscope.metrics.collector import Collector, Role
from slurmscope.metrics.family import Metric
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.write import Format
from slurmscope.outputs.http.app import ExporterApp
from slurmscope.outputs.http.server import Server
from slurmscope.outputs.settings import OutputSettings, WebSettings
from slurmscope.services.exporter.collecting import EnabledCollector
from slurmscope.services.exporter.outputs import open_push_loop, open_textfile_loop
from slurmscope.services.exporter.page import ExpositionService
from slurmscope.services.exporter.self_metrics import SelfReport
from slurmscope.services.exporter.settings import LogSettings, MetricsSettings, Switch, all_collectors
from slurmscope.services.exporter.wiring import Wiring
from slurmscope.services.runtime.memory import settle_memory
from slurmscope.services.runtime.signals import Signals

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """Say what differs from one exporter to the next: its role, and how its readings are made."""

    role: Role
    load: Callable[[], Config]
    wire: Callable[[Config], Wiring]


class LiveExposition:
    """Stand in front of the service that is in force, so that a reload can put another in its place."""

    def __init__(self, exporter: Exporter, config: Config) -> None:
        """Build the first service."""
        self._exporter = exporter
        self.role = exporter.role
        self._server: Server | None = None
        self._wiring: Wiring | None = None
        self._use(config)

    def scrape(
        self,
        *,
        format: Format,
        is_gzip: bool,
        include: frozenset[str] | None,
        exclude: frozenset[str],
        deadline_seconds: float | None,
    ) -> Iterable[bytes]:
        """Answer from the service in force."""
        return self.service.scrape(
            format=format, is_gzip=is_gzip, include=include, exclude=exclude, deadline_seconds=deadline_seconds
        )

    def tell_about(self, server: Server) -> None:
        """Tell in every page how this server does."""
        self._server = server
        self._report.requests = server.counters
        self._report.is_web_config_good = lambda: server.is_config_good

    def page(self, format: Format) -> Iterable[bytes]:
        """Return a fresh page for an output that nobody asks, such as a file."""
        blocks, _ = self.service.expose_once(format)
        return blocks

    def is_idle(self) -> bool:
        """Tell whether the page made last holds nothing worth a push."""
        return self._wiring is not None and self._wiring.is_idle()

    def is_ready(self) -> bool:
        """Tell whether scrapes can be answered."""
        return self.service.is_ready()

    def close(self) -> None:
        """End what runs in the background."""
        if self._wiring:
            self._wiring.close()

    def reload(self) -> None:
        """Read the configuration again; a broken one changes nothing but the metric that says so."""
        try:
            config = self._exporter.load()
            self._use(config)
        except ConfigError as error:
            self._report.is_config_good = False
            logger.error("configuration not reloaded", extra=log.fields(error=str(error)))
        else:
            configure_log(config)
            logger.info("configuration reloaded")

    def _use(self, config: Config) -> None:
        limits = config.of(MetricsSettings)
        wiring, before = self._exporter.wire(config), self._wiring
        guard = Guard(series_limit=limits.series_limit, label_length_limit=limits.label_length_limit)
        self._report = SelfReport(wiring=wiring, guard=guard, config_time_seconds=time.time())
        if self._server:
            self.tell_about(self._server)
        self.service = ExpositionService(
            enabled_collectors(self._exporter.role, config),
            wiring,
            guard=guard,
            self_families=self._report.families,
            is_wanted=wanted_metrics(limits),
        )
        self._wiring = wiring
        if before:
            before.close()


def run_once(exporter: Exporter, stream: IO[bytes]) -> int:
    """Write one page; return 0, or 1 when a collector failed."""
    config = exporter.load()
    configure_log(config)
    with closing(LiveExposition(exporter, config)) as live:
        blocks, is_success = live.service.expose_once(Format.TEXT)
        for block in blocks:
            stream.write(block)
        stream.flush()
    return 0 if all(is_success.values()) else 1


def run_forever(exporter: Exporter) -> int:
    """Serve until SIGTERM or SIGINT; SIGHUP reads the configuration again."""
    config = exporter.load()
    configure_log(config)
    output = config.of(OutputSettings)
    settle_memory()
    with Signals() as signals, closing(LiveExposition(exporter, config)) as live, ExitStack() as stack:
        if output.textfile:
            stack.enter_context(open_textfile_loop(live, output.textfile, output.interval))
        if output.push:
            stack.enter_context(open_push_loop(live, output))
        if not (output.textfile or output.push) or not config.is_default("web.listen-address"):
            stack.enter_context(open_server(live, config.of(WebSettings)))
        while signals.wait_for_reload():
            live.reload()
        logger.info("stopping")
    return 0


def enabled_collectors(role: Role, config: Config) -> list[EnabledCollector]:
    """Return the collectors that are switched on, with their options."""
    return [
        EnabledCollector(collector=collector, options=_options(collector, config))
        for collector in all_collectors(role)
        if config.of(Switch, f"collector.{collector.name}").enabled
    ]


def wanted_metrics(settings: MetricsSettings) -> Callable[[Metric], bool]:
    """Return the test that a metric must pass to be served."""
    excluded = re.compile(settings.exclude) if settings.exclude else None
    return lambda metric: (settings.compat or not metric.is_seed) and not (excluded and excluded.search(metric.name))


def configure_log(config: Config) -> None:
    """Log as the configuration says."""
    settings = config.of(LogSettings)
    log.configure(settings.level, settings.format, sys.stderr)


@contextmanager
def open_server(live: LiveExposition, web: WebSettings) -> Iterator[None]:
    """Answer scrapes over HTTP."""
    name = f"slurmscope {live.role.value}"
    app = ExporterApp(live, telemetry_path=web.telemetry_path, max_requests=web.max_requests, name=name)
    server = Server(app, addresses=web.listen_address, config_file=web.config_file)
    live.tell_about(server)
    server.start()
    for address in server.addresses:
        logger.info("listening", extra=log.fields(address=address, path=web.telemetry_path))
    try:
        yield
    finally:
        server.close(CLOSE_SECONDS)


def _options(collector: Collector, config: Config) -> object:
    if not fields(collector.options):
        return collector.options()
    return config.of(collector.options, f"collector.{collector.name}")
