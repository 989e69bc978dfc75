# SPDX-License-Identifier: Apache-2.0
"""Describe the metrics of user_metrics_pseudo_exporter."""

from __future__ import annotations

from slurmscope.services.migrate.old_system import MetricGroup, OldSystem, old

SYSTEM = OldSystem(
    page="pseudo-exporter",
    groups=(
        MetricGroup(
            title="Process groups",
            note="Served by `slurmscope node --collector.process_groups`.",
            metrics=(
                old(
                    "cpu_usage",
                    "ram_usage",
                    difference="sums of what ps shows, as before. `command` is not padded to 16 characters, unless "
                    "`--collector.process_groups.pad-command` is set; names of users are whole. Above 200 groups per "
                    "user the rest is one series",
                ),
            ),
        ),
        MetricGroup(
            title="Cores of users",
            note="Served by `slurmscope cluster`.",
            metrics=(
                old(
                    "ncpus",
                    difference="partitions are set by `--collector.jobs.ncpus-partitions`, default `gpus`; names of "
                    "users are whole",
                ),
            ),
        ),
    ),
)
