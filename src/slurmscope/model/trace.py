# SPDX-License-Identifier: Apache-2.0
"""Hold what traced processes report about themselves, and who owns the jobs they belong to.

Named tuples, because thousands of samples arrive each second and a frozen dataclass takes five times as long to make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class TraceSample(NamedTuple):
    """Hold one sample as it was sent; None means that the sender did not measure it.

    ``cpu_percent`` is 100 for one busy core. ``cpu_seconds``, ``read_bytes`` and ``write_bytes`` are totals since the
    process started. ``interval_seconds`` is the time until the sender's next sample.
    """

    job_id: int
    pid: int | None = None
    cpu_percent: float | None = None
    threads: float | None = None
    memory_bytes: float | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None
    user: str | None = None
    host: str | None = None
    command: str | None = None
    rank: int | None = None
    step: str | None = None
    cpu_seconds: float | None = None
    interval_seconds: float | None = None
    time_seconds: float | None = None
    start_time_seconds: float | None = None


class JobOwner(NamedTuple):
    """Hold what Slurm says about a running job: its owner, its nodes and its allocation."""

    job_id: int
    uid: int
    user: str
    account: str = ""
    state: str = ""
    node_list: str = ""
    cpus: int | None = None
    memory_bytes: int | None = None


class JobOwners(NamedTuple):
    """Hold the running jobs by job ID; ``unreadable_rows`` counts rows that could not be parsed."""

    jobs: Mapping[int, JobOwner]
    unreadable_rows: int = 0


class TracedProcess(NamedTuple):
    """Hold the latest sample of a process with the node and the owner that Slurm or the kernel names.

    ``way`` is how the sender was authenticated: socket, token, munge or plain.
    """

    owner: JobOwner
    host: str
    way: str
    sample: TraceSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """Hold all traced processes at one moment, and how many samples were accepted and refused since the start.

    ``is_enabled`` is False if tracing is off; there are no counters then. ``has_allocations`` says whether the
    allocation of traced jobs is exported here, and by no other collector.
    """

    processes: tuple[TracedProcess, ...] = ()
    accepted: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    is_enabled: bool = False
    has_allocations: bool = True
