# SPDX-License-Identifier: Apache-2.0
"""File systems: which are busy, and whose jobs and programs use them."""

from __future__ import annotations

from deploy.grafana.panels import BARS, HALF, LINES, STACK, TABLE, Choice, Dashboard, Panel, Row, rate

HERE = 'CLUSTER, filesystem=~"$filesystem"'


def top_jobs(quantity: str) -> str:
    """Return the jobs that use the chosen file systems most."""
    return f"topk(15, cluster_filesystem_top_job_{quantity}_per_second{{{HERE}}})"


LUSTRE = Row(
    "Lustre",
    (
        Panel(
            STACK,
            "Read, by file system",
            {
                "{{filesystem}} jobs": (f"sum by (filesystem) (cluster_filesystem_read_bytes_per_second{{{HERE}}})"),
                "{{filesystem}} outside jobs": (
                    f"sum by (filesystem) (cluster_filesystem_program_read_bytes_per_second{{{HERE}}})"
                ),
            },
            unit="Bps",
            text="By jobs, and by programs outside jobs. Needs --collector.lustre.",
        ),
        Panel(
            STACK,
            "Written, by file system",
            {
                "{{filesystem}} jobs": (f"sum by (filesystem) (cluster_filesystem_write_bytes_per_second{{{HERE}}})"),
                "{{filesystem}} outside jobs": (
                    f"sum by (filesystem) (cluster_filesystem_program_write_bytes_per_second{{{HERE}}})"
                ),
            },
            unit="Bps",
            text="By jobs, and by programs outside jobs.",
        ),
        Panel(
            STACK,
            "Metadata operations, by class",
            {
                "{{filesystem}} {{class}}": (
                    f"sum by (filesystem, class) (cluster_filesystem_metadata_operations_per_second{{{HERE}}})"
                )
            },
            unit="ops",
            text="Of jobs. Thousands of them per second slow the file system down for everybody.",
        ),
        Panel(
            LINES,
            "Throughput, by user",
            {"{{user}} {{filesystem}}": (f"topk(12, instance_filesystem_user:cluster_filesystem_bytes:sum{{{HERE}}})")},
            unit="Bps",
            text="Read and written, by jobs and by programs outside jobs.",
        ),
        Panel(
            LINES,
            "Metadata operations, by user",
            {
                "{{user}} {{filesystem}}": (
                    f"topk(12, instance_filesystem_user:cluster_filesystem_metadata_operations:sum{{{HERE}}})"
                )
            },
            unit="ops",
            text="By jobs and by programs outside jobs.",
        ),
        Panel(
            LINES,
            "Not attributed",
            {
                "{{filesystem}} read, {{reason}}": (f"cluster_filesystem_unknown_read_bytes_per_second{{{HERE}}} > 0"),
                "{{filesystem}} written, {{reason}}": (
                    f"cluster_filesystem_unknown_write_bytes_per_second{{{HERE}}} > 0"
                ),
            },
            unit="Bps",
            text="What cannot be attributed to a user, and why.",
        ),
        Panel(
            TABLE,
            "Jobs that read and write most",
            {"read": top_jobs("read_bytes"), "written": top_jobs("write_bytes")},
            labels=("jobid", "user", "account", "filesystem"),
            unit="Bps",
            text="The job ID leads to the dashboard of the job.",
        ),
        Panel(
            TABLE,
            "Jobs with most metadata operations",
            {"operations": top_jobs("metadata_operations")},
            labels=("jobid", "user", "account", "filesystem"),
            unit="ops",
            text="The job ID leads to the dashboard of the job.",
        ),
    ),
)

NFS = Row(
    "NFS",
    (
        Panel(
            LINES,
            "NFS read, by file system",
            {"{{filesystem}}": rate("slurm_node_filesystem_read_bytes_total{NODE}", "filesystem")},
            unit="Bps",
            text="Bytes that all nodes received from the servers.",
        ),
        Panel(
            LINES,
            "NFS written, by file system",
            {"{{filesystem}}": rate("slurm_node_filesystem_write_bytes_total{NODE}", "filesystem")},
            unit="Bps",
            text="Bytes that all nodes sent to the servers.",
        ),
        Panel(
            LINES,
            "NFS metadata requests, by file system",
            {"{{filesystem}}": rate("slurm_node_filesystem_metadata_operations_total{NODE}", "filesystem")},
            unit="reqps",
            text="Requests of all nodes that transfer no data (open, getattr, create, remove, ...).",
        ),
        Panel(
            BARS,
            "Nodes with most NFS throughput",
            {
                "{{slurm_node}}": "topk(12, sum by (slurm_node) (rate(slurm_node_filesystem_read_bytes_total{NODE}[5m])"
                " + rate(slurm_node_filesystem_write_bytes_total{NODE}[5m])))"
            },
            unit="Bps",
            width=HALF,
            text="Read and written, mean of five minutes.",
        ),
        Panel(
            BARS,
            "Nodes with most NFS metadata requests",
            {
                "{{slurm_node}}": "topk(12, sum by (slurm_node)"
                " (rate(slurm_node_filesystem_metadata_operations_total{NODE}[5m])))"
            },
            unit="reqps",
            width=HALF,
            text="Mean of five minutes.",
        ),
    ),
)

DASHBOARD = Dashboard(
    name="filesystems",
    title="Slurm file systems",
    text="Which file systems are busy, and whose jobs and programs use them.",
    choices=(
        Choice(
            "filesystem",
            "Lustre",
            "instance_filesystem_user:cluster_filesystem_bytes:sum{CLUSTER}",
            "filesystem",
            is_multiple=True,
        ),
    ),
    rows=(LUSTRE, NFS),
    portal_page="/filesystems",
)
