# SPDX-License-Identifier: Apache-2.0
"""Describe the metrics of GSI's prometheus-cluster-exporter."""

from __future__ import annotations

from slurmscope.services.migrate.old_system import MetricGroup, OldSystem, old

_UNKNOWN = "jobs and users that are not known are exported as `unknown`; they were dropped"

SYSTEM = OldSystem(
    page="cluster-exporter",
    groups=(
        MetricGroup(
            title="Lustre",
            metrics=(
                old("cluster_job_read_throughput_bytes", "cluster_job_write_throughput_bytes", difference=_UNKNOWN),
                old("cluster_proc_read_throughput_bytes", "cluster_proc_write_throughput_bytes", difference=_UNKNOWN),
                old(
                    "cluster_job_metadata_operations",
                    difference="exact; it was rounded, without operations below one per second",
                ),
                old("cluster_proc_metadata_operations", difference="likewise"),
                old("cluster_exporter_scrape_ok", difference="0 also while the last good values are served"),
                old(
                    "cluster_exporter_stage_execution_seconds",
                    difference="same",
                    is_volatile=True,
                ),
            ),
        ),
    ),
)
