# SPDX-License-Identifier: Apache-2.0
"""Read running jobs for ``slurmscope top``: from a node agent's page, from Prometheus or from the portal.

Each poll has one deadline. What cannot be reached raises one SlurmscopeError with one sentence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from slurmscope.core.errors import ConfigError, MalformedAnswer, ServerError, ServerRefused
from slurmscope.core.log import escape
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.http.client.request import ClientRequest, send, tls_context
from slurmscope.metrics.parse import parse
from slurmscope.metrics.write import Format
from slurmscope.top.jobs import COUNTERS, GAUGES, INFO, MAX_JOBS, Labels, Numbers, Rates, TopGpu, TopJob, make_jobs

if TYPE_CHECKING:
    from slurmscope.jobs.report import Chart, JobReport
    from slurmscope.prometheus.client import Prometheus
    from slurmscope.prometheus.settings import PrometheusSettings
    from slurmscope.reports.portal_jobs import PortalJobs
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from slurmscope.core.errors import SourceError
from slurmscope.jobs.pending.queue import parse_limit
from slurmscope.slurm.command import RunCommand, random_separator

COLUMNS = (
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "HetJobOffset",
    "TimeUsed",
    "TimeLimit",
    "NumNodes",
    "NumCPUs",
    "UserName",
    "Name",
)
KEEP_SECONDS = 30.0
MAX_IDS = 500
"""Jobs that are named in one squeue call."""


class QueuedJob(NamedTuple):
    """What squeue prints of a running job; ``began`` is a time of our clock."""

    shown_id: str
    user: str
    name: str
    began: float | None
    limit_seconds: int | None
    cores: float | None
    """Of a job on one node: of others it is not known how many are on the node that was read."""


class KnownJobs:
    """Remember what squeue printed, and query it again for new jobs, and for all jobs from time to time."""

    def __init__(self, run: RunCommand | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._clock = clock
        self._jobs: dict[str, QueuedJob | None] = {}
        self._read_at = float("-inf")

    def complete(self, jobs: Iterable[TopJob]) -> tuple[TopJob, ...]:
        """Return the jobs with what is known of them."""
        found = list(jobs)
        ids = [job.job_id for job in found if job.job_id.isdecimal()]
        if self._run is not None and ids:
            is_old = self._clock() - self._read_at > KEEP_SECONDS
            if is_old:
                self._jobs, self._read_at = {}, self._clock()
            if new := [job_id for job_id in ids if job_id not in self._jobs]:
                self._jobs.update(self._read(self._run, new[:MAX_IDS]))
        return tuple(self._add(job) for job in found)

    def _add(self, job: TopJob) -> TopJob:
        known = self._jobs.get(job.job_id)
        if known is None:
            return job
        elapsed = None if known.began is None else max(0.0, self._clock() - known.began)
        return replace(
            job,
            job_id=known.shown_id,
            user=job.user or known.user,
            name=known.name,
            # Where jobs are not confined to cores, only Slurm knows how many they have.
            cores=known.cores if job.cores is None else job.cores,
            elapsed_seconds=elapsed,
            time_limit_seconds=known.limit_seconds,
        )

    def _read(self, run: RunCommand, ids: Sequence[str]) -> dict[str, QueuedJob | None]:
        """Return each job, None for those that squeue does not show."""
        unknown: dict[str, QueuedJob | None] = dict.fromkeys(ids)
        mark = f"\x1f{random_separator()}"
        form = ",".join(f"{column}:{mark}" for column in COLUMNS)
        arguments = ("--noheader", "--local", "--states=RUNNING", f"--jobs={','.join(ids)}", f"--Format={form}{mark}")
        try:
            answer = run("squeue", arguments)
        except SourceError:
            return unknown
        rows = answer.decode("utf-8", "surrogateescape").split(f"{mark}{mark}\n")
        parsed = (_parse(row.split(mark), self._clock()) for row in rows[:-1])
        return unknown | dict(filter(None, parsed))


def _parse(fields: Sequence[str], now: float) -> tuple[str, QueuedJob] | None:
    if len(fields) != len(COLUMNS):
        return None
    values = dict(zip(COLUMNS, fields, strict=True))
    shown_id, job_id = values["JobID"], values["JobID"]
    if values["ArrayTaskID"].isdecimal():
        shown_id = f"{values['ArrayJobID']}_{values['ArrayTaskID']}"
    elif values["HetJobID"].isdecimal() and int(values["HetJobID"]):
        shown_id = f"{values['HetJobID']}+{values['HetJobOffset']}"
    used = parse_limit(values["TimeUsed"])
    began = None if used is None else now - used
    is_single = values["NumNodes"] == "1" and values["NumCPUs"].isdecimal()
    return job_id, QueuedJob(
        shown_id=shown_id,
        user=values["UserName"],
        name=values["Name"],
        began=began,
        limit_seconds=parse_limit(values["TimeLimit"]),
        cores=float(values["NumCPUs"]) if is_single else None,
    )


NODE_PORT = 9798
TIMEOUT_SECONDS = 10.0
PAGE_LIMIT_BYTES = 64 << 20
MAX_REPORTS = 20
"""Jobs whose report is requested from the portal in one poll."""
_WINDOW_SCRAPES = 4
"""Scrapes in the window of a rate: one may be lost."""


class TopSource(Protocol):
    """Read running jobs; ``interval_seconds`` is how often new numbers are expected."""

    title: str
    interval_seconds: float
    needs_two_polls: bool

    def poll(self) -> tuple[TopJob, ...]:
        """Return the running jobs; raises SlurmscopeError with a sentence for the user."""
        ...


def parse_node(text: str) -> ServerAddress:
    """Parse HOST, HOST:PORT or a whole URL of a node agent."""
    try:
        return parse_address(
            text if "://" in text or text.startswith("unix:") else f"http://{text}", default_port=NODE_PORT
        )
    except ValueError as error:
        raise ConfigError(f"--node: {escape(text, 100)} is not HOST, HOST:PORT or http[s]://HOST:PORT") from error


class NodeSource:
    """Read the page of a node agent."""

    interval_seconds = 3.0
    needs_two_polls = True

    def __init__(
        self, address: ServerAddress, known: KnownJobs, *, user: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the address, and what knows names and times of jobs; ``user`` keeps the jobs of one."""
        self.title = f"node {address.host or address}"
        self._address = address
        self._known = known
        self._user = user
        self._clock = clock
        self._rates = Rates()

    def poll(self) -> tuple[TopJob, ...]:
        numbers, age_seconds = self._read()
        jobs = make_jobs(self._rates.of(numbers, self._clock() - age_seconds))
        return self._known.complete([job for job in jobs if self._user in {"", job.user}])

    def _read(self) -> tuple[Numbers, float]:
        """Return the numbers of the page, and how old they are."""
        request = ClientRequest(path="/metrics", headers={"Accept": Format.TEXT.content_type})
        deadline = time.monotonic() + TIMEOUT_SECONDS
        tls = tls_context() if self._address.is_tls else None
        response = send(self._address, request, deadline=deadline, tls=tls, limit_bytes=PAGE_LIMIT_BYTES)
        if response.status in {401, 403}:
            raise ServerRefused(f"{self._address} requires a password; use the portal, with --portal.url")
        if response.status != 200:
            raise ServerError(f"{self._address} answered with status {response.status}; is it a slurmscope node agent?")
        return read_page(response.body)


