# SPDX-License-Identifier: Apache-2.0
"""Export what NCCL's Inspector measures of collective operations, from the files that it writes in jobs.

::

    jobs_nccl_bus_bandwidth_bytes_per_second{slurm_job="4711",slurm_node="n17",gpu="GPU0",...} 2.1e+11
    jobs_nccl_operation_seconds{slurm_job="4711",slurm_node="n17",gpu="GPU0",operation="AllReduce",...} 0.0011

The plugin writes a file for each GPU into a folder, as the user of the job; the folder is writable for all users, so
nothing in it is trusted: a file counts for the job that it names if that runs on this node and belongs to the owner of
the file.
"""

from __future__ import annotations

import math
import os
import re
import stat
import time
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from slurmscope.core.config import folder_path
from slurmscope.core.rate_limit import TokenBuckets
from slurmscope.exporter.collector import Collector, Role
from slurmscope.metrics.family import Family, Labels, counter, gauge
from slurmscope.node.job_metrics import JOB, job_labels
from slurmscope.node.job_use import JobKey, JobUse, NodeJobs

SUFFIX = ".prom"
MOST_ENTRIES = 10_000
"""So many entries of the folder are listed at each reading; of more, the rest at the next ones."""
MOST_FILES = 64
"""Of a user: a GPU has one."""
MOST_BYTES = 1 << 20
MOST_SERIES = 512
"""Of a job, of each of the metrics."""
NEW_SERIES_AN_HOUR = 2000
"""Of a user, and as many at once: the names of communicators are whatever a file says."""
KEPT_SECONDS = 300.0
"""The plugin writes twice a minute; an older file is of a job that hangs or has ended."""
_NAME_CHARACTERS = 64

_LINE = re.compile(r"(nccl_[a-z0-9_]{1,60})\{([^{}]{0,1500})\} ([0-9.eE+-]{1,30})")
_LABEL = re.compile(r'([a-z0-9_]{1,40})="([^"\\]{0,200})"')
_SCALES = {
    "nccl_bus_bandwidth_gbs": ("bandwidth", 1e9),
    "nccl_p2p_bus_bandwidth_gbs": ("bandwidth", 1e9),
    "nccl_collective_exec_time_microseconds": ("seconds", 1e-6),
    "nccl_p2p_exec_time_microseconds": ("seconds", 1e-6),
}

OK, OTHER_USER, TOO_OLD, TOO_LONG, TOO_MANY, MALFORMED = (
    "ok", "other_user", "too_old", "too_long", "too_many", "malformed",
)  # fmt: skip

