# SPDX-License-Identifier: Apache-2.0
"""Read in the background what the pages show of every cluster: jobs, nodes, the queue and what explains it.

Those of ``accounting.clusters`` are found through slurmdbd, and read only while pages show them. One that does not
respond does not affect the others.

Pages never run a Slurm command: each source is read in the background, at most once per interval, and the last good
value is shown while a new one is read or cannot be read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

from slurmscope.accounting.settings import ALL_CLUSTERS
from slurmscope.cluster import licenses as scontrol_licenses
from slurmscope.cluster import limits as scontrol_limits
from slurmscope.cluster import reservations as scontrol_reservations
from slurmscope.cluster import scheduler
from slurmscope.cluster.backends import TextCommands
from slurmscope.cluster.licenses import Licenses
from slurmscope.cluster.limits import Limits
from slurmscope.cluster.reservations import Reservations
from slurmscope.cluster.scheduler import Diag
from slurmscope.cluster.sinfo import Nodes
from slurmscope.cluster.sources import Backend
from slurmscope.cluster.squeue import Jobs, StartWindow
from slurmscope.core.clock import Clock
from slurmscope.core.errors import CommandMissing, MalformedAnswer, SourceError
from slurmscope.exporter.reading import SharedReading, Snapshot
from slurmscope.jobs.pending.blockers import QueueFacts, read_priorities
from slurmscope.jobs.pending.queue import JobPriorities, PendingQueue, read_pending
from slurmscope.portal.cluster_now import ClusterNow, summarize_cluster
from slurmscope.slurm.cluster_names import NAME, run_in_cluster
from slurmscope.slurm.command import RunCommand, random_separator
from slurmscope.slurm.config import (
    CONTROLLER,
    ControllerConfig,
    JobVisibility,
    read_config,
    require_all_jobs,
    require_first,
)

KEEP_SECONDS = 600.0

T = TypeVar("T")


class KnownConfig:
    """The cluster name of a controller, and what its PrivateData hides; safe to use from any thread.

    ``named`` is the cluster that the commands name; without it, they read that of this host. The address in slurmdbd
    may belong to another cluster that was set up on the same host later: then nothing is read from it.
    """

    def __init__(self, run: RunCommand, named: str = "") -> None:
        """Take what runs a command of Slurm in this cluster; nothing is run yet."""
        self._run = run
        self.named = named
        self._config: ControllerConfig | None = None
        self._read_at = 0.0

    @property
    def cluster(self) -> str:
        """Return the name of the cluster; without it, pending jobs have none."""
        return self.named or (self._config.cluster_name.lower() if self._config else "")

    @property
    def hidden(self) -> frozenset[str]:
        """Return what PrivateData hides; everything while it is not known."""
        return self._config.private_data if self._config else frozenset({"nodes", "usage", "reservations"})

    def name(self, reading: str) -> str:
        """Return the name of a reading, with the cluster if it is another one."""
        return f"{reading} of {self.named}" if self.named else reading

    def guard(self, read: Callable[[], T]) -> Callable[[], T]:
        """Return a function that reads from a named cluster only if its controller is the right one."""
        return self.read_first(read) if self.named else read

    def read_first(self, read: Callable[[], T]) -> Callable[[], T]:
        """Return a function that reads the configuration, if it is old, and then something else."""

        def read_all() -> T:
            self._refresh()
            return read()

        return read_all

    def _refresh(self) -> None:
        if self._config is not None and time.monotonic() - self._read_at <= KEEP_SECONDS:
            return
        try:
            config = read_config(self._run)
        except SourceError:
            if self.named and self._config is None:
                raise
            return
        if self.named and config.cluster_name.lower() != self.named:
            self._config = None
            raise MalformedAnswer(f"the controller that slurmdbd names for {self.named} is that of another cluster")
        self._config, self._read_at = config, time.monotonic()


INTERVAL_SECONDS = 30.0
"""Minimum interval between reads of the same kind."""
WAIT_SECONDS = 0.5
"""How long a page waits for a source of which nothing recent is known."""
STATE_WAIT_SECONDS = 2.0
"""How long a page about a cluster waits if no recent state is known."""
MAX_CLUSTERS = 64


class LiveCluster:
    """Read the jobs, nodes and queue of one cluster, and what explains its queue; safe to use from any thread."""

    def __init__(self, run: RunCommand, backend: Backend, named: str = "", clock: Clock | None = None) -> None:
        """Take what reads the cluster; nothing is read yet. ``named`` is that of :class:`KnownConfig`."""
        self._clock = clock
        self._config = config = KnownConfig(run, named)
        visibility = JobVisibility(run, CONTROLLER)
        read_jobs = require_all_jobs(lambda: backend.read_jobs(StartWindow(0, 0), time.time()), visibility)

        def read_queue() -> PendingQueue:
            return read_pending(run, random_separator(), now_seconds=time.time(), cluster=config.cluster)

        self._jobs = self._share("jobs", config.guard(read_jobs))
        self._nodes = self._share("nodes", config.guard(backend.read_nodes))
        self._queue = self._share("pending_jobs", config.read_first(require_first(visibility, read_queue)))
        self._facts = {
            name: self._share(name, config.guard(read)) for name, read in _read_facts(run, visibility).items()
        }

    def _share(self, name: str, read: Callable[[], object]) -> SharedReading:
        return SharedReading(self._config.name(name), read, interval_seconds=INTERVAL_SECONDS, clock=self._clock)

    @property
    def readings(self) -> tuple[SharedReading, ...]:
        """Return all readings; the first three are those of the first page."""
        return self._jobs, self._nodes, self._queue, *self._facts.values()

    @property
    def cluster(self) -> str:
        """Return the name of the cluster; empty while it is unknown."""
        return self._config.cluster

    @property
    def hides_nodes(self) -> bool:
        """Return whether PrivateData hides the nodes from ordinary users; yes while it is not known."""
        return "nodes" in self._config.hidden

    @property
    def has_failed(self) -> bool:
        """Return whether Slurm's commands could not read the queue at the last attempt; no if there are none here."""
        return self._queue.last_error is not None and self._queue.last_reason != CommandMissing.reason

    def now(self) -> ClusterNow:
        """Return the last known state and request a new one; wait for it only if the last one is too old."""
        readings = self._jobs, self._nodes
        for reading in readings:
            reading.request()
        until = time.monotonic() + STATE_WAIT_SECONDS
        jobs, nodes = (_find_latest(reading, until) for reading in readings)
        ages = [age for reading in readings if (age := reading.age_seconds()) is not None]
        return summarize_cluster(
            _value(jobs, Jobs),
            _value(nodes, Nodes),
            age_seconds=max(ages, default=None),
            problems=tuple(self.problems()),
        )

    def problems(self) -> Iterator[str]:
        """Yield a sentence if jobs or nodes cannot be read, and retry it, so that recovery is noticed on any page."""
        for reading in (self._jobs, self._nodes):
            if reading.last_error is not None:
                reading.request()
                yield f"Slurm {reading.name} cannot be read: {reading.last_error}"

    def queue_problems(self) -> Iterator[str]:
        """Yield a sentence if the queue cannot be read, and retry it.

        If no job of this host's cluster can be read, pages show that already.
        """
        if self._queue.last_error is not None:
            self._queue.request()
            if self._config.named or self._jobs.last_error is None:
                yield f"{self._config.name('Pending jobs')} cannot be read: {self._queue.last_error}"

    def queue(self) -> PendingQueue | None:
        """Return the last known queue, and request a new one; None if it cannot be read."""
        return _value(_refresh(self._queue), PendingQueue)

    def known_queue(self) -> PendingQueue | None:
        """Return the last known queue, and request a new one without waiting for it."""
        self._queue.request()
        return _value(self._queue.wait(0.0), PendingQueue)

    def request_nodes(self) -> None:
        self._nodes.request()

    def nodes(self, until: float | None = None) -> Nodes | None:
        """Return the last known nodes; None if they cannot be read, until the given monotonic time."""
        return _value(_refresh(self._nodes, until), Nodes)

    def facts(self, names: Collection[str]) -> QueueFacts:
        """Return what is known of these fields; nodes are always included."""
        found = {name: _refresh(self._facts[name]) for name in names}
        hidden = self._config.hidden
        return QueueFacts(
            nodes=self.nodes(),
            priorities=_value(found.get("priorities"), JobPriorities),
            diag=_value(found.get("diag"), Diag),
            limits=None if "usage" in hidden else _value(found.get("limits"), Limits),
            licenses=_value(found.get("licenses"), Licenses),
            reservations=None if "reservations" in hidden else _value(found.get("reservations"), Reservations),
        )


