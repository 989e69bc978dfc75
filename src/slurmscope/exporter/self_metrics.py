# SPDX-License-Identifier: Apache-2.0
"""Export metrics of slurmscope itself, on every page.

::

    slurmscope_collector_success{collector="jobs"} 1
    slurmscope_reading_age_seconds{source="jobs"} 3.2
    slurmscope_series_dropped_total{metric="slurm_user_state_total",reason="limit"} 12
"""

from __future__ import annotations

import functools
import os
import platform
import resource
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurmscope import __version__
from slurmscope.exporter.collector import Role
from slurmscope.exporter.feature import OpenFeatures
from slurmscope.exporter.page import CollectorHealth
from slurmscope.exporter.reading import SharedReading
from slurmscope.http.server.gate import Gate
from slurmscope.metrics.family import Family, Labels, counter, gauge, info
from slurmscope.metrics.guard import Guard

PROC_SELF = Path("/proc/self")
PROC_STAT = Path("/proc/stat")
UNLIMITED = float(2**64 - 1)
"""What other exporters serve for memory without a limit."""


def parse_octets(netstat: bytes) -> tuple[int | None, int | None]:
    """Return the bytes that IP received and sent: one line has the names, the next the numbers."""
    names, *numbers = [line.split()[1:] for line in netstat.splitlines() if line.startswith(b"IpExt:")] or [[]]
    found = dict(zip(names, numbers[0], strict=False)) if numbers else {}
    received, sent = (int(found[key]) if key in found else None for key in (b"InOctets", b"OutOctets"))
    return received, sent


