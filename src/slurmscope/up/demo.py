# SPDX-License-Identifier: Apache-2.0
"""Run everything over a simulated cluster: its running jobs are recorded, and it has a history of ended jobs."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from slurmscope.archive.interface import Archive
from slurmscope.core.clock import run_periodically
from slurmscope.core.config import Config
from slurmscope.core.errors import SlurmscopeError
from slurmscope.core.log import fields
from slurmscope.exporter.collector import Role
from slurmscope.exporter.exporter import Exporter, configure_log
from slurmscope.jobs.record import JobAccounting, JobRecord
from slurmscope.jobs.script import JobScript
from slurmscope.jobs.viewer import Viewer, ViewerRole
from slurmscope.lustre.use import ClientKind, Period, Quantity, TopClient, TopClients
from slurmscope.portal.run import UpParts, require_portal, run_portal
from slurmscope.portal.sign_in.identity import DemoView
from slurmscope.recorder.cluster_charts import ClusterCharts
from slurmscope.recorder.recorder import Recorder
from slurmscope.recorder.settings import RecorderSettings
from slurmscope.reporter.reporter import CLUSTER_CHECKPOINT
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.scripts import add_findings
from slurmscope.reports.sources import open_reporting
from slurmscope.simulator.cluster.busy_day import file_use_of, samples_of
from slurmscope.simulator.cluster.records import SimulatedCluster, SimulatedJob
from slurmscope.simulator.history.accounting import JoinedAccounting, SimulatedAccounting
from slurmscope.simulator.history.history import History, make_script
from slurmscope.simulator.history.workload_series import SeriesByCluster, SimulatedSeries, SplitSeries, samples_at
from slurmscope.simulator.history.workloads import Workload
from slurmscope.up.up import open_collectors, recording_families

if TYPE_CHECKING:
    from slurmscope.archive.sql_archive import SqlArchive

logger = logging.getLogger(__name__)


FIRST_JOBS = 300
FIRST_SECONDS = 2.0
"""The first page waits for this many of the newest jobs, or this long."""
BATCH_JOBS = 20
LOGGED_JOBS = 500
ROUND_SECONDS = 20.0
CHARTS_SECONDS = 86_400.0
BACKFILL_STEP_SECONDS = 120.0
"""Within the window of a recorder whose interval is a minute, so that its curves have no gaps."""
HEAD_START_SECONDS = 4.0
READY_SECONDS = 60.0
END_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The simulated clusters, and how many jobs have ended on each."""

    cluster: SimulatedCluster
    """The one whose queue and nodes are shown, and whose running jobs are recorded."""
    others: tuple[SimulatedCluster, ...] = ()
    past_jobs: int = 3000
    seed: int = 1


def run_demo(
    demo: Demo,
    config: Config,
    environment: Mapping[str, str],
    exporters: Sequence[Exporter],
    *,
    ready: Callable[[str], None] = lambda _: None,
) -> int:
    """Serve until interrupted; the caller removes the directory of the configuration."""
    configure_log(config)
    require_portal()
    accounts = _make_accounts(demo)
    accounting, workloads = JoinedAccounting(accounts), accounts[demo.cluster.name].running_workloads
    computed = {name: SimulatedSeries(known.find_workload) for name, known in accounts.items()}
    running = frozenset(workload.job_id for workload in workloads)
    is_recorded, is_ready = threading.Event(), threading.Event()

    # The first pages have priority: background work starts a little later.
    head_start = threading.Timer(HEAD_START_SECONDS, is_ready.set)
    head_start.daemon = True

    def begin(address: str) -> None:
        head_start.start()
        ready(address)

    with Recorder(config.of(RecorderSettings)) as recorder, ExitStack() as stack:
        own_series = SplitSeries(
            recorder.series(), lambda job: job in running and is_recorded.is_set(), computed[demo.cluster.name]
        )
        series = SeriesByCluster({**computed, demo.cluster.name: own_series})
        reporting = stack.enter_context(
            open_reporting(config, environment, series=series, accounting=accounting, is_archiving=True)
        )
        if reporting.archive is not None:
            _skip_ended(reporting.archive, accounts)
            stack.enter_context(_fill_first(reporting.archive, reporting.maker, accounting).filling(is_ready))
        stack.callback(head_start.cancel)
        stack.enter_context(_record_workloads(workloads, demo.cluster, exporters, recorder, is_recorded, is_ready))
        up = UpParts(
            families=partial(recording_families, recorder),
            charts=ClusterCharts(recorder.series().read_cluster),
            scripts=_SimulatedScripts(),
            demo_views=make_views(demo.cluster),
            filesystems=lambda: make_top_clients(demo.cluster),
        )
        return run_portal(config, environment, series=series, accounting=accounting, up=up, ready=begin)


