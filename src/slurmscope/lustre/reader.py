# SPDX-License-Identifier: Apache-2.0
"""Collect the use of Lustre file systems: query Prometheus, and attribute the rates to jobs and users.

A stage that fails affects only its own numbers: the last good response to a query is used for a while, jobs and names
that are known stay known, and the collection is reported as incomplete.

Prometheus adds up the targets of each file system, so that an answer has one series per job ID and file system. Where
two servers have the same target, the higher rate counts; series without a target are added up, unless they differ by
a replica label only. Exporters that name the file system in a label run on clients; there all series are added up.
"""

from __future__ import annotations

import contextlib
import grp
import logging
import pwd
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from slurmscope.cluster.squeue import JobOwner, Jobs
from slurmscope.core.errors import SourceError
from slurmscope.core.log import fields
from slurmscope.core.user_names import NameCache
from slurmscope.exporter.reading import SharedReading
from slurmscope.lustre.feature import DIALECTS, LustreOptions
from slurmscope.lustre.use import (
    UNKNOWN,
    Attribution,
    FilesystemUse,
    JobIdPatterns,
    NameService,
    Quantity,
    UseRate,
    filesystem_of,
)
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.promql import Matchers, quote
from slurmscope.prometheus.responses import Reply
from slurmscope.prometheus.settings import PrometheusSettings

logger = logging.getLogger(__name__)


_FILESYSTEM = "filesystem"
_TARGET = "(.+)-(?:OST|MDT)[0-9a-fA-F]{4}"
_METADATA_TARGET = ".+-MDT[0-9a-fA-F]{4}"
# Labels in which the samples of two Prometheus servers that scrape the same targets differ.
_REPLICA_LABELS = "replica, prometheus_replica"


def rates_expression(quantity: Quantity, options: LustreOptions, matchers: Matchers = ()) -> str:
    """Return the expression for the rates of one quantity by job ID."""
    names, is_metadata = DIALECTS[options.dialect], quantity is Quantity.METADATA
    job, target = names.job, names.target
    conditions = [f"{label}={quote(value)}" for label, value in matchers]
    if names.filesystem:
        operation = f", {names.operation}" if is_metadata else ""
        rates = _rates(quantity, options, conditions)
        return f"sum by ({job}, {names.filesystem}{operation}) ({rates} > 0)"
    if is_metadata:
        rates = _rates(quantity, options, [*conditions, f"{target}=~{quote(_METADATA_TARGET)}"])
        return f"max by ({job}, {target}, {names.operation}) ({rates}) > 0"
    with_target = _rates(quantity, options, [*conditions, f'{target}!=""'])
    without_target = _rates(quantity, options, [*conditions, f'{target}=""'])
    copies = f"max by ({job}, {target}) ({with_target})"
    others = f"max without ({_REPLICA_LABELS}) ({without_target})"
    highest = f"({copies} or {others}) > 0"
    named = f"label_replace({highest}, {quote(_FILESYSTEM)}, {quote('$1')}, {quote(target)}, {quote(_TARGET)})"
    return f"sum by ({job}, {_FILESYSTEM}) ({named})"


def parse_rates(quantity: Quantity, options: LustreOptions, reply: Reply) -> Iterator[UseRate]:
    """Yield the rates of an answer; series without a finite value have none."""
    names, is_metadata = DIALECTS[options.dialect], quantity is Quantity.METADATA
    takes_target = is_metadata and not names.filesystem
    label = names.filesystem or _FILESYSTEM
    for found in reply.series:
        labels = found.labels
        target = labels.get(names.target, "") if takes_target else ""
        filesystem = filesystem_of(target) if takes_target else labels.get(label) or UNKNOWN
        operation = labels.get(names.operation, "") if is_metadata else ""
        for per_second in found.values[-1:]:
            yield UseRate(labels.get(names.job, ""), filesystem, per_second, target, operation)


def _rates(quantity: Quantity, options: LustreOptions, conditions: list[str]) -> str:
    names = DIALECTS[options.dialect]
    selectors = {Quantity.READ: names.read, Quantity.WRITE: names.write, Quantity.METADATA: names.metadata}
    name, _, own = selectors[quantity].partition("{")
    selected = ",".join([own.removesuffix("}"), *conditions] if own else conditions)
    window = f"{max(1, round(options.range * 1000))}ms"
    return f"irate({name}{{{selected}}}[{window}])"


KEEP_SECONDS = 300.0
"""How long an answer is used while its query fails, and how long an ended job is remembered after the range."""
REMEMBERED_JOBS = 200_000
_NAMES_PATIENCE_SECONDS = 3.0
_JOBS_SHARE = 0.5
"""Share of the timeout for which the jobs are waited for."""

JOBS_STAGE = "retrieve_running_jobs"
USERS_STAGE = "retrieve_user_name_info"
GROUPS_STAGE = "retrieve_group_name_info"
QUERY_STAGES = {
    Quantity.READ: "build_read_throughput_metrics",
    Quantity.WRITE: "build_write_throughput_metrics",
    Quantity.METADATA: "build_metadata_metrics",
}


class RecentJobs:
    """Remember the owners of jobs for a while after the controller has forgotten them."""

    def __init__(self, keep_seconds: float, *, limit: int = REMEMBERED_JOBS) -> None:
        """Set how long a job is remembered, and how many jobs at most."""
        self._keep_seconds = keep_seconds
        self._limit = limit
        self._seen: dict[int, tuple[float, JobOwner]] = {}

    def update(self, owners: Mapping[int, JobOwner], now_seconds: float) -> Mapping[int, JobOwner]:
        """Return current and recent owners; a current one replaces an older one of the same ID."""
        kept = {
            job: seen
            for job, seen in self._seen.items()
            if job not in owners and now_seconds - seen[0] <= self._keep_seconds
        }
        kept.update((job, (now_seconds, owner)) for job, owner in owners.items())
        excess = max(0, len(kept) - self._limit)
        self._seen = dict(list(kept.items())[excess:]) if excess else kept
        return {job: owner for job, (_, owner) in self._seen.items()}