def raise_open_files_limit(wanted: int) -> int:
    """Raise the limit of open files as far as this process may; return the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return wanted if soft == resource.RLIM_INFINITY else soft


BUILD_INFO = info("slurmscope_build_info", "Version of slurmscope and of the Python it runs on.", "version", "python")
SUCCESS = gauge(
    "slurmscope_collector_success",
    "1 if the collector succeeded on fresh readings, 0 if its metrics are missing or outdated.",
    "collector",
)
DURATION = gauge(
    "slurmscope_collector_duration_seconds",
    "Duration of the last run of the collector, without reading its sources.",
    "collector",
)
AGE = gauge(
    "slurmscope_reading_age_seconds",
    "Seconds since the last successful reading of the source; absent before the first, and while nobody requests it.",
    "source",
)
READ_DURATION = gauge("slurmscope_reading_duration_seconds", "Duration of the latest reading of the source.", "source")
READS = counter("slurmscope_readings_total", "Readings of the source, including failed ones.", "source")
READ_ERRORS = counter(
    "slurmscope_reading_errors_total",
    "Failed readings of the source by reason: missing, timeout, refused, too_much, failed, malformed, truncated or"
    " bug.",
    "source",
    "reason",
)
DROPPED = counter(
    "slurmscope_series_dropped_total",
    "Series dropped from the page by reason: duplicate, type_clash, labels, value or limit.",
    "metric",
    "reason",
)
REQUESTS = counter("slurmscope_http_requests_total", "HTTP requests by method and status code.", "method", "code")
WEB_CONFIG = gauge(
    "slurmscope_web_config_successful",
    "1 if the web configuration file and its certificates are valid, 0 if all requests are refused.",
)
CERTIFICATE = gauge(
    "slurmscope_certificate_expiry_timestamp_seconds",
    "Unix time at which the certificate that this server shows expires; absent without TLS.",
)
EXTENSION = info(
    "slurmscope_extension_info", "Extension of this site that the configuration names.", "extension", "version"
)
EXTENSION_ERRORS = counter(
    "slurmscope_extension_errors_total",
    "Failures of an extension that is not used or raised an error; those of its collectors have their own metrics.",
    "extension",
)
RELOAD = gauge("slurmscope_config_last_reload_successful", "1 if the last configuration reload succeeded.")
RELOAD_TIME = gauge(
    "slurmscope_config_last_reload_timestamp_seconds", "Unix time at which the active configuration was loaded."
)

CPU = counter("process_cpu_seconds_total", "User and system CPU time spent in seconds.")
RESIDENT = gauge("process_resident_memory_bytes", "Resident memory size in bytes.")
VIRTUAL = gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.")
START = gauge("process_start_time_seconds", "Start time of the process since the Unix epoch in seconds.")
VIRTUAL_LIMIT = gauge("process_virtual_memory_max_bytes", "Limit of virtual memory; 2^64 - 1 if there is none.")
RECEIVED = counter(
    "process_network_receive_bytes_total", "Bytes that IP received, in the network namespace of the process."
)
SENT = counter("process_network_transmit_bytes_total", "Bytes that IP sent, in the network namespace of the process.")
OPEN_FILES = gauge("process_open_fds", "Number of open file descriptors.")
OPEN_FILES_LIMIT = gauge("process_max_fds", "Maximum number of open file descriptors.")

READING_METRICS = (AGE, READ_DURATION, READS, READ_ERRORS)
PROCESS_METRICS = (CPU, RESIDENT, VIRTUAL, VIRTUAL_LIMIT, START, OPEN_FILES, OPEN_FILES_LIMIT, RECEIVED, SENT)
SELF_METRICS = (
    BUILD_INFO, SUCCESS, DURATION, *READING_METRICS, DROPPED, REQUESTS, WEB_CONFIG, CERTIFICATE, EXTENSION,
    EXTENSION_ERRORS, RELOAD, RELOAD_TIME,
    *PROCESS_METRICS,
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class SelfMetrics:
    """Collect the state that the metrics of slurmscope itself are made from."""

    features: OpenFeatures
    guard: Guard
    requests: Mapping[tuple[str, str], int] = field(default_factory=dict)
    gate: Gate | None = None
    """The web configuration, where a file of it is set."""
    is_config_good: bool = True
    config_time_seconds: float | None = None

    def families(self, health: CollectorHealth) -> Iterator[Family]:
        """Yield the families that every page ends with."""
        yield Family(BUILD_INFO, {(__version__, platform.python_version()): 1.0})
        yield Family(SUCCESS, {(name,): float(good) for name, good in sorted(health.is_success.items())})
        yield Family(DURATION, {(name,): o.duration_seconds for name, o in sorted(health.outcomes.items())})
        yield from reading_families(self.features.readings)
        yield from self.features.families(health.is_success)
        yield Family(DROPPED, dict(sorted(self.guard.dropped.items())))
        yield Family(REQUESTS, dict(sorted(self.requests.items())))
        if self.gate is not None:
            rules = self.gate()
            yield Family(WEB_CONFIG, {(): float(not rules.is_closed)})
            if rules.tls is not None and rules.tls.expiry_seconds is not None:
                yield Family(CERTIFICATE, {(): rules.tls.expiry_seconds})
        yield Family(RELOAD, {(): float(self.is_config_good)})
        if self.config_time_seconds is not None:
            yield Family(RELOAD_TIME, {(): self.config_time_seconds})
        yield from process_families()


def adapt_to_textfile(families: Iterable[Family], role: Role) -> Iterator[Family]:
    """Add the label ``role``, and leave out process metrics.

    node_exporter joins all files of its folder and its own metrics to one page, in which a series must not occur twice.
    """
    for family in families:
        metric = family.metric
        if metric.name.startswith("slurmscope_"):
            samples = family.samples.items() if isinstance(family.samples, Mapping) else family.samples
            named = replace(metric, labels=(*metric.labels, "role"))
            yield Family(named, {(*labels, role.value): value for labels, value in samples})
        elif metric not in PROCESS_METRICS:
            yield family


def reading_families(all_readings: Mapping[str, SharedReading]) -> Iterator[Family]:
    """Yield age, duration and errors of readings that were attempted at least once; the age of those in use."""
    readings = sorted((name, reading) for name, reading in all_readings.items() if reading.attempts)
    yield Family(AGE, _known({(name,): reading.age_seconds() for name, reading in readings if reading.is_in_use}))
    yield Family(READ_DURATION, _known({(name,): reading.duration_seconds for name, reading in readings}))
    yield Family(READS, {(name,): reading.attempts for name, reading in readings})
    errors = {(name, reason): n for name, reading in readings for reason, n in sorted(reading.errors.items())}
    yield Family(READ_ERRORS, errors)


def process_families() -> Iterator[Family]:
    """Yield the standard process metrics; nothing if procfs cannot be read."""
    try:
        stat = (PROC_SELF / "stat").read_bytes()
        boot_seconds = _boot_seconds()
        # From Linux 6.2 on, the size of the folder is the number; listing thousands would take milliseconds.
        open_files = (PROC_SELF / "fd").stat().st_size or len(os.listdir(PROC_SELF / "fd"))  # noqa: PTH208 - count only
    except OSError:
        return
    # After the last parenthesis: the command name may contain any character.
    numbers = stat[stat.rindex(b")") + 2 :].split()
    ticks = os.sysconf("SC_CLK_TCK")
    yield Family(CPU, {(): (int(numbers[11]) + int(numbers[12])) / ticks})
    yield Family(RESIDENT, {(): int(numbers[21]) * os.sysconf("SC_PAGE_SIZE")})
    yield Family(VIRTUAL, {(): int(numbers[20])})
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    yield Family(VIRTUAL_LIMIT, {(): UNLIMITED if limit == resource.RLIM_INFINITY else limit})
    yield Family(START, {(): boot_seconds + int(numbers[19]) / ticks})
    yield Family(OPEN_FILES, {(): open_files})
    yield Family(OPEN_FILES_LIMIT, {(): resource.getrlimit(resource.RLIMIT_NOFILE)[0]})
    yield from _network_families()


@functools.cache
def _boot_seconds() -> int:
    """Return when the machine started; the file has a line for each core, and is long."""
    lines = PROC_STAT.read_bytes().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(b"btime "))


def _network_families() -> Iterator[Family]:
    try:
        octets = parse_octets((PROC_SELF / "net" / "netstat").read_bytes())
    except OSError:
        return
    for metric, count in zip((RECEIVED, SENT), octets, strict=True):
        yield Family(metric, {} if count is None else {(): count})


def _known(samples: Mapping[Labels, float | None]) -> dict[Labels, float]:
    return {labels: value for labels, value in samples.items() if value is not None}