Values = Mapping[Labels, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """Bandwidth and duration by job and by the labels of the operation, and how many files were read by result."""

    bandwidth: Mapping[JobKey, Values] = field(default_factory=dict)
    seconds: Mapping[JobKey, Values] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectorOptions:
    """Where NCCL's Inspector writes."""

    directory: Path | None = folder_path(
        None,
        "Folder into which NCCL's Inspector writes its Prometheus files in jobs (NCCL_INSPECTOR_DUMP_DIR); enables the "
        "collector.",
    )


class InspectorReader:
    """Read all files of the folder. Not thread-safe."""

    def __init__(
        self,
        folder: Path,
        read_running: Callable[[], Iterable[JobUse]],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._names = FileNames(folder)
        self._read_running = read_running
        self._clock = clock
        self._files: Counter[str] = Counter()
        self._known: set[tuple[JobKey, Labels]] = set()
        self._room = TokenBuckets(NEW_SERIES_AN_HOUR / 3600, NEW_SERIES_AN_HOUR, clock=monotonic)

    def read(self) -> Inspected:
        jobs = {str(job.key.job_id): job for job in self._read_running()}
        found: dict[str, dict[JobKey, dict[Labels, float]]] = {"bandwidth": {}, "seconds": {}}
        for name in self._list({job.uid for job in jobs.values()}):
            self._files[self._take(name, jobs, found)] += 1
        self._known = {
            (key, labels) for values in found.values() for key, of_job in values.items() for labels in of_job
        }
        return Inspected(bandwidth=found["bandwidth"], seconds=found["seconds"], files=dict(self._files))

    def _list(self, uids: Collection[int | None]) -> list[str]:
        """Return the files of users with a job here, as far as they are known."""
        self._names.go_on()
        return [name for uid in sorted(uid for uid in uids if uid is not None) for name in self._names.of(uid)]

    def _take(
        self, name: str, jobs: Mapping[str, JobUse], found: Mapping[str, dict[JobKey, dict[Labels, float]]]
    ) -> str:
        """Add the operations of one file, and return how that went."""
        try:
            text, owner, age = self._read_file(name)
        except OSError:
            return MALFORMED
        if abs(age) > KEPT_SECONDS:  # one from the future would never be too old
            return TOO_OLD
        if len(text) > MOST_BYTES:
            return TOO_LONG
        result = MALFORMED
        for job_id, kind, labels, value in parse_inspector(text.decode("utf-8", "replace")):
            job = jobs.get(job_id)
            if job is None or job.uid != owner:
                return OTHER_USER
            values = found[kind].setdefault(job.key, {})
            if not self._admits(job.key, owner, labels, values):
                return TOO_MANY
            values[labels] = value
            result = OK
        return result

    def _admits(self, key: JobKey, owner: int, labels: Labels, values: Mapping[Labels, float]) -> bool:
        if labels in values:
            return True
        if len(values) >= MOST_SERIES:
            return False
        if (key, labels) in self._known:
            return True
        return not self._room.take(owner)

    def _read_file(self, name: str) -> tuple[bytes, int, float]:
        """Return contents, owner and age of a regular file; links are not followed, and nothing blocks."""
        descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise OSError("not a regular file of its own")
            return file.read(MOST_BYTES + 1), status.st_uid, self._clock() - status.st_mtime


class FileNames:
    """List the plugin's files in a folder that any user may fill, some entries at a time, and keep a few of each owner.

    However many entries one user makes, the files of others are found, if only some readings later.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries: os._ScandirIterator[str] | None = None
        self._before: Mapping[int, list[str]] = {}
        self._names: defaultdict[int, list[str]] = defaultdict(list)

    def of(self, uid: int) -> list[str]:
        """Return the first names of an owner, of this pass over the folder and the one before."""
        return sorted({*self._names.get(uid, ()), *self._before.get(uid, ())})[:MOST_FILES]

    def go_on(self) -> None:
        """List further entries; at the end of the folder begin anew with the next call."""
        count = 0
        try:
            if self._entries is None:
                self._entries = os.scandir(self._folder)
            for entry in islice(self._entries, MOST_ENTRIES):
                count += 1
                self._add(entry)
        except OSError:
            count = 0
        if count < MOST_ENTRIES:
            self.close()
            self._before, self._names = self._names, defaultdict(list)

    def close(self) -> None:
        if self._entries is not None:
            self._entries.close()
        self._entries = None

    def _add(self, entry: os.DirEntry[str]) -> None:
        if entry.name.endswith(SUFFIX):
            with suppress(OSError):  # it may be gone by now
                names = self._names[entry.stat(follow_symlinks=False).st_uid]
                insort(names, entry.name)
                del names[MOST_FILES:]


def parse_inspector(text: str) -> Iterator[tuple[str, str, Labels, float]]:
    """Yield job, kind of value, labels and value of each line that is one of the Inspector."""
    for line in text.splitlines():
        matched = _LINE.fullmatch(line)
        if matched is None or matched[1] not in _SCALES:
            continue
        labels = dict(_LABEL.findall(matched[2]))
        try:
            value = float(matched[3])
        except ValueError:
            continue
        kind, scale = _SCALES[matched[1]]
        if value < 0 or not math.isfinite(value):
            continue
        operation = labels.get("collective") or labels.get("p2p_operation", "")
        names = (labels.get("gpu", ""), labels.get("comm_name", ""), operation, labels.get("message_size", ""))
        further = (*names, labels.get("algo_proto", ""), labels.get("nranks", ""))
        yield labels.get("slurm_job_id", ""), kind, tuple(name[:_NAME_CHARACTERS] for name in further), value * scale


_LABELS = (*JOB, "gpu", "communicator", "operation", "message_size", "algorithm", "ranks")
BANDWIDTH = gauge(
    "jobs_nccl_bus_bandwidth_bytes_per_second",
    "Mean bus bandwidth of operations of NCCL in the job, as its Inspector measured them last.",
    *_LABELS,
)
DURATION = gauge(
    "jobs_nccl_operation_seconds",
    "Mean duration of operations of NCCL in the job, as its Inspector measured them last.",
    *_LABELS,
)
FILES = counter(
    "slurm_node_nccl_inspector_files_total",
    "Files of NCCL's Inspector by result: ok, other_user (not of the user of a running job that they name), too_old, "
    "too_long, too_many (series), malformed.",
    "slurm_node",
    "result",
)


def collect(
    options: InspectorOptions,  # noqa: ARG001 - part of the protocol
    *,
    nccl_inspector: Inspected,
    node_jobs: NodeJobs,
) -> Iterator[Family]:
    host = node_jobs.host_name
    for metric, values in ((BANDWIDTH, nccl_inspector.bandwidth), (DURATION, nccl_inspector.seconds)):
        samples = {
            (*job_labels(key, host), *labels): value
            for key, of_job in values.items()
            for labels, value in of_job.items()
        }
        yield Family(metric, samples)
    yield Family(FILES, {(host, result): count for result, count in sorted(nccl_inspector.files.items())})


COLLECTOR = Collector(
    name="nccl_inspector",
    role=Role.NODE,
    help="Bandwidth and duration of collective operations in jobs, from files of NCCL's Inspector.",
    needs=("nccl_inspector", "node_jobs"),
    metrics=(BANDWIDTH, DURATION, FILES),
    collect=collect,
    options=InspectorOptions,
    is_default=False,
    enabled_by="collector.nccl_inspector.directory",
)
