# SPDX-License-Identifier: Apache-2.0
"""Fake the backend of a portal: an archive in memory, and viewers named by a header."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from fastapi import FastAPI

from slurmscope.archive.access import AuditLog
from slurmscope.archive.advice import SqlAdviceReader
from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.interface import Archive, Note, NotedThing, SavedView
from slurmscope.archive.staff import SqlSavedViews, SqlStaffNotes
from slurmscope.cluster.events import NodeEvent
from slurmscope.cluster.sinfo import Nodes
from slurmscope.core.errors import ArchiveError, SourceError
from slurmscope.core.tres import Gres
from slurmscope.exporter.reading import SharedReading
from slurmscope.jobs.advice import AdviceOutcome, AdviceTotal
from slurmscope.jobs.pending.blockers import QueueFacts
from slurmscope.jobs.pending.queue import PendingQueue
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import MAX_CHART_POINTS, Chart, ChartLine, JobReport
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.script import JobScript
from slurmscope.jobs.viewer import Viewer, ViewerRole
from slurmscope.jobs.wait_times import WaitingTime
from slurmscope.lustre.use import ClientKind, Period, Quantity, TopClient, TopClients
from slurmscope.portal.app import make_app
from slurmscope.portal.cluster_now import ClusterNow, NodeProblem, PartitionNow
from slurmscope.portal.live import LiveClusters
from slurmscope.portal.node_list import make_suspects_reading
from slurmscope.portal.nodes import NodeHistory
from slurmscope.portal.scope import Scope, header_values
from slurmscope.portal.services import Services
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.csrf import Csrf
from slurmscope.portal.sign_in.errors import NotSignedIn, SignInError
from slurmscope.portal.sign_in.identity import Identifier
from slurmscope.portal.zoom import RunPart, ZoomedReport, Zoomer
from slurmscope.recorder.cluster_charts import ClusterCharts
from slurmscope.reports.find import KnownClusters, ReportFinder
from slurmscope.reports.live_cache import WaitingTimesCache
from slurmscope.reports.make import ReportMaker
from tests.fakes.archive import FakeArchive
from tests.fakes.reports import GIB, HOSTILE_NAME, START, make_gpu_report, make_record, make_report

USER_HEADER = "x-test-user"
SECRET = b"s" * 32

VIEWERS = {
    "ada": Viewer(name="ada"),
    "bob": Viewer(name="bob"),
    "eve": Viewer(name="eve"),
    "cora": Viewer(name="cora", coordinates=frozenset({"physics"})),
    "sue": Viewer(name="sue", role=ViewerRole.SUPPORT),
    "root": Viewer(name="root", role=ViewerRole.ADMIN),
}

CLUSTER = ClusterNow(
    age_seconds=12.0,
    jobs_by_state={"RUNNING": 812, "PENDING": 1430, "COMPLETING": 3},
    pending_by_reason={"Priority": 1001, "Resources": 300, "Dependency": 129},
    nodes_by_state={"allocated": 180, "mixed": 40, "idle": 28, "drained": 8},
    cpus=16384,
    cpus_allocated=13107,
    partitions=(
        PartitionNow(
            name="batch", nodes=240, cpus=15360, cpus_allocated=12600, cpus_idle=2200, running_jobs=790,
            pending_jobs=1400,
        ),
        PartitionNow(
            name="gpu", nodes=16, cpus=1024, cpus_allocated=507, cpus_idle=517, gpus=64, gpus_allocated=60,
            running_jobs=22, pending_jobs=30,
        ),
    ),
    troubles=(NodeProblem(node="n17", state="drained", reason="bad DIMM <b>"),),
)  # fmt: skip

JOBS_CHART = Chart(
    name="jobs",
    title="Jobs",
    unit="count",
    subject=Subject.NODES,
    times=tuple(START + 60.0 * index for index in range(40)),
    lines=(
        ChartLine(label="running", values=tuple(float(index) for index in range(40))),
        ChartLine(label="pending", values=(None,) + (1430.0,) * 39),
    ),
    help="Running and pending jobs.",
)


TOP_CLIENTS = TopClients(
    tuple(
        TopClient(filesystem, period, kind, quantity, name, user, account, amount)
        for filesystem in ("work", HOSTILE_NAME)
        for period, factor in ((Period.NOW, 1.0), (Period.DAY, 3600.0))
        for kind, quantity, name, user, account, amount in (
            (ClientKind.JOB, Quantity.READ, "4711", "ada", "physics", 2e9 * factor),
            (ClientKind.JOB, Quantity.METADATA, "4712", "bob", "chemistry", 5000.0 * factor),
            (ClientKind.USER, Quantity.READ, "ada", "ada", "", 3e9 * factor),
            (ClientKind.USER, Quantity.WRITE, "bob", "bob", "", 4e9 * factor),
            (ClientKind.PROGRAM, Quantity.WRITE, HOSTILE_NAME, "bob", "", 1e6 * factor),
        )
    )
)


class FakeIdentifier(Identifier):
    """Trust the user name in a header."""

    def __init__(self) -> None:
        self.refusal: SignInError | None = None

    def identify(self, scope: Scope) -> Viewer:
        if self.refusal is not None:
            raise self.refusal
        names = header_values(scope, USER_HEADER)
        if not names:
            raise NotSignedIn("You are not signed in.")
        return VIEWERS[names[0].decode()]

    def is_by_token(self, scope: Scope) -> bool:
        return bool(header_values(scope, "authorization"))


class FakeOptOuts(Checkpoints):
    """Store opt-outs in a set, or fail."""

    def __init__(self) -> None:
        self.opted_out: set[str] = set()
        self.error: ArchiveError | None = None

    def is_opted_out(self, user: str) -> bool:
        return user in self.opted_out

    def set_opt_out(self, user: str, is_opted_out: bool) -> None:
        if self.error is not None:
            raise self.error
        if is_opted_out:
            self.opted_out.add(user)
        else:
            self.opted_out.discard(user)


class FakeAuditLog(AuditLog):
    """Keep what was audited in memory."""

    def __init__(self, audited: list[tuple[str, str, str]]) -> None:
        self._audited = audited

    def audit(self, viewer: Viewer, route: str, subject: str) -> None:
        self._audited.append((viewer.name, route, subject))


class EmptyStore(SqlAdviceReader, SqlStaffNotes, SqlSavedViews):
    """Have no advice, notes, tags or saved views."""

    def __init__(self) -> None:
        pass

    def find_outcomes(self, *_: object) -> tuple[AdviceOutcome, ...]:
        return ()

    def total_outcomes(self, *_: object, **_named: object) -> tuple[AdviceTotal, ...]:
        return ()

    def list_notes(self, *_: object) -> tuple[Note, ...]:
        return ()

    def last_notes(self, *_: object) -> dict[str, Note]:
        return {}

    def list_tags(self, *_: object) -> tuple[str, ...]:
        return ()

    def list_tagged(self, *_: object) -> tuple[tuple[str, NotedThing], ...]:
        return ()

    def list_views(self, *_: object) -> tuple[SavedView, ...]:
        return ()

    def add_note(self, *_: object) -> None:
        pass

    def delete_note(self, *_: object) -> None:
        pass

    def set_tag(self, *_: object, is_set: bool) -> None:
        pass

    def save_view(self, *_: object, is_shared: bool) -> None:
        pass

    def delete_view(self, *_: object) -> None:
        pass


@dataclass(kw_only=True)
class OtherCluster:
    """Hold what the controller of another cluster reports."""

    now: ClusterNow = field(default_factory=ClusterNow)
    waiting: PendingQueue | None = None
    facts: QueueFacts = field(default_factory=QueueFacts)
    events: tuple[NodeEvent, ...] | None = None


@dataclass
class FakeBackend:
    """Serve from memory, and record what was audited."""

    archive: FakeArchive
    settings: PortalSettings = field(default_factory=lambda: PortalSettings(title="Test cluster"))
    identifier: FakeIdentifier = field(default_factory=FakeIdentifier)
    cluster: ClusterNow = CLUSTER
    charts: tuple[Chart, ...] = (JOBS_CHART,)
    top_clients: TopClients | None = TOP_CLIENTS
    failures: tuple[str, ...] = ()
    live: dict[str, JobReport] = field(default_factory=dict)
    audited: list[tuple[str, str, str]] = field(default_factory=list)
    opt_outs: FakeOptOuts = field(default_factory=FakeOptOuts)
    waiting: PendingQueue | None = None
    facts: QueueFacts = field(default_factory=QueueFacts)
    others: dict[str, OtherCluster] = field(default_factory=dict)
    events: tuple[NodeEvent, ...] | None = None
    shows_nodes: bool = True
    scripts: dict[str, JobScript] = field(default_factory=dict)
    storing: set[str] = field(default_factory=lambda: {""})
    """Clusters that store scripts; that of the portal's host is empty."""
    script_error: SourceError | None = None
    waits: dict[tuple[int, int], WaitingTime] = field(default_factory=dict)
    zoomer: Zoomer = field(default_factory=lambda: Zoomer(None))

    @property
    def csrf(self) -> Csrf:
        return Csrf(lambda: SECRET, is_by_token=self.identifier.is_by_token, clock=self.clock)

    def clock(self) -> float:
        return START + 3 * 86400.0

    def problems(self) -> tuple[str, ...]:
        return self.failures

    def find_report(self, viewer: Viewer, shown_id: str, cluster: str = "") -> JobReport | None:
        live = self.live.get(shown_id)
        if live is not None:
            return live if viewer.sees(live.record.user, live.record.account, live.record.cluster) else None
        return find_archived(self.archive, viewer, shown_id, cluster)

    def find_own(self) -> str:
        return self.waiting.cluster if self.waiting else ""

    def read_cluster(self, cluster: str) -> OtherCluster | None:
        if cluster in {"", self.find_own()}:
            return OtherCluster(now=self.cluster, waiting=self.waiting, facts=self.facts, events=self.events)
        return self.others.get(cluster)

    def connect(self) -> Services:
        """Return the services as pages use them."""
        empty, top_clients = EmptyStore(), self.top_clients
        return Services(
            settings=self.settings,
            archive=self.archive,
            archived_clusters=FakeClusters(self.archive),
            finder=FakeFinder(self),
            zoomer=FakeZoomer(self),
            wait_times=FakeWaitTimes(self),
            scripts=FakeScripts(self),
            advice=empty,
            live=FakeLive(self),
            node_history=FakeNodeHistory(self),
            suspects=read_suspects(self.archive, self.clock),
            filesystems=top_clients and SharedReading("filesystems", lambda: top_clients, interval_seconds=60.0),
            charts=FakeCharts(self),
            opt_outs=self.opt_outs,
            notes=empty,
            views=empty,
            identifier=self.identifier,
            csrf=self.csrf,
            audit_log=FakeAuditLog(self.audited),
            problem_sources=(self.problems,),
            find_uid={"ada": 1001, "bob": 1002, "sue": 1005}.get,
            clock=self.clock,
        )

    def make_app(self, *, portal_url: str = "") -> FastAPI:
        """Build the portal's application."""
        return make_app(self.connect(), portal_url=portal_url)


