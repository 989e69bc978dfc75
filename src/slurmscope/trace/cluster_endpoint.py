# SPDX-License-Identifier: Apache-2.0
"""Accept trace samples at the cluster exporter: who may send them, where they are kept, who may see them; export them.

::

    slurm_trace_memory_rss_bytes{slurm_job="4711",slurm_node="n1",pid="812",rank="0",...} 52428800
    slurm_proc_mem_usage{jobid="4711",username="ada"} 209715200

The older names have no label for the process: their values are sums over all traced processes of a job.

::

    slurm_trace_cpu_seconds_total{slurm_job="4711",slurm_node="n1",pid="812",rank="0",...} 61.5
    slurmscope_trace_refused_total{reason="owner"} 3
"""

from __future__ import annotations

import pwd
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from slurmscope.cluster.job_info import CPUS
from slurmscope.cluster.job_info import MEMORY as JOB_MEMORY
from slurmscope.cluster.slurm import CONFIG
from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import Section
from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.reading import SharedReading
from slurmscope.exporter.settings import Switch, WebSettings
from slurmscope.http.server.app import Audience, Route
from slurmscope.metrics.family import Family, Metric, compat_gauge
from slurmscope.slurm.config import ControllerConfig
from slurmscope.slurm.munge import decode_credential, find_munge_socket
from slurmscope.trace.callers import CallerFinder
from slurmscope.trace.endpoint import SlurmCheck, TraceEndpoint, TraceReceiver, is_quick
from slurmscope.trace.node_collector import TRACE_METRICS, trace_families
from slurmscope.trace.owners import JOB_OWNERS, NODE_HOSTS, OwnerFinder
from slurmscope.trace.samples import TracedProcess, Traces, TraceSample
from slurmscope.trace.settings import TraceSettings, limits_of
from slurmscope.trace.store import TraceStore
from slurmscope.trace.tokens import KeyFile

TRACES_SECONDS = 5.0
"""Interval between exports of new samples; no Slurm command runs for it."""
RECEIVING_SECONDS = 0.02
HIDDEN_SECONDS = 5.0
"""How long a request for the page waits for PrivateData."""


def _sum_over_processes(name: str, what: str) -> Metric:
    return compat_gauge(
        f"slurm_proc_{name}", f"{what}, summed over all traced processes of a job.", "jobid", "username"
    )


PROC_PID = compat_gauge("slurm_proc_pid", "Lowest PID of the traced processes of a job on a host.", "jobid", "hostname")
_SUMS: tuple[tuple[Metric, Callable[[TraceSample], float | None]], ...] = (
    (_sum_over_processes("cpu_usage", "CPU usage in percent of one core"), lambda sample: sample.cpu_percent),
    (_sum_over_processes("mem_usage", "Resident memory in bytes"), lambda sample: sample.memory_bytes),
    (_sum_over_processes("threadcount", "Threads"), lambda sample: sample.threads),
    (_sum_over_processes("write_bytes", "Bytes written"), lambda sample: sample.write_bytes),
    (_sum_over_processes("read_bytes", "Bytes read"), lambda sample: sample.read_bytes),
)
COMPAT_METRICS = (PROC_PID, *(metric for metric, _ in _SUMS))


def collect(options: NoOptions, *, traces: Traces) -> Iterator[Family]:  # noqa: ARG001 - the protocol
    """Yield one series per process, the sums under the older names, and the allocation of traced jobs."""
    yield from trace_families(traces)
    yield Family(PROC_PID, _lowest_pids(traces.processes))
    for metric, value_of in _SUMS:
        yield Family(metric, _sums(traces.processes, value_of))
    if traces.has_allocations:
        owners = {process.owner.job_id: process.owner for process in traces.processes}.values()
        yield Family(CPUS, {(str(job.job_id),): job.cpus for job in owners if job.cpus is not None})
        memory = {(str(job.job_id),): job.memory_bytes for job in owners if job.memory_bytes is not None}
        yield Family(JOB_MEMORY, memory)


def _lowest_pids(processes: tuple[TracedProcess, ...]) -> dict[tuple[str, str], float]:
    pids: dict[tuple[str, str], float] = {}
    for process in processes:
        if (pid := process.sample.pid) is not None:
            labels = (str(process.sample.job_id), process.host)
            pids[labels] = min(pid, pids.get(labels, pid))
    return pids


