# SPDX-License-Identifier: Apache-2.0
"""Run an exporter: build it from the configuration, serve, push and write its page, reload and stop it."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import IO

from slurmscope.core import log
from slurmscope.core.clock import attempt, run_periodically
from slurmscope.core.config import Config, own_environment
from slurmscope.core.errors import SlurmscopeError
from slurmscope.core.log import fields
from slurmscope.core.process import Signals, settle_memory, shorten_thread_turns
from slurmscope.exporter.collector import Collector, Role
from slurmscope.exporter.feature import Feature, OpenFeatures, OwnPage, collectors_of, open_features
from slurmscope.exporter.outputs import PushGateway, remove_stale_parts, write_textfile
from slurmscope.exporter.page import EnabledCollector, PageService
from slurmscope.exporter.reading import PushedPage
from slurmscope.exporter.self_metrics import SelfMetrics, adapt_to_textfile
from slurmscope.exporter.settings import (
    LogSettings,
    MetricsSettings,
    OutputSettings,
    ReportMetrics,
    Switch,
    WebSettings,
    wanted_metrics,
    wanted_samples,
)
from slurmscope.http.server.app import Audience, ExporterApp, Route, ScrapeRequest
from slurmscope.http.server.server import Server
from slurmscope.metrics.family import Family, Metric
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.write import Format

logger = logging.getLogger(__name__)


FINAL_DELETE_SECONDS = 3.0

MakePage = Callable[[], Iterable[bytes]]
"""Return a fresh page in text format, in blocks."""


@contextmanager
def open_textfile_loop(make_page: MakePage, path: Path, interval_seconds: float) -> Iterator[None]:
    """Keep a file for node_exporter up to date; the last page stays when the exporter ends."""
    remove_stale_parts(path)
    logger.info("writing metrics to a file", extra=fields(path=str(path), interval=interval_seconds))
    with run_periodically("textfile", interval_seconds, lambda: write_textfile(path, make_page())):
        yield


@contextmanager
def open_push_loop(make_page: MakePage, is_idle: Callable[[], bool], settings: OutputSettings) -> Iterator[None]:
    """Keep one group of a Pushgateway up to date; delete it while ``is_idle`` returns True, and at the end."""
    stopping = threading.Event()
    grouping = dict(item.split("=", 1) for item in settings.push_grouping) or {"instance": socket.gethostname()}
    gateway = PushGateway(url=settings.push, job="slurmscope", grouping=grouping, sleep=stopping.wait)
    has_cleaned_up = False

    def push() -> None:
        nonlocal has_cleaned_up
        if not has_cleaned_up:
            gateway.delete_left_over()
            has_cleaned_up = True
        blocks = list(make_page())
        if is_idle():
            gateway.delete()
        else:
            gateway.put(blocks)

    logger.info("pushing metrics", extra=fields(group=str(grouping), interval=settings.interval))
    with run_periodically("push", settings.interval, push, stopping=stopping):
        yield
    final = replace(gateway, timeout_seconds=1.0, deadline_seconds=FINAL_DELETE_SECONDS, sleep=time.sleep)
    attempt("push", final.delete)


CLOSE_SECONDS = 5.0
FIXED_SETTINGS = ("web.", "output.")
"""Prefixes of the keys that a reload does not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """Declare an exporter: its features, of which the first is its own, and how to load its configuration.

    ``reports`` are the metrics of its profile of that name.
    """

    role: Role
    features: tuple[Feature, ...]
    load: Callable[[], Config]
    reports: ReportMetrics = field(default_factory=ReportMetrics)

    @property
    def collectors(self) -> tuple[Collector, ...]:
        """Return all collectors, enabled or not."""
        return collectors_of(self.features)

    def wanted_metrics(self, config: Config) -> Callable[[Metric], bool]:
        """Return the filter for the metrics to export."""
        return wanted_metrics(config, self.role, self.collectors, self.reports)

    def open_features(self, config: Config, page: OwnPage | None = None) -> OpenFeatures:
        is_wanted = self.wanted_metrics(config)
        return open_features(self.features, self.role, config, own_environment(), is_wanted=is_wanted, page=page)