def _skip_ended(archive: SqlArchive, clusters: Iterable[str]) -> None:
    """Let the reporter handle running jobs only; those that have ended are archived here."""
    from slurmscope.archive.checkpoints import Checkpoints

    checkpoints = Checkpoints(archive.database)
    for name in clusters:
        checkpoints.write_checkpoint(CLUSTER_CHECKPOINT + name, str(int(time.time())))


def _make_accounts(demo: Demo) -> dict[str, SimulatedAccounting]:
    return {
        cluster.name: SimulatedAccounting(cluster, History(cluster, jobs=demo.past_jobs, seed=seed).make())
        for seed, cluster in enumerate((demo.cluster, *demo.others), demo.seed)
    }


def make_views(cluster: SimulatedCluster) -> tuple[DemoView, ...]:
    """Return one user with the rights of staff, of a coordinator, and of a user without any."""
    name, account = cluster.users[0].name, cluster.accounts[0]
    return (
        DemoView(
            name="staff",
            label="staff",
            help="sees the jobs of all users, and how much was wasted",
            viewer=Viewer(name=name, role=ViewerRole.ADMIN),
        ),
        DemoView(
            name="coordinator",
            label=f"coordinator of {account}",
            help=f"sees all jobs of the account {account} and own jobs",
            viewer=Viewer(name=name, coordinates=frozenset({account})),
        ),
        DemoView(name="user", label="user", help="sees own jobs only", viewer=Viewer(name=name)),
    )


def make_top_clients(cluster: SimulatedCluster) -> TopClients:
    """Return which running jobs and users use the file systems most."""
    clients: list[TopClient] = []
    for filesystem, rates in file_use_of(cluster).items():
        for quantity in (Quantity.READ, Quantity.WRITE, Quantity.METADATA):
            now = {job: each[quantity] for job, each in rates.items()}
            clients += _rank_clients((filesystem, Period.NOW), quantity, now)
            day = {job: rate * (cluster.now - (job.start_time or cluster.now)) for job, rate in now.items()}
            clients += _rank_clients((filesystem, Period.DAY), quantity, day)
    return TopClients(tuple(clients))


_TOP = 8


def _rank_clients(
    of: tuple[str, Period], quantity: Quantity, jobs: Mapping[SimulatedJob, float]
) -> Iterator[TopClient]:
    """Yield the jobs and the users with the largest amounts."""
    users: defaultdict[str, float] = defaultdict(float)
    for job, amount in jobs.items():
        users[job.user.name] += amount
    for job in nlargest(_TOP, jobs, key=jobs.__getitem__):
        yield TopClient(*of, ClientKind.JOB, quantity, str(job.id), job.user.name, job.account or "", jobs[job])
    for name in nlargest(_TOP, users, key=users.__getitem__):
        yield TopClient(*of, ClientKind.USER, quantity, name, name, "", users[name])


class _SimulatedScripts:
    def read(self, record: JobRecord) -> JobScript:
        return add_findings(JobScript(text=make_script(record)), record)

    read_soon = read

    def is_stored(self, cluster: str = "") -> bool:
        return True