def _sums(
    processes: tuple[TracedProcess, ...], value_of: Callable[[TraceSample], float | None]
) -> dict[tuple[str, str], float]:
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for process in processes:
        if (value := value_of(process.sample)) is not None:
            sums[str(process.sample.job_id), process.owner.user] += value
    return dict(sums)


COLLECTOR = Collector(
    name="traces",
    role=Role.CLUSTER,
    help="Processes that jobs trace; exports nothing unless trace.enabled is on.",
    needs=("traces",),
    metrics=(*TRACE_METRICS, *COMPAT_METRICS, CPUS, JOB_MEMORY),
    collect=collect,
)


class ClusterTracing:
    """The store of traced processes and the endpoint that fills it; without tracing, there is neither."""

    def __init__(self, host: Host) -> None:
        """Build the endpoint; raise ConfigError if a setting of tracing cannot be used."""
        config, readings = host.config, host.readings
        settings = config.of(TraceSettings)
        self.routes: Mapping[str, Route] = {}
        self._is_enabled = settings.enabled
        self._has_allocations = not config.of(Switch, "collector.job_info").enabled
        self._config = readings[CONFIG.name]
        self._store = TraceStore(limits_of(settings))
        self._owners = OwnerFinder(readings[JOB_OWNERS.name], readings[NODE_HOSTS.name], grace_seconds=settings.grace)
        if not settings.enabled:
            return
        if settings.path == config.of(WebSettings).telemetry_path:
            raise ConfigError(f"trace.path {settings.path!r} is already the path of the metrics")
        callers = _caller_finder(settings, host.environment)
        receiver = TraceReceiver(
            find_caller=callers.find,
            check=SlurmCheck(self._owners, self._privileged_uids),
            deliver=self._store.put,
            count_refusal=self._store.count_refusal,
            limits=limits_of(settings),
            is_quick=partial(is_quick, callers, self._owners),
        )
        endpoint = TraceEndpoint(
            receiver,
            processes=self._processes,
            hidden_labels=lambda: host.hidden_labels(time.monotonic() + HIDDEN_SECONDS, Audience.NETWORK),
        )
        self.routes = {settings.path: endpoint.route}

    def is_receiving(self) -> bool:
        """Return whether a sample arrived a moment ago."""
        return time.monotonic() - self._store.last_put_at < RECEIVING_SECONDS

    def read(self) -> Traces:
        """Return the traced processes of running jobs, and the counters."""
        return Traces(
            processes=self._processes(),
            accepted=self._store.accepted,
            refused=self._store.refused,
            is_enabled=self._is_enabled,
            has_allocations=self._has_allocations,
        )

    def _processes(self) -> tuple[TracedProcess, ...]:
        if not len(self._store):
            return ()
        self._owners.refresh()
        return self._store.snapshot(self._owners.is_known)

    def _privileged_uids(self) -> frozenset[int]:
        """Return root and SlurmUser, as far as it is known and exists on this host."""
        self._config.request()
        value = self._config.wait(0.0).value
        try:
            return frozenset({0, pwd.getpwnam(value.slurm_user).pw_uid} if isinstance(value, ControllerConfig) else {0})
        except KeyError:
            return frozenset({0})


def _caller_finder(settings: TraceSettings, environment: Mapping[str, str]) -> CallerFinder:
    socket_path = find_munge_socket(environment)
    return CallerFinder(
        keys=KeyFile(settings.key_file).keys if settings.key_file else dict,
        decode_munge=partial(decode_credential, socket_path=socket_path, environment=environment)
        if settings.munge
        else None,
        plain_networks=settings.plain_networks,
    )


def _open(host: Host) -> Running:
    tracing = ClusterTracing(host)
    return Running(
        readings=(SharedReading("traces", tracing.read, interval_seconds=TRACES_SECONDS),),
        routes=lambda: tracing.routes,
        is_receiving=tracing.is_receiving,
    )


TRACING = Feature(
    name="trace",
    sections=(Section(name="trace", type=TraceSettings),),
    collectors=(COLLECTOR,),
    readings=(JOB_OWNERS, NODE_HOSTS),
    open=_open,
)
