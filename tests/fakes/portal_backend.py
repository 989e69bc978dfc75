# SPDX-License-Identifier: Apache-2.0
"""Fake the backend of a portal: an archive in memory, and viewers named by a header."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from fastapi import FastAPI

from slurmscope.archive.interface import Archive
from slurmscope.cluster.events import NodeEvent
from slurmscope.cluster.sinfo import Nodes
from slurmscope.core.clock import Clock
from slurmscope.core.errors import ArchiveError, SourceError
from slurmscope.core.tres import Gres
from slurmscope.jobs.pending.facts import QueueFacts
from slurmscope.jobs.pending.queue import WaitingQueue
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import Chart, ChartLine, JobReport
from slurmscope.jobs.rule import Subject
from slurmscope.jobs.script import JobScript
from slurmscope.jobs.viewer import Viewer, ViewerRole
from slurmscope.jobs.wait_times import WaitingTime
from slurmscope.lustre.use import ClientKind, Period, Quantity, TopClient, TopClients
from slurmscope.portal.app import make_app
from slurmscope.portal.backend import ClusterServices, JobServices, PeopleServices, PortalBackend, QueueServices, SignIn
from slurmscope.portal.cluster_now import ClusterNow, NodeProblem, PartitionNow
from slurmscope.portal.scope import Scope, header_values
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.csrf import Csrf
from slurmscope.portal.sign_in.errors import NotSignedIn, SignInError
from slurmscope.reports.find import ReportFinder
from slurmscope.reports.live_cache import WaitingTimesCache
from slurmscope.reports.make import ReportMaker
from slurmscope.reports.resubmission import add_resubmission
from slurmscope.reports.zoom import RunPart, ZoomedReport, Zoomer
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

Zoom = Callable[[str, JobReport, RunPart, int], ZoomedReport]


class FakeIdentifier:
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


@dataclass
class FakeOptOuts:
    """Store opt-outs in a set, or fail."""

    opted_out: set[str] = field(default_factory=set)
    error: ArchiveError | None = None

    def is_opted_out(self, user: str) -> bool:
        return user in self.opted_out

    def set_opt_out(self, user: str, is_opted_out: bool) -> None:
        if self.error is not None:
            raise self.error
        if is_opted_out:
            self.opted_out.add(user)
        else:
            self.opted_out.discard(user)


@dataclass(kw_only=True)
class OtherCluster:
    """Hold what the controller of another cluster reports."""

    now: ClusterNow = field(default_factory=ClusterNow)
    waiting: WaitingQueue | None = None
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
    problems: tuple[str, ...] = ()
    live: dict[str, JobReport] = field(default_factory=dict)
    audited: list[tuple[str, str, str]] = field(default_factory=list)
    opt_outs: FakeOptOuts = field(default_factory=FakeOptOuts)
    waiting: WaitingQueue | None = None
    facts: QueueFacts = field(default_factory=QueueFacts)
    others: dict[str, OtherCluster] = field(default_factory=dict)
    events: tuple[NodeEvent, ...] | None = None
    scripts: dict[str, JobScript] = field(default_factory=dict)
    storing: set[str] = field(default_factory=lambda: {""})
    """Clusters that store scripts; that of the portal's host is empty."""
    script_error: SourceError | None = None
    waits: dict[tuple[int, int], WaitingTime] = field(default_factory=dict)
    zoom: Zoom = field(default_factory=lambda: Zoomer(None).zoom)

    @property
    def csrf(self) -> Csrf:
        return Csrf(lambda: SECRET, is_by_token=self.identifier.is_by_token, clock=self.clock)

    def clock(self) -> float:
        return START + 3 * 86400.0

    def read_part(self, person: str, report: JobReport, part: RunPart, points: int) -> ZoomedReport:
        return self.zoom(person, report, part, points)

    def find_report(self, viewer: Viewer, shown_id: str, cluster: str = "") -> JobReport | None:
        live = self.live.get(shown_id)
        if live is not None:
            return live if viewer.sees(live.record.user, live.record.account, live.record.cluster) else None
        return find_archived(self.archive, viewer, shown_id, cluster)

    def find_clusters(self) -> tuple[str, ...]:
        return tuple(sorted({*(report.record.cluster for report in self.archive.reports), *self.others}))

    def find_own(self) -> str:
        return self.waiting.cluster if self.waiting else ""

    def find_live(self) -> tuple[str, ...]:
        own = self.find_own()
        return (*((own,) if own else ()), *self.others)

    def read_cluster(self, cluster: str) -> OtherCluster | None:
        if cluster in {"", self.find_own()}:
            return OtherCluster(now=self.cluster, waiting=self.waiting, facts=self.facts, events=self.events)
        return self.others.get(cluster)

    def read_now(self, cluster: str) -> ClusterNow:
        found = self.read_cluster(cluster)
        return found.now if found else ClusterNow(problems=(f"Cluster {cluster} is not read.",))

    def read_nodes(self, clusters: Collection[str]) -> dict[str, Nodes]:
        found = {name: cluster.facts.nodes for name in clusters if (cluster := self.read_cluster(name))}
        return {name: nodes for name, nodes in found.items() if nodes is not None}

    def read_script(self, record: JobRecord) -> JobScript | None:
        if self.script_error is not None:
            raise self.script_error
        return self.scripts.get(record.shown_id)

    def connect(self) -> PortalBackend:
        """Return the services as pages call them."""
        return PortalBackend(
            settings=self.settings,
            archive=self.archive,
            sign_in=SignIn(
                identify=self.identifier.identify,
                csrf=self.csrf,
                audit=lambda viewer, route, subject: self.audited.append((viewer.name, route, subject)),
            ),
            jobs=JobServices(
                find_report=self.find_report,
                clusters=self.find_clusters,
                zoom=self.read_part,
                add_resubmission=partial(
                    add_resubmission, self.archive, WaitingTimesCache(self.archive, Clock(wall=self.clock))
                ),
                read_script=self.read_script,
                stores_scripts=lambda cluster: bool(self.scripts) and cluster in self.storing,
            ),
            cluster=ClusterServices(
                now=self.read_now,
                names=self.find_live,
                own=self.find_own,
                nodes=self.read_nodes,
                charts=lambda: self.charts,
                top_clients=lambda: self.top_clients,
                node_events=lambda cluster, _: found.events if (found := self.read_cluster(cluster)) else None,
            ),
            queue=QueueServices(
                waiting=lambda cluster: found.waiting if (found := self.read_cluster(cluster)) else None,
                others=lambda: tuple(found.waiting for found in self.others.values() if found.waiting),
                facts=lambda cluster, _: found.facts if (found := self.read_cluster(cluster)) else QueueFacts(),
                waiting_times=lambda _cluster, partition: {
                    shape: wait for shape, wait in self.waits.items() if wait.partition == partition
                },
            ),
            people=PeopleServices(opt_outs=self.opt_outs, find_uid={"ada": 1001, "bob": 1002, "sue": 1005}.get),
            problems=lambda: self.problems,
            clock=self.clock,
        )

    def make_app(self, *, portal_url: str = "") -> FastAPI:
        """Build the portal's application."""
        return make_app(self.connect(), portal_url=portal_url)


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