@contextmanager
def _record_workloads(
    workloads: Sequence[Workload],
    cluster: SimulatedCluster,
    exporters: Sequence[Exporter],
    recorder: Recorder,
    is_recorded: threading.Event,
    is_ready: threading.Event,
) -> Iterator[None]:
    """Record the past of running jobs, and then their metrics and those of the simulated controller.

    Starts once pages can be opened.
    """
    with ExitStack() as stack:
        own = [
            stack.enter_context(closing(open_collectors(exporter)))
            for exporter in exporters
            if exporter.role is Role.CLUSTER
        ]

        def record() -> None:
            now = time.time()
            recorder.record(now, samples_at(workloads, now))
            for collectors in own:
                collectors.record(recorder, deadline_seconds=ROUND_SECONDS)

        stopping = threading.Event()

        def record_past() -> None:
            if is_ready.wait(READY_SECONDS):
                backfill(workloads, recorder, is_recorded, stopping, cluster)

        def end() -> None:
            stopping.set()
            is_ready.set()

        stack.enter_context(run_periodically("workloads", ROUND_SECONDS, record, first=record_past, stopping=stopping))
        stack.callback(end)
        yield


def backfill(
    workloads: Sequence[Workload],
    recorder: Recorder,
    is_recorded: threading.Event,
    stopping: threading.Event,
    cluster: SimulatedCluster | None = None,
) -> None:
    """Record the past of running jobs and a day of the cluster at a coarse step, in order of time, until stopped."""
    now = time.time()
    moment = min((workload.start_seconds for workload in workloads), default=now)
    if cluster is not None:
        moment = min(moment, now - CHARTS_SECONDS)
    while moment < now:
        if stopping.is_set():
            return
        recorder.record(moment, samples_at(workloads, moment))
        if cluster is not None and moment > now - CHARTS_SECONDS:
            recorder.record(moment, samples_of(cluster, moment))
        moment += BACKFILL_STEP_SECONDS
    recorder.record(now, samples_at(workloads, now))
    is_recorded.set()
    logger.info("past of running jobs recorded", extra=fields(jobs=len(workloads), samples=recorder.recorded))


def _newest_first(accounting: JobAccounting, *, past_until: float) -> list[JobRecord]:
    """Return every job that has started, in the order of job lists."""
    records = [*accounting.read_ended(0, int(past_until)), *(r for r in accounting.read_current() if r.is_running)]
    return sorted(records, key=lambda record: (record.submit_seconds, record.job_id), reverse=True)


def _fill_first(archive: Archive, maker: ReportMaker, accounting: JoinedAccounting) -> _Filler:
    """Archive the jobs that the first page waits for; the result archives the others."""
    filler = _Filler(archive, maker, _newest_first(accounting, past_until=time.time()))
    filler.fill(FIRST_JOBS, time.monotonic() + FIRST_SECONDS)
    return filler


class _Filler:
    def __init__(self, archive: Archive, maker: ReportMaker, records: Sequence[JobRecord]) -> None:
        self._archive = archive
        self._maker = maker
        self._left = iter(records)
        self._done = 0
        self._stopping = threading.Event()

    def fill(self, jobs: int, until: float) -> bool:
        """Archive up to this many jobs until a monotonic time; return whether any are left."""
        for _ in range(-(-jobs // BATCH_JOBS)):
            batch = list(islice(self._left, BATCH_JOBS))
            if not batch:
                return False
            self._archive.save(self._maker.make(batch))
            self._done += len(batch)
            if time.monotonic() > until or self._stopping.is_set():
                break
        return True

    @contextmanager
    def filling(self, is_ready: threading.Event) -> Iterator[None]:
        """Archive the remaining jobs in a thread, once pages can be opened."""
        thread = threading.Thread(target=self._fill_rest, args=(is_ready,), name="history", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            is_ready.set()
            thread.join(END_SECONDS)

    def _fill_rest(self, is_ready: threading.Event) -> None:
        has_more = is_ready.wait(READY_SECONDS)
        while has_more and not self._stopping.is_set():
            try:
                has_more = self.fill(LOGGED_JOBS, time.monotonic() + ROUND_SECONDS)
            except SlurmscopeError as error:
                # The jobs of one batch are lost, which is acceptable in a demo.
                logger.warning("archiving past jobs failed", extra=fields(error=str(error)))
            logger.info("past jobs archived", extra=fields(jobs=self._done))
