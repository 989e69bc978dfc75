# SPDX-License-Identifier: Apache-2.0
"""Export how fast accounts, users and programs use Lustre file systems, from statistics in Prometheus.

::

    cluster_job_read_throughput_bytes{account="physics",user="alice"} 1.2e+09
    cluster_proc_write_throughput_bytes{proc_name="cp",group_name="staff",user_name="bob"} 8.3e+07
    cluster_filesystem_top_job_metadata_operations_per_second{filesystem="work",jobid="4711",...} 5200
    cluster_filesystem_unknown_read_bytes_per_second{filesystem="work",reason="job"} 4.1e+06

A Lustre exporter counts bytes and operations by the job ID that clients send. The rates of these counters are joined
with the jobs of the cluster. ``reason`` is why a rate has no user: ``job`` (Slurm does not know the job), ``user`` (the
user ID has no name) or ``text`` (the job ID has no known form).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from slurmscope.cluster.backends import JOBS
from slurmscope.cluster.sources import Sources
from slurmscope.core.check import Check
from slurmscope.core.errors import MissingExtraError, SourceError
from slurmscope.core.log import fields
from slurmscope.core.settings import Section
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.reading import STILL_BEING_READ, SharedReading
from slurmscope.exporter.settings import Switch
from slurmscope.lustre.use import FilesystemUse
from slurmscope.metrics.family import Family
from slurmscope.prometheus.query_counters import SERIES_METRICS, series_families
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.slurm.cluster_names import ClusterNames, read_own_name

if TYPE_CHECKING:
    from slurmscope.lustre.reader import LustreReader


from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest

from slurmscope.core.settings import choice, duration, parse_list, setting
from slurmscope.exporter.collector import Collector, Role
from slurmscope.lustre.use import ClientRate, Quantity, Unknown, class_of, parse_patterns
from slurmscope.metrics.family import Labels, Metric, compat_gauge, gauge

OTHER_PROGRAMS = "other"

SCRAPE_OK = compat_gauge(
    "cluster_exporter_scrape_ok",
    "1 if all stages of the latest collection succeeded and it is up to date, 0 if metrics are missing or outdated.",
)
STAGES = compat_gauge(
    "cluster_exporter_stage_execution_seconds", "Duration of each stage of the latest collection.", "name"
)
ANSWERED = gauge(
    "cluster_exporter_answer_timestamp_seconds",
    "Unix time of the Prometheus answer that the metrics of this quantity come from.",
    "quantity",
)

_JOB_LABELS = ("account", "user")
_PROGRAM_LABELS = ("proc_name", "group_name", "user_name")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantityMetrics:
    by_account: Metric
    by_program: Metric
    jobs: Metric
    programs: Metric
    top_jobs: Metric
    unknown: Metric


def _new(name: str, help: str, unit: str, *labels: str) -> Metric:
    return gauge(f"cluster_filesystem_{name}_per_second", f"{help} {unit}.", "filesystem", *labels)


def _metrics(what: str, unit: str, older: tuple[Metric, Metric], *more: str) -> QuantityMetrics:
    return QuantityMetrics(
        by_account=older[0],
        by_program=older[1],
        jobs=_new(what, "Use by jobs:", unit, "account", "user", "partition", *more),
        programs=_new(f"program_{what}", "Use by programs outside jobs:", unit, "program", "group", "user", *more),
        top_jobs=_new(
            f"top_job_{what}", "Use by the jobs that use it most:", unit, "jobid", "account", "user", "partition"
        ),
        unknown=_new(f"unknown_{what}", "Use that cannot be attributed to a user:", unit, "reason"),
    )


def _throughput(word: str, done: str) -> tuple[Metric, Metric]:
    return (
        compat_gauge(f"cluster_job_{word}_throughput_bytes", f"Bytes {done} per second by jobs.", *_JOB_LABELS),
        compat_gauge(
            f"cluster_proc_{word}_throughput_bytes",
            f"Bytes {done} per second by programs outside jobs.",
            *_PROGRAM_LABELS,
        ),
    )


QUANTITIES = {
    Quantity.READ: _metrics("read_bytes", "bytes read per second", _throughput("read", "read")),
    Quantity.WRITE: _metrics("write_bytes", "bytes written per second", _throughput("write", "written")),
    Quantity.METADATA: _metrics(
        "metadata_operations",
        "metadata operations per second",
        (
            compat_gauge(
                "cluster_job_metadata_operations", "Metadata operations per second by jobs.", *_JOB_LABELS, "target"
            ),
            compat_gauge(
                "cluster_proc_metadata_operations",
                "Metadata operations per second by programs outside jobs.",
                *_PROGRAM_LABELS,
                "target",
            ),
        ),
        "class",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Name the metrics and labels of a Lustre exporter; without ``filesystem``, the target has the file system."""

    read: str
    write: str
    metadata: str
    job: str
    operation: str
    target: str = ""
    filesystem: str = ""


