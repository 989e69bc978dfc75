# SPDX-License-Identifier: Apache-2.0
"""Run everything in one process: recorder, collectors, reporter and portal.

Recorded are the metrics of this process's own collectors, and of node agents that it scrapes::

    slurmscope_recorder_samples_total 1.2e+06
    slurmscope_recorder_dropped_samples_total{reason="late"} 3
    slurmscope_agent_scrapes_total{outcome="failed"} 2
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial

from slurmscope.accounting.settings import AccountingSettings
from slurmscope.core.clock import run_periodically
from slurmscope.core.config import Config
from slurmscope.core.errors import MalformedAnswer, ServerError, ServerRefused, SlurmscopeError
from slurmscope.core.log import fields
from slurmscope.core.process import run_until_interrupted
from slurmscope.exporter.collector import Role
from slurmscope.exporter.exporter import Exporter, configure_log, enabled_collectors
from slurmscope.exporter.feature import OpenFeatures
from slurmscope.exporter.page import CollectorOutcome, EnabledCollector, run_collector
from slurmscope.http.client.credentials import TokenFile
from slurmscope.http.client.request import ClientRequest, send, tls_context
from slurmscope.metrics.family import Family, Labels, counter
from slurmscope.portal.run import UpParts, require_portal, run_portal
from slurmscope.recorder.cluster_charts import ClusterCharts
from slurmscope.recorder.recorder import Recorder
from slurmscope.recorder.settings import CLUSTER_INTERVAL_SECONDS, RECORDED_METRICS, RecorderSettings
from slurmscope.reports.sources import OwnSeries, require_one_cluster
from slurmscope.slurm.command import SlurmCommands, SlurmSettings
from slurmscope.slurm.states import PENDING, RUNNING
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


logger = logging.getLogger(__name__)


MAX_CONCURRENT_SCRAPES = 32
PAGE_LIMIT_BYTES = 64 * 1024 * 1024
SHOWN_PROBLEMS = 3
MAX_SKIPPED_ROUNDS = 19
"""An agent that keeps failing is skipped for up to this many rounds: many nodes may be down at a time."""


class AgentScrapes:
    """Scrape a list of agents; log when one starts or stops failing."""

    def __init__(
        self,
        targets: Sequence[Target],
        recorder: Recorder,
        *,
        timeout_seconds: float,
        token_files: Mapping[Target, TokenFile] | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Scrapes by outcome: good, failed, or skipped because earlier ones still ran or failed."""
        self._targets = tuple(targets)
        self._recorder = recorder
        self._timeout_seconds = timeout_seconds
        self._token_files = token_files or {}
        self._wall_clock = wall_clock
        self._tls = tls_context() if any(target.address.is_tls for target in targets) else None
        self._pool = ThreadPoolExecutor(max(1, min(MAX_CONCURRENT_SCRAPES, len(targets))), thread_name_prefix="scrape")
        self._running: dict[Target, Future[None]] = {}
        self._problems: dict[Target, str] = {}
        self._foreign: dict[Target, str] = {}
        self._failures: Counter[Target] = Counter()
        self._rounds_to_skip: Counter[Target] = Counter()
        self._lock = threading.RLock()

    def scrape_all(self) -> None:
        """Scrape every agent once, those that worked the last time first, and wait for all of them to end."""
        with self._lock:  # a scrape that began is known as running before another round looks
            for target in sorted(self._targets, key=self._failures.__getitem__):
                if self._is_running(target) or self._is_skipped(target):
                    self._count("skipped")
                else:
                    self._running[target] = self._pool.submit(self._scrape, target)
        rounds = -(-len(self._targets) // MAX_CONCURRENT_SCRAPES)
        wait(self._running.values(), timeout=rounds * self._timeout_seconds + 1.0)

    def problems(self) -> Iterator[str]:
        """Describe in one sentence each which agents fail, and which report what is not theirs."""
        with self._lock:
            failing, foreign = list(self._problems.values()), list(self._foreign.values())
        if failing:
            yield f"{len(failing)} of {len(self._targets)} node agents could not be scraped: {_shorten(failing)}."
        if foreign:
            yield (
                f"{len(foreign)} of {len(self._targets)} node agents reported nodes or metrics that are not theirs, "
                f"which was ignored: {_shorten(foreign)}. See --up.targets."
            )

    def close(self) -> None:
        """Start no further scrape; running ones end at their timeout."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _is_running(self, target: Target) -> bool:
        before = self._running.get(target)
        return before is not None and not before.done()

    def _is_skipped(self, target: Target) -> bool:
        """Return whether to skip an agent in this round, and count the round."""
        is_skipped = self._rounds_to_skip[target] > 0
        self._rounds_to_skip[target] -= is_skipped
        return is_skipped

    def _scrape(self, target: Target) -> None:
        try:
            page = self._fetch(target)
            foreign = self._recorder.record_page(self._wall_clock(), page, nodes=target.nodes, source=str(target))
            self._note_foreign(target, foreign)
        except SlurmscopeError as error:
            self._note(target, f"{target}: {error}")
        except Exception as error:  # a bug with one page must not stop the others
            logger.exception("scrape failed", extra=fields("bug", target=str(target)))
            self._note(target, f"{target}: {error!r}")
        else:
            self._note(target, "")

    def _fetch(self, target: Target) -> str:
        headers = {"Accept": "text/plain;version=0.0.4"}
        if (token_file := self._token_files.get(target)) is not None:
            headers["Authorization"] = f"Bearer {token_file.read()}"
        deadline = time.monotonic() + self._timeout_seconds
        request = ClientRequest(headers=headers)
        answer = send(target.address, request, deadline=deadline, tls=self._tls, limit_bytes=PAGE_LIMIT_BYTES)
        if answer.status in {401, 403}:
            raise ServerRefused(f"it answered {answer.status}; see --up.bearer-token-file")
        if answer.status != 200:
            raise ServerError(f"it answered {answer.status}")
        try:
            return answer.body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise MalformedAnswer("its page is not UTF-8") from error

    def _note(self, target: Target, problem: str) -> None:
        with self._lock:
            had_problem = target in self._problems
            if problem:
                self._problems[target] = problem
                self._failures[target] += 1
                self._rounds_to_skip[target] = min(MAX_SKIPPED_ROUNDS, 2 ** min(9, self._failures[target] - 1) - 1)
            else:
                self._problems.pop(target, None)
                self._failures[target] = 0
        self._count("failed" if problem else "good")
        if problem and not had_problem:
            logger.warning("scraping a node agent failed", extra=fields(target=str(target), error=problem))
        elif had_problem and not problem:
            logger.info("scraping a node agent works again", extra=fields(target=str(target)))

    def _note_foreign(self, target: Target, samples: int) -> None:
        with self._lock:
            is_new = samples > 0 and target not in self._foreign
            if samples:
                self._foreign[target] = f"{target}: {samples} samples"
            else:
                self._foreign.pop(target, None)
        if is_new:
            logger.warning(
                "ignored what a node agent reports beyond its own node",
                extra=fields(target=str(target), nodes=",".join(target.nodes[:SHOWN_PROBLEMS]), samples=samples),
            )

    def _count(self, outcome: str) -> None:
        with self._lock:
            self.counts[outcome] += 1


def _shorten(sentences: Sequence[str]) -> str:
    more = f"; and {len(sentences) - SHOWN_PROBLEMS} more" if len(sentences) > SHOWN_PROBLEMS else ""
    return "; ".join(sentences[:SHOWN_PROBLEMS]) + more


SAMPLES = counter("slurmscope_recorder_samples_total", "Samples that were recorded since the start.")
DROPPED = counter(
    "slurmscope_recorder_dropped_samples_total",
    "Samples that were left out: late, not_finite, too_many series, too_long labels, or foreign to the scraped node.",
    "reason",
)
SCRAPES = counter(
    "slurmscope_agent_scrapes_total",
    "Scrapes of node agents: good, failed, or skipped because those before still ran or failed.",
    "outcome",
)
RECORDING_METRICS = (SAMPLES, DROPPED, SCRAPES)

REASONS = ("late", "not_finite", "too_many", "too_long", "foreign")
OUTCOMES = ("good", "failed", "skipped")

ZEROS: Mapping[str, tuple[Labels, ...]] = {"slurm_jobs": ((RUNNING,), (PENDING,))}
"""States that are drawn, but that collectors leave out when no job has them: a gap would mean not measured."""


class OwnCollectors:
    """Run the collectors of a role that have recorded metrics, and no others: each queries the controller."""

    def __init__(
        self,
        features: OpenFeatures,
        collectors: Iterable[EnabledCollector],
        *,
        metrics: Collection[str],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the features, the collectors, and the names of the metrics to record."""
        self._features = features
        self._metrics = frozenset(metrics)
        self._collectors = tuple(
            enabled for enabled in collectors if any(metric.name in metrics for metric in enabled.collector.metrics)
        )
        self._wall_clock = wall_clock

    def record(self, recorder: Recorder, *, deadline_seconds: float) -> None:
        """Read once and record; metrics of late or failed readings are left out."""
        needs = [name for enabled in self._collectors for name in enabled.collector.reading_names]
        snapshots = self._features.read(needs, time.monotonic() + deadline_seconds)
        # A cached value is not a sample of now: a gap means not measured.
        fresh = [enabled for enabled in self._collectors if enabled.is_fresh(snapshots)]
        outcomes: dict[str, CollectorOutcome] = {}
        families = [
            _with_zeros(family)
            for enabled in fresh
            for family in run_collector(enabled, snapshots, outcomes)
            if family.metric.name in self._metrics
        ]
        if families:
            recorder.record_families(self._wall_clock(), families)

    def close(self) -> None:
        self._features.close()


def _with_zeros(family: Family) -> Family:
    zeros = dict.fromkeys(ZEROS.get(family.metric.name, ()), 0.0)
    return replace(family, samples={**zeros, **dict(family.samples)}) if zeros else family


def recording_families(recorder: Recorder, scrapes: Mapping[str, int] | None = None) -> Iterator[Family]:
    """Yield the metrics of recording; ``scrapes`` counts outcomes where node agents are scraped."""
    yield Family(SAMPLES, {(): float(recorder.recorded)})
    yield Family(DROPPED, {(reason,): float(recorder.dropped.get(reason, 0)) for reason in REASONS})
    if scrapes is not None:
        yield Family(SCRAPES, {(outcome,): float(scrapes.get(outcome, 0)) for outcome in OUTCOMES})


def open_collectors(exporter: Exporter) -> OwnCollectors:
    """Return the enabled collectors of an exporter; close them in the end."""
    config = exporter.load()
    return OwnCollectors(
        exporter.open_features(config), enabled_collectors(exporter.collectors, config), metrics=RECORDED_METRICS
    )