def read_page(body: bytes) -> tuple[Numbers, float]:
    """Return the samples of the jobs on a page of metrics, and the age of the reading."""
    wanted = {*COUNTERS, *GAUGES}
    numbers: dict[str, Sequence[tuple[Labels, float]]] = {}
    age, is_agent = 0.0, False
    try:
        for family in parse(body.decode(), Format.TEXT):
            is_agent = is_agent or family.name in {"jobs_on_node", "slurmscope_build_info"}
            if family.name in wanted:
                numbers[family.name] = [(sample.labels, sample.value) for sample in family.samples]
            elif family.name == "slurmscope_reading_age_seconds":
                ages = [sample.value for sample in family.samples if sample.labels.get("source") == "node_jobs"]
                age = max([0.0, *ages])
    except UnicodeDecodeError as error:
        raise MalformedAnswer("the page of metrics is not UTF-8") from error
    if not is_agent:
        raise MalformedAnswer("the page has no metrics of jobs; name the address of a slurmscope node agent")
    return numbers, age


class PrometheusSource:
    """Query Prometheus for the jobs of a user, or of a node."""

    needs_two_polls = False

    def __init__(self, settings: PrometheusSettings, known: KnownJobs, *, labels: Mapping[str, str]) -> None:
        """Take the settings, and the labels of the wanted jobs in ``jobs_info``; all jobs without any."""
        from slurmscope.prometheus.client import Prometheus

        self._client: Prometheus = Prometheus(settings)
        self._labels = {**dict(settings.matchers), **labels}
        self._known = known
        self.interval_seconds = settings.scrape_interval
        self._window = max(1, int(_WINDOW_SCRAPES * settings.scrape_interval))
        self.title = f"{' '.join(labels.values()) or 'all jobs'} from Prometheus"

    def poll(self) -> tuple[TopJob, ...]:
        from slurmscope.prometheus.promql import quote, quote_regex

        until = time.monotonic() + 3 * TIMEOUT_SECONDS
        found = self._query(INFO + "{" + self._join(self._labels, quote) + "}", until)
        running = [labels for labels, _ in found if labels.get("has_ended") != "true" and labels.get("slurm_job")]
        ids = list(dict.fromkeys(labels["slurm_job"] for labels in running))[:MAX_JOBS]
        if not ids:
            return ()
        fixed = {name: value for name, value in self._labels.items() if name != "user"}
        jobs = self._join(fixed, quote, f"slurm_job=~{quote_regex(ids)}")
        numbers: dict[str, Sequence[tuple[Labels, float]]] = {}
        for metric in GAUGES:
            numbers[metric] = self._query(f"{metric}{{{jobs}}}", until)
        for metric in COUNTERS:
            numbers[metric] = self._query(f"rate({metric}{{{jobs}}}[{self._window}s])", until)
        numbers[INFO] = [(labels, 1.0) for labels in running]
        return self._known.complete(make_jobs(numbers))

    def _query(self, query: str, until: float) -> list[tuple[Labels, float]]:
        reply = self._client.query_instant(query, None, kind="top", until=until)
        return [(series.labels, series.values[-1]) for series in reply.series if series.values]

    @staticmethod
    def _join(labels: Mapping[str, str], quote: Callable[[str], str], *more: str) -> str:
        return ",".join([*(f"{name}={quote(value)}" for name, value in labels.items()), *more])


