# SPDX-License-Identifier: Apache-2.0
"""Define the services that the portal's pages use."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from slurmscope.archive.interface import Archive, SavedViews, StaffNotes
from slurmscope.cluster.events import NodeEvent
from slurmscope.cluster.sinfo import Nodes
from slurmscope.jobs.advice import AdviceReader
from slurmscope.jobs.pending.facts import QueueFacts
from slurmscope.jobs.pending.queue import WaitingQueue
from slurmscope.jobs.pending.smaller_request import WaitsByShape
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import Chart, JobReport
from slurmscope.jobs.script import JobScript
from slurmscope.jobs.series import Measured
from slurmscope.jobs.viewer import Viewer
from slurmscope.lustre.use import TopClients
from slurmscope.metrics.family import Family
from slurmscope.portal.cluster_now import ClusterNow
from slurmscope.portal.scope import Scope
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.csrf import Csrf
from slurmscope.portal.sign_in.view_as import DemoView, ViewAs
from slurmscope.reports.zoom import RunPart, ZoomedReport, zoom_report


class DigestOptOuts(Protocol):
    """Store which users do not want the weekly digest. Failures are raised as ``ArchiveError``."""

    def is_opted_out(self, user: str) -> bool:
        """Return whether a user has opted out."""
        ...

    def set_opt_out(self, user: str, is_opted_out: bool) -> None:  # noqa: FBT001 - a fact, not a switch
        """Store whether a user has opted out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """Identify viewers, protect forms, and record what staff access."""

    identify: Callable[[Scope], Viewer]
    """Return the viewer of a request. May raise ``SignInError``."""
    csrf: Csrf
    audit: Callable[[Viewer, str, str], None]
    """Record that a viewer accessed, through a route, a subject such as ``job 4711`` or ``user ada``.

    Repeated access to the same subject within a few minutes is recorded once: open pages poll.
    """
    view_as: ViewAs | None = None
    """Who can be chosen in a demo; None in every other portal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobServices:
    """Find reports of jobs, their scripts, and what became of their advice."""

    find_report: Callable[[Viewer, str, str], JobReport | None]
    """Return the newest run of a job, archived or live; None if it does not exist or the viewer has no access.

    The last argument is the cluster; without one, ``AmbiguousName`` is raised if the viewer has access to jobs of
    several clusters with this ID. May also raise ``ServerBusy`` if the viewer requested too many jobs.
    """
    clusters: Callable[[], tuple[str, ...]] = tuple
    """Return the clusters that have jobs in the archive, or whose controllers are read."""
    add_resubmission: Callable[[Viewer, JobReport], JobReport] = lambda _viewer, report: report
    """Return a report with the header for the job's next run, by all runs that the viewer may see."""
    zoom: Callable[[str, JobReport, RunPart, int], ZoomedReport] = lambda _person, report, part, _points: zoom_report(
        report, Measured(), part
    )
    """Return a part of a run with at most so many points, finer where a time series source has more.

    May raise ``ServerBusy`` if the person requested too many parts.
    """
    read_script: Callable[[JobRecord], JobScript | None] = lambda _: None
    """Return the script of a job that Slurm stored; None if there is none. May raise ``SourceError``."""
    stores_scripts: Callable[[str], bool] = lambda _: False
    """Return at once whether a cluster stores job scripts; without a name it is that of the portal's host."""
    advice: AdviceReader = field(default_factory=AdviceReader)
    """What became of the advice that runs got."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterServices:
    """Show each cluster, its nodes and its file systems; without a name it is the cluster of the portal's host."""

    now: Callable[[str], ClusterNow]
    """Return the last known state of a cluster."""
    names: Callable[[], tuple[str, ...]] = tuple
    """Return the clusters whose controllers are read, that of the portal's host first if it is known."""
    own: Callable[[], str] = str
    """Return the cluster of the portal's host; empty while it is unknown."""
    nodes: Callable[[Collection[str]], Mapping[str, Nodes]] = lambda _clusters: {}
    """Return the nodes of these clusters, as far as they are known."""
    charts: Callable[[], tuple[Chart, ...]] = tuple
    """Return charts of the last 24 hours of the cluster of the portal's host, if they are recorded here."""
    top_clients: Callable[[], TopClients | None] = lambda: None
    """Return who uses each shared file system most; None if that is not known."""
    node_events: Callable[[str, str], tuple[NodeEvent, ...] | None] = lambda _cluster, _node: None
    """Return when a node of a cluster was down or drained, newest first; None if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueServices:
    """Show pending jobs and what explains their wait; without a name they are of the cluster of the portal's host."""

    waiting: Callable[[str], WaitingQueue | None] = lambda _cluster: None
    """Return the last known pending jobs of all users of a cluster; None if they are not known."""
    others: Callable[[], tuple[WaitingQueue, ...]] = tuple
    """Return the known pending jobs of all clusters other than that of the portal's host."""
    facts: Callable[[str, Collection[str]], QueueFacts] = lambda _cluster, _: QueueFacts()
    """Return what explains the queue of a cluster: the fields of these names, and the nodes."""
    waiting_times: Callable[[str, str], WaitsByShape] = lambda _cluster, _partition: {}
    """Return how long jobs of each shape waited in the last weeks, in one partition of one cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleServices:
    """Store the choices of users, and the notes and saved views of staff."""

    opt_outs: DigestOptOuts
    find_uid: Callable[[str], int | None]
    """Return the uid of a user name; None if the system does not know it."""
    notes: StaffNotes = field(default_factory=StaffNotes)
    views: SavedViews = field(default_factory=SavedViews)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalBackend:
    """Hold what the pages call, from any thread.

    Everything that reads or writes the archive may raise ``ArchiveError``; other errors are documented where they are
    raised.
    """

    settings: PortalSettings
    archive: Archive
    sign_in: SignIn
    jobs: JobServices
    cluster: ClusterServices
    people: PeopleServices
    problems: Callable[[], tuple[str, ...]]
    """Return one sentence for each server that is currently failing."""
    queue: QueueServices = field(default_factory=QueueServices)
    clock: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """Provide metrics and problem messages of other services in this process.

    ``charts`` returns charts of the cluster's last 24 hours, if they are recorded.
    """

    families: Callable[[], Iterable[Family]] = tuple
    problems: Callable[[], Iterable[str]] = tuple
    charts: Callable[[], tuple[Chart, ...]] = tuple
    scripts: Callable[[JobRecord], JobScript | None] | None = None
    """Return the script of a job; None where scripts come from Slurm."""
    demo_views: tuple[DemoView, ...] = ()
    """Viewers to choose from in a demo; none in any other portal."""
