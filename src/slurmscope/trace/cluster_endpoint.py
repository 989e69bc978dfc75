# SPDX-License-Identifier: Apache-2.0
"""Set up the trace endpoint of the cluster exporter: who may send samples, where they are kept, who may see them."""

from __future__ import annotations

import pwd
import time
from collections.abc import Mapping
from functools import partial

from slurmscope.cluster.slurm import CONFIG
from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import Section
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.output_settings import WebSettings
from slurmscope.exporter.reading import SharedReading
from slurmscope.exporter.settings import Switch
from slurmscope.http.server.app import Route
from slurmscope.slurm.config import ControllerConfig
from slurmscope.slurm.munge import decode_credential, find_munge_socket
from slurmscope.trace.callers import CallerFinder
from slurmscope.trace.collector import COLLECTOR
from slurmscope.trace.endpoint import SlurmCheck, TraceEndpoint, TraceReceiver, is_quick
from slurmscope.trace.owners import JOB_OWNERS, NODE_HOSTS, OwnerFinder
from slurmscope.trace.samples import TracedProcess, Traces
from slurmscope.trace.settings import TraceSettings, limits_of
from slurmscope.trace.store import TraceStore
from slurmscope.trace.tokens import KeyFile

TRACES_SECONDS = 5.0
"""Interval between exports of new samples; no Slurm command runs for it."""
RECEIVING_SECONDS = 0.02
HIDDEN_SECONDS = 5.0
"""How long a request for the page waits for PrivateData."""


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
            hidden_labels=lambda: host.hidden_labels(time.monotonic() + HIDDEN_SECONDS),
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
