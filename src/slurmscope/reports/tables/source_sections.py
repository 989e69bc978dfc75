# SPDX-License-Identifier: Apache-2.0
"""List the tables below that of the nodes: GPUs, traced processes, and Slurm's own samples."""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.model.report import JobReport
from slurmscope.reports.tables.gpus import make_gpu_table
from slurmscope.reports.tables.nodes import TextTable
from slurmscope.reports.tables.profile import make_profile_table, profile_sentences
from slurmscope.reports.tables.traces import make_trace_table, trace_sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSection:
    """Hold a table whose first three columns are names, and sentences about it."""

    name: str
    title: str
    table: TextTable
    sentences: tuple[str, ...] = ()


def source_sections(report: JobReport) -> tuple[SourceSection, ...]:
    """Return the sections that have rows."""
    sections = (
        SourceSection(name="gpus", title="GPUs", table=make_gpu_table(report)),
        SourceSection(
            name="traces",
            title="Traced processes",
            table=make_trace_table(report),
            sentences=trace_sentences(report),
        ),
        SourceSection(
            name="profile",
            title="Slurm's own samples",
            table=make_profile_table(report),
            sentences=profile_sentences(report),
        ),
    )
    return tuple(section for section in sections if section.table.rows)