def _read_facts(run: RunCommand, visibility: JobVisibility) -> dict[str, Callable[[], object]]:
    """Return what reads each field of :class:`QueueFacts` except the nodes."""

    def scontrol(arguments: tuple[str, ...], parse: Callable[[bytes], T]) -> Callable[[], T]:
        return lambda: parse(run("scontrol", arguments))

    return {
        "priorities": require_first(visibility, lambda: read_priorities(run)),
        "diag": lambda: scheduler.parse_diag(run(scheduler.COMMAND, scheduler.ARGUMENTS)),
        "limits": scontrol(scontrol_limits.ARGUMENTS, scontrol_limits.parse_limits),
        "licenses": scontrol(scontrol_licenses.ARGUMENTS, scontrol_licenses.parse_licenses),
        "reservations": scontrol(scontrol_reservations.ARGUMENTS, scontrol_reservations.parse_reservations),
    }


def _find_latest(reading: SharedReading, until: float) -> Snapshot:
    snapshot = reading.wait(0.0)
    return snapshot if snapshot.has_value else reading.wait(until)


def _refresh(reading: SharedReading, until: float | None = None) -> Snapshot:
    """Return the last value, and request a new one; wait for that only if nothing recent is known."""
    reading.request()
    age = reading.age_seconds()
    is_recent = age is not None and age < 2 * reading.interval_seconds
    if is_recent:
        return reading.wait(0.0)
    return reading.wait(time.monotonic() + WAIT_SECONDS if until is None else until)


