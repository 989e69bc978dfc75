# SPDX-License-Identifier: Apache-2.0
"""The queue: who waits, for what and how long, and how jobs end."""

from __future__ import annotations

from deploy.grafana.panels import (
    ACCOUNTS,
    BARS,
    HALF,
    HEATMAP,
    JOBS_READ,
    LINES,
    NUMBER,
    PARTITIONS,
    STACK,
    Dashboard,
    Panel,
    Row,
    jobs_now,
    or_zero,
    pending_by_reason,
    quantiles,
)

HERE = 'CLUSTER, partition=~"$partition"'

NOW = Row(
    "Now",
    (
        jobs_now("Running", "slurm_partition_jobs", HERE, text="Of the chosen partitions."),
        jobs_now(
            "Pending",
            "slurm_partition_jobs",
            HERE,
            text="A pending job counts in every partition in which it can start.",
        ),
        Panel(
            NUMBER,
            "Held jobs",
            {"": or_zero(f"sum(slurm_partition_held_jobs{{{HERE}}})", JOBS_READ)},
            text="Pending jobs that users or administrators hold.",
        ),
        Panel(
            NUMBER,
            "Oldest pending job",
            {"": f"max(slurm_partition_oldest_pending_age_seconds{{{HERE}}})"},
            unit="s",
            text="Time since its submission. Held jobs do not count.",
        ),
        Panel(
            NUMBER,
            "Started within an hour",
            {"": f"sum(increase(slurm_job_wait_seconds_count{{{HERE}}}[1h]))"},
            text="Jobs of the chosen partitions.",
        ),
        Panel(
            NUMBER,
            "Longest median wait",
            {"": f"max(instance_partition:slurm_job_wait_seconds:p50_1h{{{HERE}}})"},
            unit="s",
            text="Of the jobs that started within the last hour, in the partition with the longest waits.",
        ),
    ),
)

QUEUE = Row(
    "Queue",
    (
        Panel(
            STACK,
            "Jobs, by state",
            {
                "{{state}}": f"sum by (state) (slurm_partition_jobs{{{HERE}, "
                'state=~"RUNNING|PENDING|CONFIGURING|COMPLETING|SUSPENDED|STOPPED"})'
            },
            text="A pending job counts in every partition in which it can start.",
        ),
        pending_by_reason(HERE),
        Panel(
            LINES,
            "Oldest pending job, by partition",
            {"{{partition}}": f"slurm_partition_oldest_pending_age_seconds{{{HERE}}}"},
            unit="s",
            text="Time since its submission. Held jobs do not count.",
        ),
        Panel(
            STACK,
            "CPUs that pending jobs request, by account",
            {"{{account}}": 'topk(12, slurm_account_job_cpus{CLUSTER, account=~"$account", state="PENDING"})'},
            text="The twelve accounts that request most.",
        ),
        Panel(
            LINES,
            "GPUs requested and idle, by model",
            {
                "{{model}} requested": 'sum by (model) (slurm_job_gres{CLUSTER, state="PENDING", gres="gpu"})',
                "{{model}} idle": 'sum by (model) (slurm_gres{CLUSTER, gres="gpu", state="idle"})',
            },
            text="Of all partitions. Pending jobs that name no model have an empty one.",
        ),
        Panel(
            BARS,
            "Users by pending jobs",
            {"{{user}}": 'topk(12, slurm_user_jobs{CLUSTER, state="PENDING"})'},
            text="The twelve users with most pending jobs, held ones included.",
        ),
    ),
)

WAITS = Row(
    "Wait times",
    (
        Panel(
            LINES,
            "Wait from submission to start",
            {
                "{{partition}} median": f"instance_partition:slurm_job_wait_seconds:p50_1h{{{HERE}}}",
                "{{partition}} 95th percentile": quantiles("slurm_job_wait_seconds", HERE)[
                    "{{partition}} 95th percentile"
                ],
            },
            unit="s",
            width=HALF,
            text="Of the jobs that started within the last hour.",
        ),
        Panel(
            HEATMAP,
            "Started jobs, by wait time",
            {"{{le}}": f"sum by (le) (increase(slurm_job_wait_seconds_bucket{{{HERE}}}[$__rate_interval]))"},
            unit="s",
            width=HALF,
            text="Each column counts the jobs that started then, by how long they had waited.",
        ),
    ),
)

ENDED = Row(
    "Ended jobs",
    (
        Panel(
            STACK,
            "Jobs that ended within an hour",
            {"{{state}}": f'sum by (state) (increase(slurm_jobs_ended_total{{{HERE}, account=~"$account"}}[1h]))'},
            text="By their final state.",
        ),
        Panel(
            LINES,
            "Run time of ended jobs",
            quantiles("slurm_job_run_seconds", HERE),
            unit="s",
            text="Of the jobs that ended within the last hour.",
        ),
        Panel(
            STACK,
            "CPU-hours of ended jobs, by account",
            {
                "{{account}}": "topk(12, sum by (account) (increase(slurm_ended_job_cpu_seconds_total"
                f'{{{HERE}, account=~"$account"}}[1h]))) / 3600'
            },
            text="Within an hour, counted when jobs end: all hours of a long job count at its end.",
        ),
    ),
)

DASHBOARD = Dashboard(
    name="queue",
    title="Slurm queue",
    text="Who waits, for what and how long, and how jobs end.",
    choices=(PARTITIONS, ACCOUNTS),
    rows=(NOW, QUEUE, WAITS, ENDED),
    portal_page="/cluster",
)
