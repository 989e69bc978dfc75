# SPDX-License-Identifier: Apache-2.0
"""Sum up the parts of a heterogeneous job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurmscope.model.archive import JobRow


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts:
    """Hold the parts of a heterogeneous job in their order, and their sums."""

    het_job_id: int
    rows: tuple[JobRow, ...]
    nodes: int
    cpus: int | None
    gpus: int
    core_seconds: float
    cpu_ratio: float | None
    """Used share of the core time of all parts; None unless all were measured."""


def make_job_parts(het_job_id: int, rows: Sequence[JobRow]) -> JobParts | None:
    """Sum up the newest run of each part; None if there is only one."""
    newest: dict[int, JobRow] = {}
    for row in sorted(rows, key=lambda row: row.submit_seconds):
        newest[row.het_offset or 0] = row
    parts = tuple(newest[offset] for offset in sorted(newest))
    if len(parts) < 2:
        return None
    held = math.fsum(row.core_seconds for row in parts)
    ratios = [row.cpu_ratio for row in parts]
    cpus = [row.cpus for row in parts if row.cpus is not None]
    used = math.fsum(row.core_seconds * (row.cpu_ratio or 0.0) for row in parts)
    return JobParts(
        het_job_id=het_job_id,
        rows=parts,
        nodes=sum(row.nodes for row in parts),
        cpus=sum(cpus) if len(cpus) == len(parts) else None,
        gpus=sum(row.gpus for row in parts),
        core_seconds=held,
        cpu_ratio=used / held if held and None not in ratios else None,
    )