def _value(snapshot: Snapshot | None, kind: type[T]) -> T | None:
    value = snapshot.value if snapshot else None
    return value if isinstance(value, kind) else None


class LiveClusters:
    """Read all clusters; safe to use from any thread. An empty name is that of this host's cluster."""

    def __init__(
        self, run: RunCommand, backend: Backend, clusters: Callable[[], Collection[str]], *, has_commands: bool = True
    ) -> None:
        """Take the backend of this host's cluster, and the clusters of accounting, which text commands read.

        Without ``has_commands`` pending jobs are not expected: a site with slurmrestd may have no commands here, and
        lists archived jobs only.
        """
        self.host = LiveCluster(run, backend)
        self._run = run
        self._clusters = clusters
        self._has_commands = has_commands
        self._others: dict[str, LiveCluster] = {}
        self._lock = threading.Lock()

    def own(self) -> str:
        """Return the cluster of this host; empty while it is unknown."""
        return self.host.cluster

    def names(self) -> tuple[str, ...]:
        """Return the clusters that can be read; that of this host is the first, unless :meth:`own` is unknown."""
        own = self.own()
        return (*((own,) if own else ()), *self._other_names())

    def now(self, cluster: str) -> ClusterNow:
        """Return the last known state of a cluster."""
        found = self._find(cluster)
        if found is None:
            return ClusterNow(problems=(f"This portal does not read the controller of cluster {cluster}.",))
        return found.now()

    def queue(self, cluster: str) -> PendingQueue | None:
        """Return the pending jobs of all users of a cluster; None if they cannot be read."""
        found = self._find(cluster)
        return found.queue() if found else None

    def other_queues(self) -> tuple[PendingQueue, ...]:
        """Return the last known queues of all other clusters, and request new ones; pages do not wait for them."""
        found = [self._open(name).known_queue() for name in self._other_names()]
        return tuple(queue for queue in found if queue is not None)

    def facts(self, cluster: str, names: Collection[str]) -> QueueFacts:
        """Return what explains the queue of a cluster: these fields, and the nodes."""
        found = self._find(cluster)
        return found.facts(names) if found else QueueFacts()

    def nodes(self, clusters: Collection[str]) -> Mapping[str, Nodes]:
        """Return the nodes of several clusters, as far as they are known; all are read at the same time."""
        found = {name: cluster for name in clusters if (cluster := self._find(name)) is not None}
        for cluster in found.values():
            cluster.request_nodes()
        until = time.monotonic() + WAIT_SECONDS
        known = {name: cluster.nodes(until) for name, cluster in found.items()}
        return {name: nodes for name, nodes in known.items() if nodes is not None}

    def shows_nodes(self, cluster: str) -> bool:
        """Return whether Slurm shows the nodes of a cluster to ordinary users."""
        found = self._find(cluster)
        return found is not None and not found.hides_nodes

    def request_first(self) -> None:
        """Request what the first page shows."""
        for reading in self.host.readings[:3]:
            reading.request()

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each part of this host's cluster, and each other queue, that cannot be read."""
        yield from self.host.problems()
        if self._has_commands:
            yield from self.host.queue_problems()
        if self._has_commands or self.own():
            for name in self._other_names():
                if name in self._others:
                    yield from self._others[name].queue_problems()

    def _find(self, cluster: str) -> LiveCluster | None:
        if cluster in {"", self.own()}:
            return self.host
        return self._open(cluster) if cluster in self._other_names() else None

    def _open(self, cluster: str) -> LiveCluster:
        with self._lock:
            if cluster not in self._others:
                run = run_in_cluster(self._run, cluster)
                self._others[cluster] = LiveCluster(run, TextCommands(run), cluster)
            return self._others[cluster]

    def _other_names(self) -> tuple[str, ...]:
        """Return the other clusters; none while it is unknown which cluster is that of this host.

        If the controller of this host cannot be read, several are all read by their names; a single one may be its own.
        """
        names, own = self._clusters(), self.own()
        if not own and (len(names) < 2 or not self.host.has_failed):
            return ()
        return tuple(name for name in names if name not in {own, ALL_CLUSTERS} and NAME.match(name))[:MAX_CLUSTERS]
