# SPDX-License-Identifier: Apache-2.0
"""Describe the metrics of the smaller replaced tools, and why values differ.

The tables of ``docs/migrate`` are made from these descriptions and from the declared metrics, and ``slurmscope migrate
check`` quotes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slurmscope.migrate.pages import Page

TOLERANCE = 0.002
MIB_FACTOR = 1.048576
"""Of bytes in a MiB and in a million."""


class SeriesChange(NamedTuple):
    """One series of the old page; ``now`` is None if slurmscope has none with its labels."""

    metric: str
    labels: Mapping[str, str]
    was: float
    now: float | None


class Pages(NamedTuple):
    """The pages that are compared, for conditions that need other metrics."""

    old: Page
    ours: Page


Condition = Callable[[SeriesChange, Pages], bool]


@dataclass(frozen=True, slots=True)
class DocumentedReason:
    """What the documentation says, and the condition under which it explains a change."""

    text: str
    explains: Condition


def is_close(one: float, other: float, tolerance: float = TOLERANCE) -> bool:
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-9)


def total(page: Page, metric: str, **labels: str) -> float | None:
    """Sum the series of a metric that have these labels; None if there is none."""
    found = [
        sample.value
        for sample in (page[metric].samples if metric in page else ())
        if all(sample.labels.get(name, "") == value for name, value in labels.items())
    ]
    return math.fsum(found) if found else None


def factor(*factors: float) -> Condition:
    """Explain a value that is one of these multiples of the old one."""
    return lambda change, _: change.now is not None and any(is_close(change.now, each * change.was) for each in factors)


def at_least(share: float = 1.0) -> Condition:
    """Explain a value that is no smaller, or has at least this share of the old one."""
    return lambda change, _: change.now is not None and 0 < share * change.was <= change.now


def at_most(limit: float = 1.0) -> Condition:
    """Explain a value that is no larger; a series that has none left may be missing."""
    return lambda change, _: 0 <= (change.now or 0.0) <= limit * change.was


def truncated(change: SeriesChange, _: Pages) -> bool:
    """Explain an exact value that was cut to a whole number."""
    return change.now is not None and change.was == math.floor(change.now)


def same_total(label: str, *factors: float) -> Condition:
    """Explain values that moved between the values of a label: added up over them, both pages have the same."""

    def explains(change: SeriesChange, pages: Pages) -> bool:
        others = {name: value for name, value in change.labels.items() if name != label}
        was, now = total(pages.old, change.metric, **others), total(pages.ours, change.metric, **others)
        return was is not None and now is not None and any(is_close(now, each * was) for each in (1.0, *factors))

    return explains


def both(*conditions: Condition) -> Condition:
    return lambda change, pages: all(condition(change, pages) for condition in conditions)


def without_series(change: SeriesChange, _: Pages) -> bool:
    return change.now is None


def has(label: str, *characters: str) -> Condition:
    """Hold for series with one of these characters in the value of a label."""
    return lambda change, _: any(character in change.labels.get(label, "") for character in characters)


_PS_TOLERANCE = 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class OldMetrics:
    """Describe metrics of the older tool that have the same differences; ``missing`` says why slurmscope has none.

    ``note`` says what does not change a value. ``is_volatile`` marks values that differ between any two readings, such
    as the duration of a command.
    """

    names: tuple[str, ...]
    note: str = ""
    reasons: tuple[DocumentedReason, ...] = ()
    missing: str = ""
    is_volatile: bool = False

    @property
    def difference(self) -> str:
        """Return what the documentation says about all of them."""
        texts = (self.note, *(reason.text for reason in self.reasons))
        return ". ".join(text for text in texts if text) or "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricGroup:
    """The metrics of one subject; ``note`` is a paragraph above their table."""

    title: str
    metrics: tuple[OldMetrics, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSystem:
    """Describe one replaced tool; ``page`` is the name of its page in ``docs/migrate``."""

    page: str
    groups: tuple[MetricGroup, ...]

    def metrics(self) -> Iterator[OldMetrics]:
        for group in self.groups:
            yield from group.metrics

    def by_name(self) -> Mapping[str, OldMetrics]:
        return {name: old for old in self.metrics() for name in old.names}


def old(
    *names: str, note: str = "", reasons: Sequence[DocumentedReason] = (), missing: str = "", is_volatile: bool = False
) -> OldMetrics:
    return OldMetrics(names=names, note=note, reasons=tuple(reasons), missing=missing, is_volatile=is_volatile)


_UNKNOWN = "jobs and users that are not known are exported as `unknown`; they were dropped"


def _was_rounded(change: SeriesChange, _: Pages) -> bool:
    """Hold for sums of rates that were rounded each: a rate of 1.5 became 2, one below 1 was left out."""
    return (
        change.now is not None
        and change.was.is_integer()
        and change.was / 1.5 <= change.now + 0.5 <= 2 * change.was + 1
    )


_ROUNDED = DocumentedReason("exact; it was rounded, without operations below one per second", _was_rounded)
_MORE_PROCESSES = DocumentedReason("all processes of the job count; every second one was skipped", at_least())
_ENDED = DocumentedReason(
    "all processes count, ended ones too, so it never falls; every second one was skipped", at_least()
)

CLUSTER_EXPORTER = OldSystem(
    page="cluster-exporter",
    groups=(
        MetricGroup(
            title="Lustre",
            metrics=(
                old("cluster_job_read_throughput_bytes", "cluster_job_write_throughput_bytes", note=_UNKNOWN),
                old("cluster_proc_read_throughput_bytes", "cluster_proc_write_throughput_bytes", note=_UNKNOWN),
                old("cluster_job_metadata_operations", reasons=[_ROUNDED]),
                old("cluster_proc_metadata_operations", reasons=[_ROUNDED]),
                old("cluster_exporter_scrape_ok", note="0 also while the last good values are served"),
                old("cluster_exporter_stage_execution_seconds", is_volatile=True),
            ),
        ),
    ),
)


_JOBS = (
    old(
        "jobs_spawned_processes",
        reasons=[
            DocumentedReason(
                "processes of the whole job. It was the number of threads of its first task",
                lambda change, _: change.now is not None and change.now >= 1,
            )
        ],
    ),
    old("jobs_opened_files", reasons=[_MORE_PROCESSES]),
    old(
        "jobs_thread_count",
        note="`jobs_program_threads` is the sum over all processes of a name",
        reasons=[
            DocumentedReason("of the process with the most threads of that name; it was the last one found", at_least())
        ],
    ),
    old("jobs_user_time", "jobs_system_time", note="same: hundredths of a second"),
    old("jobs_cpu_time_total", note="same: seconds"),
    old("jobs_cpu_time_core", note="same: seconds. Cgroup v1 only: v2 has no CPU time per core"),
    old("jobs_cpu_percent", note="since the previous scrape; it was over a tenth of a second", is_volatile=True),
    old(
        "jobs_cpu_percent_per_core",
        note="divided by the cores of the job. It was too large for jobs with several processes",
        is_volatile=True,
    ),
    old("jobs_rss", note="same: units of 1,048,576 bytes", reasons=[_MORE_PROCESSES]),
    old(
        "jobs_read_mb",
        "jobs_write_mb",
        note="same: what reached storage, in units of 1,048,576 bytes. What programs requested is "
        "`jobs_io_read_bytes_total` and `jobs_io_write_bytes_total`",
        reasons=[_ENDED],
    ),
    old("jobs_read_count", "jobs_write_count", reasons=[_ENDED]),
    old(
        "jobs_uses_scratch",
        note="words for scratch are set by `--node.scratch`",
        reasons=[DocumentedReason("it was always 0 in v0.02", lambda change, _: (change.was, change.now) == (0, 1))],
    ),
    old(
        "jobs_gpus_used",
        reasons=[
            DocumentedReason(
                "one series for each GPU of the job; `0,1` made series for `0`, `,` and `1`",
                both(without_series, has("gpuid", ",")),
            )
        ],
    ),
)

_GPUS = (
    old(
        "temperature_gpu",
        "utilization_gpu",
        "utilization_memory",
        "memory_total",
        "memory_free",
        "memory_used",
        note="same units (degrees, percent, MiB), now from the node agent; they have a type",
    ),
)

JOBS_EXPORTER = OldSystem(
    page="jobs-exporter",
    groups=(
        MetricGroup(title="Jobs", metrics=_JOBS),
        MetricGroup(title="GPUs", note="They were of nvidia_smi_exporter, on port 9101.", metrics=_GPUS),
    ),
)


_NEW_NAMES = {
    "CPUFrequency": "`slurm_profile_task_cpu_frequency_hertz`, hertz",
    "CPUTime": "`slurm_profile_task_cpu_seconds_total`, a counter; it was the time since the previous sample",
    "CPUUtilization": "`slurm_profile_task_busy_cores`, where 100 % is 1",
    "RSS": "`slurm_profile_task_resident_bytes`, bytes; it was KB",
    "VMSize": "`slurm_profile_task_virtual_bytes`, bytes; it was KB",
    "Pages": "`slurm_profile_task_major_faults_total`, a counter",
    "ReadMB": "`slurm_profile_task_read_bytes_total` or `slurm_profile_filesystem_read_bytes_total`; one name for both",
    "WriteMB": "`slurm_profile_task_write_bytes_total` or `slurm_profile_filesystem_write_bytes_total`, likewise",
    "GPUMemMB": "`slurm_profile_task_gpu_memory_bytes`, bytes",
    "GPUUtilization": "`slurm_profile_task_gpu_utilization_ratio`, where 100 % is 1",
    "Power": "`slurm_profile_power_watts`, by sensor",
    "Reads": "`slurm_profile_filesystem_reads_total`, a counter",
    "Writes": "`slurm_profile_filesystem_writes_total`, a counter",
    "PacketsIn": "`slurm_profile_network_receive_packets_total`, a counter",
    "PacketsOut": "`slurm_profile_network_transmit_packets_total`, a counter",
    "InMB": "`slurm_profile_network_receive_bytes_total`, a counter in bytes",
    "OutMB": "`slurm_profile_network_transmit_bytes_total`, a counter in bytes",
}

PROFILE_PLUGIN = OldSystem(
    page="profile-plugin",
    groups=(
        MetricGroup(
            title="Samples", metrics=tuple(old(name, missing=f"is now {new}") for name, new in _NEW_NAMES.items())
        ),
    ),
)


def _was_padded(change: SeriesChange, pages: Pages) -> bool:
    """Hold for a series that is here without the blanks, with the same value."""
    command = change.labels.get("command", "").rstrip(" ")
    now = total(pages.ours, change.metric, **{**change.labels, "command": command})
    return change.now is None and now is not None and is_close(now, change.was, _PS_TOLERANCE)


def _was_cut(change: SeriesChange, pages: Pages) -> bool:
    """Hold for a user that is not here by this name, while one whose name begins like it has the same value."""
    user = change.labels.get("user", "")
    ours = pages.ours[change.metric].samples if change.metric in pages.ours else ()
    return change.now is None and any(
        sample.labels.get("user", "").startswith(user.rstrip("+")) and is_close(sample.value, change.was, _PS_TOLERANCE)
        for sample in ours
    )


PSEUDO_EXPORTER = OldSystem(
    page="pseudo-exporter",
    groups=(
        MetricGroup(
            title="Process groups",
            note="Served by `slurmscope node --collector.process_groups`.",
            metrics=(
                old(
                    "cpu_usage",
                    "ram_usage",
                    note="sums of what ps shows, as before. Above 200 groups per user the rest is one series",
                    reasons=[
                        DocumentedReason("`command` is not padded to 16 characters", _was_padded),
                        DocumentedReason(
                            "names of users are whole; they were cut, or replaced by the user ID", _was_cut
                        ),
                    ],
                ),
            ),
        ),
        MetricGroup(
            title="Cores of users",
            note="Served by `slurmscope cluster`.",
            metrics=(
                old(
                    "ncpus",
                    note="partitions are set by `--collector.jobs.ncpus-partitions`, default `gpus`",
                    reasons=[
                        DocumentedReason("names of users are whole; sacct cut them after nine characters", _was_cut)
                    ],
                ),
            ),
        ),
    ),
)