class PortalSource:
    """Read the running jobs of the user from the portal; GPUs have the means of the run."""

    interval_seconds = 30.0
    needs_two_polls = False
    # Short: the numbers behind it have to fit into 80 columns.
    title = "portal (GPUs: means of the run)"

    def __init__(self, jobs: PortalJobs, *, user: str = "") -> None:
        self._jobs = jobs
        self._user = user

    def poll(self) -> tuple[TopJob, ...]:
        from slurmscope.archive.interface import JobFilter

        user = self._user or self._jobs.user()
        rows = self._jobs.list_jobs(JobFilter(user=user, state="RUNNING"), MAX_REPORTS).rows
        reports = (self._jobs.report(row.shown_id, row.cluster) for row in rows)
        return tuple(make_reported_job(report) for report in reports if report is not None and report.record.is_running)


def make_reported_job(report: JobReport) -> TopJob:
    """Make a row from a report: the last points of its curves, and of GPUs the means."""
    record, summary = report.record, report.summary
    charts = {chart.name: chart for chart in report.charts}
    return TopJob(
        job_id=record.shown_id,
        user=record.user,
        account=record.account,
        name=record.name,
        nodes=record.nodes,
        cores_used=_last(charts.get("cpu")),
        cores=float(record.cpus) if record.cpus else None,
        memory_bytes=_last(charts.get("memory")),
        limit_bytes=summary.memory.requested_bytes,
        read_rate=_last(charts.get("read")),
        write_rate=_last(charts.get("write")),
        elapsed_seconds=summary.run_seconds,
        time_limit_seconds=record.time_limit_seconds,
        gpus=tuple(
            TopGpu(
                node=gpu.node,
                name=f"{gpu.gpu} MIG {gpu.mig}" if gpu.mig else gpu.gpu,
                busy_ratio=gpu.mean_utilization,
                sm_ratio=gpu.work.sm_ratio,
                memory_bytes=gpu.peak_memory_bytes,
                size_bytes=gpu.memory_size_bytes,
                power_watts=_mean_power(gpu.work.energy_joules, summary.run_seconds),
            )
            for gpu in summary.gpu.devices
        ),
    )


def _mean_power(joules: float | None, seconds: float) -> float | None:
    return joules / seconds if joules is not None and seconds > 0 else None


def _last(chart: Chart | None) -> float | None:
    """Return the sum of the last points; None where a line ends earlier, or of nodes only the median is drawn."""
    if chart is None or any(" of " in line.label for line in chart.lines):
        return None
    last = [line.values[-1] if line.values else None for line in chart.lines]
    known = [value for value in last if value is not None]
    return sum(known) if known and len(known) == len(last) else None
