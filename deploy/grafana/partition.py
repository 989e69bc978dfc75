# SPDX-License-Identifier: Apache-2.0
"""One partition: its nodes, what is allocated of them, its queue."""

from __future__ import annotations

from deploy.grafana.panels import (
    DIAL,
    FULL,
    LINES,
    NUMBER,
    PARTITION,
    STACK,
    TABLE,
    Dashboard,
    Panel,
    Row,
    by_state,
    jobs_now,
    nodes_by_state,
    pending_by_reason,
    quantiles,
    share,
)

HERE = 'CLUSTER, partition="$partition"'


def of_nodes(metric: str) -> str:
    """Return a metric of the nodes of the partition."""
    return f"{metric}{{CLUSTER}} and on (node) slurm_node_partition_info{{{HERE}}}"


NOW = Row(
    "Partition $partition",
    (
        Panel(
            NUMBER,
            "Usable nodes",
            {"": f"slurm_partition_nodes_usable{{{HERE}}}"},
            text="Nodes on whose idle resources Slurm can start jobs.",
        ),
        jobs_now("Running", "slurm_partition_jobs", HERE, text="Every task of an array is a job."),
        jobs_now("Pending", "slurm_partition_jobs", HERE, text="Jobs that can start here, and maybe elsewhere."),
        Panel(
            DIAL,
            "CPUs allocated",
            {"": f"instance_partition:slurm_partition_cpus_allocated:ratio{{{HERE}}}"},
            unit="percentunit",
            text="To jobs of any partition that shares its nodes.",
        ),
        Panel(
            DIAL,
            "GPUs allocated",
            {
                "": share(
                    f'slurm_partition_gres{{{HERE}, gres="gpu", state="allocated"}}',
                    f'slurm_partition_gres{{{HERE}, gres="gpu"}}',
                )
            },
            unit="percentunit",
            text="To jobs of any partition that shares its nodes.",
        ),
        Panel(
            NUMBER,
            "Median wait",
            {"": f"instance_partition:slurm_job_wait_seconds:p50_1h{{{HERE}}}"},
            unit="s",
            text="Of the jobs that started within the last hour.",
        ),
    ),
)

CAPACITY = Row(
    "Allocation",
    (
        by_state("CPUs", f"slurm_partition_cpus{{{HERE}}}"),
        Panel(
            LINES,
            "Memory",
            {
                "allocated": f"slurm_partition_allocated_memory_bytes{{{HERE}}}",
                "all": f"slurm_partition_memory_bytes{{{HERE}}}",
            },
            unit="bytes",
            text="Memory that jobs have, used or not.",
        ),
        by_state("GPUs", f'slurm_partition_gres{{{HERE}, gres="gpu"}}'),
        *nodes_by_state("slurm_partition_nodes", HERE),
        Panel(
            LINES,
            "Load and allocated CPUs",
            {
                "load": f"slurm_partition_load{{{HERE}}}",
                "allocated": f'slurm_partition_cpus{{{HERE}, state="allocated"}}',
            },
            text="A load far below the allocated CPUs means that jobs do not use the CPUs they have.",
        ),
    ),
)

QUEUE = Row(
    "Jobs",
    (
        pending_by_reason(HERE),
        Panel(
            LINES,
            "Wait from submission to start",
            quantiles("slurm_job_wait_seconds", HERE),
            unit="s",
            text="Of the jobs that started within the last hour.",
        ),
        Panel(
            STACK,
            "Jobs that ended within an hour",
            {"{{state}}": f"sum by (state) (increase(slurm_jobs_ended_total{{{HERE}}}[1h]))"},
            text="By their final state.",
        ),
    ),
)

NODES = Row(
    "Nodes of the partition",
    (
        Panel(
            TABLE,
            "Nodes",
            {
                "CPUs": of_nodes("slurm_node_cpus"),
                "allocated": of_nodes("slurm_node_allocated_cpus"),
                "load": of_nodes("slurm_node_load"),
                "memory": of_nodes("slurm_node_memory_bytes"),
                "memory allocated": of_nodes("slurm_node_allocated_memory_bytes"),
                "usable": of_nodes("slurm_node_usable"),
            },
            labels=("node",),
            units={"memory": "bytes", "memory allocated": "bytes", "usable": "bool_yes_no"},
            width=FULL,
            text="Usable: Slurm can start jobs on idle resources of the node. Needs --collector.nodes.partition-map.",
        ),
    ),
)

DASHBOARD = Dashboard(
    name="partition",
    title="Slurm partition",
    text="Nodes of a partition, what is allocated of them, and the queue.",
    choices=(PARTITION,),
    rows=(NOW, CAPACITY, QUEUE, NODES),
)