def read_suspects(archive: Archive, clock: Callable[[], float]) -> SharedReading:
    """Return the judgement of nodes when it is made, so that the first page has it."""
    reading = make_suspects_reading(archive, clock)
    reading.request()
    reading.wait(math.inf)
    return reading


class FakeClusters(KnownClusters):
    """Read the clusters of an archive each time."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def __call__(self) -> tuple[str, ...]:
        if isinstance(self._archive, FakeArchive):
            return tuple(sorted({report.record.cluster for report in self._archive.reports}))
        return self._archive.clusters() if self._archive else ()


class FakeFinder(ReportFinder):
    """Find reports of running jobs in memory, and others in the archive."""

    def __init__(self, backend: FakeBackend) -> None:
        self._backend = backend

    def report(self, viewer: Viewer, shown_id: str, cluster: str = "") -> JobReport | None:
        return self._backend.find_report(viewer, shown_id, cluster)


class FakeZoomer(Zoomer):
    """Zoom as the backend does now."""

    def __init__(self, backend: FakeBackend) -> None:
        self._backend = backend

    def zoom(self, user: str, report: JobReport, part: RunPart, points: int = MAX_CHART_POINTS) -> ZoomedReport:
        return self._backend.zoomer.zoom(user, report, part, points)


class FakeWaitTimes(WaitingTimesCache):
    """Have the wait times of the backend."""

    def __init__(self, backend: FakeBackend) -> None:
        self._backend = backend

    def find(self, cluster: str, partition: str) -> Mapping[tuple[int, int], WaitingTime]:
        return {shape: wait for shape, wait in self._backend.waits.items() if wait.partition == partition}


class FakeScripts:
    """Have scripts by job ID."""

    def __init__(self, backend: FakeBackend) -> None:
        self._backend = backend

    def read(self, record: JobRecord) -> JobScript | None:
        if self._backend.script_error is not None:
            raise self._backend.script_error
        return self._backend.scripts.get(record.shown_id)

    def read_soon(self, record: JobRecord) -> JobScript | None:
        return None if self._backend.script_error else self.read(record)

    def is_stored(self, cluster: str = "") -> bool:
        return bool(self._backend.scripts) and cluster in self._backend.storing


class FakeNodeHistory(NodeHistory):
    """Have the same events for each node of a cluster."""

    def __init__(self, backend: FakeBackend) -> None:
        self._backend = backend

    def __call__(self, cluster: str, node: str) -> tuple[NodeEvent, ...] | None:
        found = self._backend.read_cluster(cluster)
        return found.events if found else None


class FakeCharts(ClusterCharts):
    """Have the charts of the backend."""

    def __init__(self, backend: FakeBackend) -> None:
        self._backend = backend

    def get(self) -> tuple[Chart, ...]:
        return self._backend.charts


class FakeLive(LiveClusters):
    """Have what the controllers of the backend report."""

    def __init__(self, backend: FakeBackend) -> None:
        self._backend = backend

    def own(self) -> str:
        return self._backend.find_own()

    def names(self) -> tuple[str, ...]:
        own = self.own()
        return (*((own,) if own else ()), *self._backend.others)

    def now(self, cluster: str) -> ClusterNow:
        found = self._backend.read_cluster(cluster)
        return found.now if found else ClusterNow(problems=(f"Cluster {cluster} is not read.",))

    def queue(self, cluster: str) -> PendingQueue | None:
        found = self._backend.read_cluster(cluster)
        return found.waiting if found else None

    def other_queues(self) -> tuple[PendingQueue, ...]:
        return tuple(found.waiting for found in self._backend.others.values() if found.waiting)

    def facts(self, cluster: str, names: Collection[str]) -> QueueFacts:
        found = self._backend.read_cluster(cluster)
        return found.facts if found else QueueFacts()

    def nodes(self, clusters: Collection[str]) -> dict[str, Nodes]:
        found = {name: cluster.facts.nodes for name in clusters if (cluster := self._backend.read_cluster(name))}
        return {name: nodes for name, nodes in found.items() if nodes is not None}

    def shows_nodes(self, cluster: str) -> bool:
        return self._backend.shows_nodes


def find_archived(archive: Archive, viewer: Viewer, shown_id: str, cluster: str = "") -> JobReport | None:
    """Return the newest archived run of a job, as the portal finds it."""
    return ReportFinder(archive, None, ReportMaker(None), clusters=archive.clusters).report(viewer, shown_id, cluster)


def make_backend(reports: Iterable[JobReport] | None = None) -> FakeBackend:
    """Make a backend with jobs of ada and bob, including an array and a job with a hostile name."""
    return FakeBackend(archive=FakeArchive(make_jobs() if reports is None else reports))


def make_jobs() -> list[JobReport]:
    """Make reports of different kinds."""
    later = START + 90000
    record = make_record(4720, state="RUNNING", end_seconds=None, name="live")
    running = make_report(replace(record, submit_seconds=later - 60, eligible_seconds=later - 60, start_seconds=later))
    return [
        make_report(),
        make_gpu_report(),
        running,
        make_report(make_record(4730, name=HOSTILE_NAME, work_dir=HOSTILE_NAME, submit_line=HOSTILE_NAME)),
        *make_array(),
    ]


def make_array(tasks: int = 12) -> list[JobReport]:
    """Make an array of ada whose last task ran three times as long as the others."""
    return [
        _with_run_time(
            make_report(
                make_record(
                    4800 + task, array_job_id=4800, array_task_id=task, name="sweep", submit_seconds=START + 1000,
                    gres=(Gres(name="bandwidth", count=1),),
                )
            ),
            21600.0 if task == tasks - 1 else 7200.0 + task,
        )
        for task in range(tasks)
    ]  # fmt: skip


def make_wide_report(nodes: int = 64, cores: int = 16) -> JobReport:
    """Make the report of a job on many nodes, with eight charts of one line per node."""
    report = make_report(make_record(5000, nodes=tuple(f"n{index}" for index in range(nodes)), node_count=nodes))
    one = report.summary.nodes[0]
    each = tuple(
        replace(one, node=f"n{index}", core_seconds={str(core): 70.0 * core for core in range(cores)})
        for index in range(nodes)
    )
    chart = report.charts[0]
    line = chart.lines[0]
    wide = replace(chart, lines=tuple(replace(line, label=node.node) for node in each))
    charts = tuple(replace(wide, name=f"chart{index}") for index in range(8))
    return replace(report, summary=replace(report.summary, nodes=each), charts=charts)


def _with_run_time(report: JobReport, seconds: float) -> JobReport:
    memory = replace(report.summary.memory, working_peak_bytes=0.5 * GIB)
    return replace(report, summary=replace(report.summary, run_seconds=seconds, memory=memory))