DIALECTS = {
    "servers": Dialect(
        read="lustre_job_read_bytes_total",
        write="lustre_job_write_bytes_total",
        metadata="lustre_job_stats_total",
        job="jobid",
        operation="operation",
        target="target",
    ),
    "clients": Dialect(
        read='lustre_client_data_bytes_total{op="read"}',
        write='lustre_client_data_bytes_total{op="write"}',
        metadata="lustre_client_access_operations_total",
        job="slurm_job_id",
        operation="op",
        filesystem="fs",
    ),
}
"""Exporters on the servers (GSI's lustre_exporter, lustrefs_exporter) and on the clients of Lustre."""


def parse_job_ids(given: object) -> tuple[str, ...]:
    return parse_patterns(parse_list(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class LustreOptions:
    """What is queried, and how much of it is exported."""

    range: float = duration(
        60.0, "Time range of the rates; at least twice the interval at which the Lustre exporter is scraped."
    )
    job_id: tuple[str, ...] = setting(
        (),
        "Form of the job IDs in Lustre: its jobid_name, such as %e:%u:%h, or a regular expression with groups "
        "such as (?P<job>...) and (?P<uid>...); repeatable, tried in order, before the known forms.",
        parse=parse_job_ids,
        metavar="PATTERN",
    )
    dialect: str = choice(
        "servers",
        DIALECTS,
        "Names of metrics and labels: those of an exporter on the Lustre servers (lustre_job_*) or on its "
        "clients (lustre_client_*).",
    )
    top_jobs: int = 20
    """Maximum number of jobs exported by ID, per file system and quantity."""
    programs: int = 200
    """Maximum number of exported programs outside jobs, per quantity; the others are summed by user."""


def collect(options: LustreOptions, *, lustre: FilesystemUse) -> Iterator[Family]:
    """Yield the metrics of each quantity that was answered."""
    for quantity, metrics in QUANTITIES.items():
        if quantity in lustre.rates:
            yield from _families(options, metrics, lustre.rates[quantity], has_class=quantity is Quantity.METADATA)
    yield Family(ANSWERED, {(str(quantity),): at for quantity, at in lustre.answered_at.items()})


def _families(
    options: LustreOptions, metrics: QuantityMetrics, rates: Sequence[ClientRate], *, has_class: bool
) -> Iterator[Family]:
    jobs = [rate for rate in rates if rate.client.account]
    programs = [rate for rate in rates if rate.client.program]
    program = _program_labels(programs, options.programs)

    def more(rate: ClientRate) -> Labels:
        return (class_of(rate.operation),) if has_class else ()

    def target(rate: ClientRate) -> Labels:
        return (rate.target,) if has_class else ()

    yield Family(metrics.by_account, _sums(jobs, lambda rate: (rate.client.account, rate.client.user, *target(rate))))
    yield Family(metrics.by_program, _sums(programs, lambda rate: (*program(rate), *target(rate))))
    yield Family(metrics.jobs, _sums(jobs, lambda rate: (rate.filesystem, *_owner(rate), *more(rate))))
    yield Family(metrics.programs, _sums(programs, lambda rate: (rate.filesystem, *program(rate), *more(rate))))
    yield Family(metrics.top_jobs, _top_jobs(jobs, options.top_jobs))
    yield Family(metrics.unknown, _unknown(rates))


def _owner(rate: ClientRate) -> Labels:
    client = rate.client
    return client.account, client.user, client.partition


def _program(rate: ClientRate) -> Labels:
    client = rate.client
    return client.program, client.group, client.user


def _sums(rates: Iterable[ClientRate], labels: Callable[[ClientRate], Labels]) -> dict[Labels, float]:
    sums: dict[Labels, float] = defaultdict(float)
    for rate in rates:
        sums[labels(rate)] += rate.per_second
    return sums


def _program_labels(rates: Sequence[ClientRate], limit: int) -> Callable[[ClientRate], Labels]:
    """Return what gives all but the busiest programs the same name: users choose the names of their programs."""
    sums = _sums(rates, _program)
    kept = frozenset(_largest(sums, sums, limit))

    def labels(rate: ClientRate) -> Labels:
        own = _program(rate)
        return own if own in kept else (OTHER_PROGRAMS, *own[1:])

    return labels


def _top_jobs(jobs: Iterable[ClientRate], limit: int) -> dict[Labels, float]:
    """Return the jobs with the highest rates on each file system."""
    sums = _sums(
        (rate for rate in jobs if rate.client.job), lambda rate: (rate.filesystem, rate.client.job, *_owner(rate))
    )
    by_filesystem: dict[str, list[Labels]] = defaultdict(list)
    for labels in sums:
        by_filesystem[labels[0]].append(labels)
    top = (_largest(sums, candidates, limit) for candidates in by_filesystem.values())
    return {labels: sums[labels] for some in top for labels in some}


def _largest(sums: Mapping[Labels, float], candidates: Iterable[Labels], limit: int) -> list[Labels]:
    return [labels for _, labels in nlargest(limit, ((sums[labels], labels) for labels in candidates))]


def _unknown(rates: Iterable[ClientRate]) -> dict[Labels, float]:
    """Return what has no user, by reason; with a 0 for each file system and reason without such use."""
    sums: dict[Labels, float] = {
        (filesystem, str(reason)): 0.0
        for filesystem in sorted({rate.filesystem for rate in rates})
        for reason in Unknown
    }
    for rate in rates:
        if rate.client.reason is not None:
            sums[rate.filesystem, str(rate.client.reason)] += rate.per_second
    return sums


COLLECTOR = Collector(
    name="lustre",
    role=Role.CLUSTER,
    help="Use of Lustre file systems by account, user and program, from a Lustre exporter's statistics in Prometheus.",
    needs=("lustre",),
    metrics=(
        *(
            metric
            for metrics in QUANTITIES.values()
            for metric in (
                metrics.by_account,
                metrics.by_program,
                metrics.jobs,
                metrics.programs,
                metrics.top_jobs,
                metrics.unknown,
            )
        ),
        ANSWERED,
        STAGES,
        SCRAPE_OK,
    ),
    collect=collect,
    options=LustreOptions,
    is_default=False,
    enabled_by="prometheus.url",
)


logger = logging.getLogger(__name__)

ADVICE = "check --prometheus.url and its credentials, and that this server answers queries"
SECTION = f"collector.{COLLECTOR.name}"


def _open(host: Host) -> Running:
    if not host.config.of(Switch, SECTION).enabled:
        return Running()
    reader = _open_reader(host)
    reading = SharedReading(
        COLLECTOR.name,
        reader.read if reader else _refuse,
        interval_seconds=host.readings[JOBS.name].interval_seconds,
        advice=ADVICE,
    )
    if reader is None:
        return Running(readings=(reading,))

    def families(is_success: Mapping[str, bool]) -> Iterator[Family]:
        if COLLECTOR.name in is_success:
            if reading.wait(0.0).error == STILL_BEING_READ:
                logger.warning("Collect is still active... - Skipping now", extra=fields("lustre"))
            yield Family(STAGES, {(name,): seconds for name, seconds in reader.stage_seconds.items()})
            yield Family(SCRAPE_OK, {(): float(is_success[COLLECTOR.name] and reader.is_complete)})
            yield from series_families(reader.client.counters.snapshot())

    return Running(
        readings=(reading,),
        families=families,
        checks=lambda: _checks(reading.wait(0.0).value),
        close=reader.close,
    )


def _open_reader(host: Host) -> LustreReader | None:
    """Return the reader of Lustre statistics; None without its package; raise ConfigError for wrong settings."""
    config, slurm = host.config, host.sources
    if not isinstance(slurm, Sources):
        raise TypeError("Lustre statistics need the sources of the cluster exporter")
    # Imported here: it needs a package that the other collectors do not need.
    try:
        from slurmscope.lustre.reader import LustreReader
    except MissingExtraError:
        # The address may be in a file that is shared with the portal: this must not stop the other collectors.
        if config.values[f"{SECTION}.enabled"].origin == COLLECTOR.enabled_by:
            return None
        raise

    slurm.with_owners = True
    names = ClusterNames(lambda: (read_own_name(slurm.run),))
    return LustreReader(
        config.of(PrometheusSettings),
        config.of(LustreOptions, SECTION),
        host.readings[JOBS.name],
        find_cluster=lambda: names.get()[0],
    )


def _refuse() -> object:
    raise SourceError("the collector lustre needs --prometheus.url and the extra 'reports'")


def _checks(use: object) -> Iterator[Check]:
    if isinstance(use, FilesystemUse):
        job_ids = len({rate.client for rates in use.rates.values() for rate in rates})
        found = f"{job_ids} jobs and programs use Lustre" if job_ids else "no use of Lustre was found"
        yield Check(
            name="lustre statistics",
            is_good=not use.problems,
            message="; ".join(use.problems) or found,
            advice="" if not use.problems else "some metrics of lustre are missing: see --prometheus.url",
        )


LUSTRE = Feature(
    name="lustre",
    sections=(Section(name="prometheus", type=PrometheusSettings),),
    collectors=(COLLECTOR,),
    metrics=SERIES_METRICS,
    open=_open,
)