@dataclass(frozen=True, slots=True)
class _Answer:
    rates: tuple[UseRate, ...]
    at_seconds: float
    received_at: float


class LustreReader:
    """Collect the rates of all quantities, one collection at a time."""

    def __init__(  # noqa: PLR0913 - every source can be replaced
        self,
        settings: PrometheusSettings,
        options: LustreOptions,
        jobs: SharedReading,
        *,
        find_cluster: Callable[[], str] = str,
        client: Prometheus | None = None,
        users: NameCache | None = None,
        groups: NameCache | None = None,
    ) -> None:
        """Check the settings; nothing is queried yet. ``jobs`` is the reading that has the owners of jobs.

        ``find_cluster`` returns the name of their cluster; it is called if the settings name a label for it.
        """
        self.client = client or Prometheus(settings)
        self.is_complete = True
        self.stage_seconds: Mapping[str, float] = {}
        """The duration of each stage of the latest collection, also of those that failed."""
        self._settings = settings
        self._options = options
        self._jobs = jobs
        self._find_cluster = find_cluster
        self._patterns = JobIdPatterns(options.job_id)
        self._recent = RecentJobs(options.range + KEEP_SECONDS)
        self._users = users or NameCache(patience_seconds=_NAMES_PATIENCE_SECONDS)
        self._groups = groups or NameCache(look_up_group, patience_seconds=_NAMES_PATIENCE_SECONDS)
        self._answers: dict[Quantity, _Answer] = {}
        self._owners: Mapping[int, JobOwner] = {}

    def read(self) -> FilesystemUse:
        """Return the current rates; raise the last error if no query was answered."""
        started = time.monotonic()
        collection = _Collection(until=started + self._settings.timeout)
        try:
            return self._collect(collection, started)
        finally:
            self.stage_seconds = collection.seconds

    def _collect(self, collection: _Collection, started: float) -> FilesystemUse:
        with collection.stage(JOBS_STAGE):
            self._update_owners(started + _JOBS_SHARE * self._settings.timeout)
        for quantity, name in QUERY_STAGES.items():
            with collection.stage(name):
                self._query(quantity, collection.until)
        if len(collection.failed.keys() & set(QUERY_STAGES.values())) == len(QUERY_STAGES):
            self.is_complete = False
            raise collection.failed[QUERY_STAGES[Quantity.READ]]
        use = self._attribute(collection)
        self.is_complete = not use.problems
        return use

    def close(self) -> None:
        """Stop resolving names."""
        self._users.close()
        self._groups.close()

    def _update_owners(self, until: float) -> None:
        self._jobs.request()
        snapshot = self._jobs.wait(until)
        current = snapshot.value.owners if isinstance(snapshot.value, Jobs) else {}
        self._owners = self._recent.update(current, time.monotonic())
        if snapshot.error is not None:
            raise SourceError(f"the jobs are outdated or missing: {snapshot.error}")

    def _query(self, quantity: Quantity, until: float) -> None:
        now = time.time()
        cluster = self._find_cluster() if self._settings.cluster_label else ""
        expression = rates_expression(quantity, self._options, self._settings.matchers_of(cluster))
        reply = self.client.query_instant(expression, now, kind=f"lustre_{quantity}", until=until)
        self._answers[quantity] = _Answer(tuple(parse_rates(quantity, self._options, reply)), now, time.monotonic())

    def _attribute(self, collection: _Collection) -> FilesystemUse:
        oldest = time.monotonic() - KEEP_SECONDS
        answers = {quantity: answer for quantity, answer in self._answers.items() if answer.received_at >= oldest}
        users, groups = collection.timed(USERS_STAGE, self._users), collection.timed(GROUPS_STAGE, self._groups)
        attribution = Attribution(self._patterns, self._owners, NameService(users, groups))
        rates = {}
        for quantity, answer in answers.items():
            with collection.stage(QUERY_STAGES[quantity]):
                rates[quantity] = attribution.attribute(answer.rates)
        return FilesystemUse(
            rates=rates,
            answered_at={quantity: answer.at_seconds for quantity, answer in answers.items()},
            problems=tuple(f"{name}: {error}" for name, error in collection.failed.items()),
        )


class _Collection:
    """Measure the stages of one collection, and keep their errors."""

    def __init__(self, *, until: float) -> None:
        self.until = until
        self.seconds = dict.fromkeys((JOBS_STAGE, USERS_STAGE, GROUPS_STAGE, *QUERY_STAGES.values()), 0.0)
        self.failed: dict[str, SourceError] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        except SourceError as error:
            self.failed[name] = error
            logger.warning("stage failed", extra=fields(name, stage=name, reason=error.reason, error=str(error)))
        finally:
            self.seconds[name] += time.monotonic() - started

    def timed(self, name: str, names: NameCache) -> Callable[[int], str | None]:
        """Return a lookup whose time counts for a stage; None where the cache has only the number."""

        def find(uid: int) -> str | None:
            started = time.monotonic()
            found = names.name(uid)
            self.seconds[name] += time.monotonic() - started
            return None if found == str(uid) else found

        return find


def look_up_group(uid: int) -> str | None:
    """Return the name of a user's primary group from the machine's name service; None if there is none."""
    try:
        return grp.getgrgid(pwd.getpwuid(uid).pw_gid).gr_name or None
    except (KeyError, ValueError, OSError, OverflowError):
        return None
