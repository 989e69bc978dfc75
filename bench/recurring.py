# SPDX-License-Identifier: Apache-2.0
"""Generate jobs that users run again and again for a year: the same request, with needs that vary and may grow.

Run time and memory vary from run to run by about a tenth, and in every fourth series grow by one percent a run. A run
that needs more than it requested is killed there, and its true need is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random

from slurmscope.core.tres import Gres
from slurmscope.core.units import DAY_SECONDS
from slurmscope.jobs.record import JobRecord
from slurmscope.simulator.history.history import submit_line, with_use
from slurmscope.simulator.history.requests import ENDINGS, SimulatedRequest, draw_request
from slurmscope.simulator.history.workload_kinds import WorkloadKind, make_workload
from slurmscope.simulator.history.workloads import Memory, NodeWorkload, Workload

YEAR_DAYS = 365
RUN_TIME_SPREAD = 0.12
MEMORY_SPREAD = 0.08
GROWTH = 1.01
FIRST_ID = 6_000_000

_KILLED = frozenset({WorkloadKind.OUT_OF_MEMORY, WorkloadKind.TIMED_OUT})
"""Kinds whose runs are killed, so that their true need is never measured; it does not grow."""
_TOO_SMALL = (0.8, 0.95)
"""What jobs that run out of memory or time request, as shares of their usual need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurringRun:
    """Hold one run, and what it would have needed to end by itself."""

    record: JobRecord
    workload: Workload
    needed_seconds: float
    needed_bytes: float
    """On the node with the highest need."""
    busy_nodes: int
    used_gpus: int


class RecurringJob:
    """Make the runs of one user's job of one kind."""

    def __init__(self, kind: WorkloadKind, number: int, *, seed: int = 1) -> None:
        """Draw the request, once for all runs; jobs with different numbers differ."""
        self._kind, self._number = kind, number
        self._random = Random(f"recurring {kind} {number} {seed}")
        self._growth = GROWTH if number % 4 == 3 and kind not in _KILLED else 1.0
        self._asked = _with_fate(self._random, kind, draw_request(self._random, kind))
        self._too_small = self._random.uniform(*_TOO_SMALL)
        self._memory_share: float | None = None

    def make(self, runs: int, begin_seconds: int) -> tuple[RecurringRun, ...]:
        """Return runs over a year, oldest first."""
        days = sorted(self._random.uniform(0, YEAR_DAYS) for _ in range(runs))
        return tuple(self._run(index, begin_seconds + int(day * DAY_SECONDS)) for index, day in enumerate(days))

    def _run(self, index: int, submit_seconds: int) -> RecurringRun:
        random, asked = self._random, self._asked
        grown = self._growth**index
        needed_seconds = asked.run_seconds * grown * random.lognormvariate(0, RUN_TIME_SPREAD)
        if self._kind is WorkloadKind.TIMED_OUT:
            needed_seconds /= self._too_small
        run_seconds = int(min(needed_seconds, asked.limit_seconds))
        record = self._record(index, submit_seconds, run_seconds)
        # What is random about a workload follows from the job ID: all runs are of the same program.
        workload = make_workload(replace(record, job_id=self._number), self._kind, length_seconds=needed_seconds)
        workload = workload._replace(job_id=record.job_id)
        workload, needed_bytes = self._scale_memory(workload, grown, run_seconds)
        is_timeout = needed_seconds > asked.limit_seconds
        if self._kind is WorkloadKind.OUT_OF_MEMORY or needed_bytes > asked.memory_bytes:
            record = replace(record, state="OUT_OF_MEMORY", exit_signal=125)
        elif is_timeout:
            record = replace(record, state="TIMEOUT", exit_code=0, exit_signal=0)
        return RecurringRun(
            record=with_use(record, workload, replace(asked, run_seconds=run_seconds)),
            workload=workload,
            needed_seconds=needed_seconds,
            needed_bytes=needed_bytes,
            busy_nodes=sum(math.fsum(node.work.cores) > 0.1 * len(node.work.cores) for node in workload.nodes),
            used_gpus=sum(gpu.has_process for node in workload.nodes for gpu in node.gpus),
        )

    def _scale_memory(self, workload: Workload, grown: float, run_seconds: float) -> tuple[Workload, float]:
        """Give all runs about the same need, where each would draw its own; return it as well."""
        random, limit = self._random, float(self._asked.memory_bytes)
        peak = max(_peak_bytes(node.memory, run_seconds) for node in workload.nodes)
        if self._memory_share is None:
            self._memory_share = peak / limit
        wanted = self._memory_share * limit * grown * random.lognormvariate(0, MEMORY_SPREAD)
        if self._kind is WorkloadKind.OUT_OF_MEMORY:
            return workload, max(1.01 * limit, wanted / self._too_small)
        seen = min(wanted, 0.995 * limit)
        nodes = tuple(replace(node, memory=_scaled(node, seen / peak)) for node in workload.nodes)
        return workload._replace(nodes=nodes), wanted

    def _record(self, index: int, submit_seconds: int, run_seconds: int) -> JobRecord:
        asked, random = self._asked, self._random
        start = submit_seconds + 1 + int(random.expovariate(1 / 1200))
        state, exit_code, exit_signal = ENDINGS.get(self._kind, ("COMPLETED", 0, 0))
        if self._kind in _KILLED:
            state, exit_code, exit_signal = "COMPLETED", 0, 0
        name = f"{self._kind}-{self._number}"
        return JobRecord(
            cluster="year",
            job_id=FIRST_ID + 1000 * (100 * list(WorkloadKind).index(self._kind) + self._number) + index,
            name=name,
            user=f"user{self._number}",
            account="physics",
            partition="gpu" if asked.gpus else "batch",
            state=state,
            submit_seconds=submit_seconds,
            eligible_seconds=submit_seconds,
            start_seconds=start,
            end_seconds=start + run_seconds,
            time_limit_seconds=asked.limit_seconds,
            nodes=tuple(f"n{node}" for node in range(asked.nodes)),
            node_count=asked.nodes,
            cpus=asked.nodes * asked.cpus,
            memory_bytes=asked.nodes * asked.memory_bytes,
            gres=(Gres(name="gpu", count=asked.nodes * asked.gpus),) if asked.gpus else (),
            exit_code=exit_code,
            exit_signal=exit_signal,
            submit_line=submit_line(name, asked),
        )


def _with_fate(random: Random, kind: WorkloadKind, asked: SimulatedRequest) -> SimulatedRequest:
    """Leave runs some room below the limit that people chose for the first one."""
    if kind in {WorkloadKind.TIMED_OUT, WorkloadKind.TIME_OVER_REQUESTED}:
        return asked
    limit = math.ceil(asked.run_seconds * random.uniform(1.3, 1.9) / 600) * 600
    return replace(asked, limit_seconds=max(asked.limit_seconds, limit))


def _peak_bytes(memory: Memory, run_seconds: float) -> float:
    return max(memory.anon_bytes(run_seconds * part / 50) for part in range(51)) + memory.shared_bytes


def _scaled(node: NodeWorkload, factor: float) -> Memory:
    memory = node.memory
    return replace(
        memory,
        first_bytes=memory.first_bytes * factor,
        last_bytes=memory.last_bytes * factor,
        shared_bytes=memory.shared_bytes * factor,
    )