class RunningExporter:
    """Run the features and the page service of the current configuration; a reload replaces them."""

    def __init__(self, exporter: Exporter, config: Config) -> None:
        self._exporter = exporter
        self._first_config = config
        self._server: Server | None = None
        self._is_started = False
        self.features: OpenFeatures
        self._build(config)

    def scrape(self, request: ScrapeRequest) -> Iterable[bytes]:
        """Return the page of the current service."""
        return self.service.scrape(request)

    def routes(self) -> Mapping[str, Route]:
        """Return the further paths of the current service."""
        return self.features.routes()

    def start(self) -> None:
        """Begin to serve: open what clients and files need, such as the push inbox."""
        self.features.start(None)
        self._is_started = True

    def make_page(self) -> Iterable[bytes]:
        return self.service.expose_once(Format.TEXT)[0]

    def make_textfile(self) -> Iterable[bytes]:
        """Return a fresh page for the folder of a node_exporter, which may hold several."""
        role = self._exporter.role
        return self.service.expose_once(Format.TEXT, lambda families: adapt_to_textfile(families, role))[0]

    def collect(self, deadline_seconds: float) -> list[Family]:
        return self.service.collect_once(deadline_seconds)

    def pushed(self) -> PushedPage:
        return self.features.pushed()

    def is_idle(self) -> bool:
        """Return whether the last page holds nothing worth a push."""
        return self.features.is_idle()

    def watch_server(self, server: Server) -> None:
        """Export the request counters and the web configuration state of this server."""
        self._server = server
        self._self_metrics.requests = server.counters
        self._self_metrics.gate = server.rules

    def close(self) -> None:
        self.features.close()

    def reload(self) -> None:
        """Load the configuration again; an invalid one changes nothing but the metric that reports it."""
        before = self.features
        if self._server:
            self._server.accept_config()
        try:
            config = self._exporter.load()
            self._build(config)
        except SlurmscopeError as error:
            self._self_metrics.is_config_good = False
            logger.error("configuration not reloaded", extra=log.fields(error=str(error)))
        else:
            before.close()
            configure_log(config)
            logger.info("configuration reloaded")
            self._warn_of_unused(config)

    def _warn_of_unused(self, config: Config) -> None:
        for key, used in self._first_config.values.items():
            if key.startswith(FIXED_SETTINGS) and config.values[key].value != used.value:
                logger.warning("this changed setting takes effect after a restart", extra=log.fields(key, key=key))

    def _build(self, config: Config) -> None:
        exporter, limits = self._exporter, config.of(MetricsSettings)
        is_wanted = exporter.wanted_metrics(config)
        features = exporter.open_features(config, OwnPage(collect=self.collect, pushed=self.pushed))
        guard = Guard(series_limit=limits.series_limit, label_length_limit=limits.label_length_limit)
        if self._is_started:
            features.start(self.features)
        self._self_metrics = SelfMetrics(features=features, guard=guard, config_time_seconds=time.time())
        if self._server:
            self.watch_server(self._server)
        self.service = PageService(
            [
                enabled
                for enabled in enabled_collectors(exporter.collectors, config)
                if any(map(is_wanted, enabled.collector.metrics))
            ],
            features,
            guard=guard,
            self_families=self._self_metrics.families,
            is_wanted=is_wanted,
            narrow=wanted_samples(config, exporter.role, exporter.reports),
        )
        self.features = features


def run_once(exporter: Exporter, stream: IO[bytes]) -> int:
    """Write one page to a stream; return 0, or 1 if a collector failed."""
    config = exporter.load()
    configure_log(config)
    with closing(RunningExporter(exporter, config)) as running:
        blocks, is_success = running.service.expose_once(Format.TEXT, audience=Audience.ADMITTED)
        for block in blocks:
            stream.write(block)
        stream.flush()
    return 0 if all(is_success.values()) else 1


def run_forever(exporter: Exporter) -> int:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads the configuration."""
    config = exporter.load()
    configure_log(config)
    settle_memory()
    shorten_thread_turns()  # posts of trace samples must not wait for a large page
    with Signals() as signals, closing(RunningExporter(exporter, config)) as running, ExitStack() as stack:
        running.start()
        has_output = _open_outputs(running, config.of(OutputSettings), stack)
        if not has_output or not config.is_default("web.listen-address"):
            stack.enter_context(_open_server(running, config.of(WebSettings), name=f"slurmscope {exporter.role.value}"))
        while signals.wait_for_reload():
            running.reload()
        logger.info("stopping")
    return 0


def enabled_collectors(collectors: Iterable[Collector], config: Config) -> list[EnabledCollector]:
    """Return the enabled collectors with their options."""
    return [
        EnabledCollector(collector=collector, options=_options(collector, config))
        for collector in collectors
        if config.of(Switch, f"collector.{collector.name}").enabled
    ]


def configure_log(config: Config) -> None:
    settings = config.of(LogSettings)
    log.configure(settings.level, settings.format, sys.stderr)


def _open_outputs(running: RunningExporter, output: OutputSettings, stack: ExitStack) -> bool:
    """Start the configured outputs other than HTTP; return whether there are any, also of features."""
    if output.textfile:
        stack.enter_context(open_textfile_loop(running.make_textfile, output.textfile, output.interval))
    if output.push:
        stack.enter_context(open_push_loop(running.make_page, running.is_idle, output))
    return bool(output.textfile or output.push) or running.features.is_output


@contextmanager
def _open_server(running: RunningExporter, web: WebSettings, *, name: str) -> Iterator[None]:
    app = ExporterApp(
        running.scrape,
        telemetry_path=web.telemetry_path,
        max_requests=web.max_requests,
        name=name,
        find_routes=running.routes,
        is_text_only=lambda: running.features.is_text_only,
    )
    server = Server(app, addresses=web.listen_address, find_upload=app.find_upload, config_file=web.config_file)
    running.watch_server(server)
    server.start()
    for address in server.addresses:
        logger.info("listening", extra=log.fields(address=address, path=web.telemetry_path))
    try:
        yield
    finally:
        server.close(CLOSE_SECONDS)


def _options(collector: Collector, config: Config) -> object:
    if not dataclass_fields(collector.options):
        return collector.options()
    return config.of(collector.options, f"collector.{collector.name}")
