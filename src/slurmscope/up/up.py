# SPDX-License-Identifier: Apache-2.0
"""Run everything in one process: recorder, collectors, reporter and portal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from slurmscope.accounting.settings import AccountingSettings
from slurmscope.core.clock import run_periodically
from slurmscope.core.config import Config
from slurmscope.core.process import run_until_interrupted
from slurmscope.exporter.collector import Role
from slurmscope.exporter.exporter import Exporter, configure_log
from slurmscope.http.client.credentials import TokenFile
from slurmscope.portal.run import UpParts, require_portal, run_portal
from slurmscope.recorder.cluster_charts import ClusterCharts
from slurmscope.recorder.recorder import Recorder
from slurmscope.recorder.settings import CLUSTER_INTERVAL_SECONDS, RecorderSettings
from slurmscope.reports.sources import OwnSeries, require_one_cluster
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from slurmscope.up.scrapes import AgentScrapes, open_collectors, recording_families
from slurmscope.up.settings import Target, UpSettings

Action = tuple[str, float, Callable[[], None]]
"""A name, the interval in seconds, and the function to run."""


def run_up(
    config: Config,
    environment: Mapping[str, str],
    exporters: Sequence[Exporter],
    *,
    ready: Callable[[str], None] = lambda _: None,
) -> int:
    """Serve until SIGTERM or SIGINT; ``exporters`` are those of the roles whose collectors may run here."""
    configure_log(config)
    require_portal()
    open_token_files(config.of(UpSettings))
    require_one_cluster(config.of(AccountingSettings))

    def serve() -> int:
        with (
            Recorder(config.of(RecorderSettings)) as recorder,
            open_recording(config, exporters, recorder) as recording,
        ):
            series = OwnSeries(recorder.series(), SlurmCommands(config.of(SlurmSettings), environment).run)
            return run_portal(config, environment, series=series, up=recording, ready=ready)

    return run_until_interrupted(serve)


@contextmanager
def open_recording(config: Config, exporters: Sequence[Exporter], recorder: Recorder) -> Iterator[UpParts]:
    """Record from this process's own collectors and from node agents; yield the metrics and problems of recording."""
    settings, interval = config.of(UpSettings), config.of(RecorderSettings).interval
    with ExitStack() as stack:
        actions: list[Action] = []
        counts: Mapping[str, int] | None = None
        problems: Callable[[], Iterable[str]] = tuple
        for exporter in exporters:
            if settings.cluster if exporter.role is Role.CLUSTER else settings.node:
                own = stack.enter_context(closing(open_collectors(exporter)))
                period = max(interval, CLUSTER_INTERVAL_SECONDS) if exporter.role is Role.CLUSTER else interval
                actions.append((exporter.role.value, period, partial(own.record, recorder, deadline_seconds=period)))
        if settings.targets:
            scrapes = AgentScrapes(
                settings.targets, recorder, timeout_seconds=settings.timeout, token_files=open_token_files(settings)
            )
            stack.enter_context(closing(scrapes))
            actions.append(("agents", interval, scrapes.scrape_all))
            counts, problems = scrapes.counts, scrapes.problems
        # Each in its own loop, so that a slow one does not delay the others.
        for action in actions:
            stack.enter_context(run_periodically(*action))
        yield UpParts(
            families=partial(recording_families, recorder, counts),
            problems=problems,
            charts=ClusterCharts(recorder.series().read_cluster),
        )


def open_token_files(settings: UpSettings) -> dict[Target, TokenFile]:
    """Return the token file of each target that has one; raise ConfigError if a token would be sent in clear text."""
    paths = {target: settings.token_path(target) for target in settings.targets}
    # Targets of one file share its cache.
    files = {path: TokenFile(path) for path in paths.values() if path is not None}
    return {target: files[path] for target, path in paths.items() if path is not None}
