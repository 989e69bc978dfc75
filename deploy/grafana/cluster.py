# SPDX-License-Identifier: Apache-2.0
"""The cluster at a glance: what is up, allocated and idle, which nodes are missing, and how slurmctld copes."""

from __future__ import annotations

from deploy.grafana.panels import (
    BARS,
    DIAL,
    FULL,
    GPUS,
    HALF,
    LINES,
    NUMBER,
    TABLE,
    Dashboard,
    Panel,
    Row,
    by_state,
    jobs_now,
    nodes_by_state,
    rate,
    share,
)

NOW = Row(
    "Now",
    (
        Panel(
            NUMBER,
            "Slurm",
            {"": "slurm_up{CLUSTER}"},
            words=(("1", "up", "green"), ("0", "down", "red")),
            text="Whether a controller responds.",
        ),
        jobs_now("Running", "slurm_jobs", "CLUSTER", text="Every task of an array is a job."),
        jobs_now(
            "Pending",
            "slurm_jobs",
            "CLUSTER",
            text="Every task of an array is a job. The dashboard Slurm queue says what they wait for.",
        ),
        Panel(
            DIAL,
            "CPUs allocated",
            {"": "instance:slurm_cpus_allocated:ratio{CLUSTER}"},
            unit="percentunit",
            text="Share of all CPUs, also those of unavailable nodes.",
        ),
        Panel(
            DIAL,
            "GPUs allocated",
            {"": share('slurm_gres{CLUSTER, gres="gpu", state="allocated"}', 'slurm_gres{CLUSTER, gres="gpu"}')},
            unit="percentunit",
            text="Share of all GPUs, also those of unavailable nodes.",
        ),
        Panel(
            NUMBER,
            "Unavailable nodes",
            {"": "sum(instance:slurm_nodes:sum{CLUSTER}) - sum(slurm_nodes_usable{CLUSTER})"},
            warn_from=1,
            bad_from=10,
            text="Down, drained, in maintenance, booting, or not responding.",
        ),
    ),
)

CAPACITY = Row(
    "Allocation",
    (
        by_state("CPUs", "slurm_cpus{CLUSTER}"),
        by_state("GPUs", GPUS),
        Panel(
            LINES,
            "Memory",
            {
                "allocated": "slurm_allocated_memory_bytes{CLUSTER}",
                "in use": "slurm_memory_bytes{CLUSTER} - slurm_free_memory_bytes{CLUSTER}",
                "all": "slurm_memory_bytes{CLUSTER}",
            },
            unit="bytes",
            text="In use: without free memory, as the operating systems of the nodes report it, so with page cache.",
        ),
        Panel(
            LINES,
            "Load and allocated CPUs",
            {
                "load": "slurm_load{CLUSTER}",
                "allocated": 'slurm_cpus{CLUSTER, state="allocated"}',
                "all": "sum(slurm_cpus{CLUSTER})",
            },
            text="A load far below the allocated CPUs means that jobs do not use the CPUs they have.",
        ),
        Panel(
            BARS,
            "CPUs allocated, by partition",
            {"{{partition}}": "instance_partition:slurm_partition_cpus_allocated:ratio{CLUSTER}"},
            unit="percentunit",
            text="Share of the CPUs of each partition. A node may be in several partitions.",
        ),
        Panel(
            BARS,
            "Memory allocated, by partition",
            {
                "{{partition}}": (
                    "slurm_partition_allocated_memory_bytes{CLUSTER} / slurm_partition_memory_bytes{CLUSTER}"
                )
            },
            unit="percentunit",
            text="Share of the memory of each partition.",
        ),
    ),
)

NODES = Row(
    "Nodes",
    (
        *nodes_by_state("slurm_nodes", "CLUSTER"),
        Panel(
            BARS,
            "Most unavailable nodes of the last 7 days",
            {"{{node}}": "topk(12, sum by (node) (slurm_node_lost_seconds{CLUSTER}))"},
            unit="s",
            text="Time for which they were down or drained. Needs --collector.events.",
        ),
        Panel(
            TABLE,
            "Nodes that are down or drained",
            {
                "since": (
                    "1000 * slurm_node_drain_since_timestamp_seconds{CLUSTER}"
                    " * on (node) group_left (reason, user) slurm_node_drain_info{CLUSTER}"
                )
            },
            labels=("node", "reason", "user"),
            unit="dateTimeAsIso",
            text="With the reason, and who set it.",
        ),
        Panel(
            TABLE,
            "Suspect nodes",
            {"suspect": "max by (slurm_node, verdict) (slurmscope_suspect_node{NODE} == 1)"},
            labels=("slurm_node", "verdict"),
            text="Jobs of the last 30 days failed more often there, or took longer, than the same jobs elsewhere. "
            "Served by the portal.",
        ),
        Panel(
            TABLE,
            "Reservations",
            {
                "until": (
                    "1000 * slurm_reservation_end_timestamp_seconds{CLUSTER}"
                    " * on (reservation) group_left (flags) slurm_reservation_info{CLUSTER}"
                )
            },
            labels=("reservation", "flags"),
            unit="dateTimeAsIso",
            text="Reservations of now and of the future.",
        ),
        Panel(
            BARS,
            "Licenses in use",
            {"{{license}}": "slurm_licenses_used{CLUSTER} / slurm_licenses{CLUSTER}"},
            unit="percentunit",
            width=HALF,
            bad_from=1.0,
            text="Share of the licenses that jobs use.",
        ),
    ),
)

SCHEDULER = Row(
    "Scheduler and requests",
    (
        Panel(
            LINES,
            "Cycle duration",
            {
                "main": "slurm_scheduler_last_cycle_seconds{CLUSTER}",
                "backfill": "slurm_backfill_last_cycle_seconds{CLUSTER}",
            },
            unit="s",
            text="User commands wait while the main scheduler runs.",
        ),
        Panel(
            LINES,
            "Jobs per minute",
            {
                name: f"60 * rate({counter}{{CLUSTER}}[$__rate_interval])"
                for counter, name in (
                    ("slurm_scheduler_jobs_submitted_total", "submitted"),
                    ("slurm_scheduler_jobs_started_total", "started"),
                    ("slurm_backfill_jobs_total", "started by backfill"),
                    ("slurm_scheduler_jobs_completed_total", "completed"),
                    ("slurm_scheduler_jobs_canceled_total", "canceled"),
                )
            },
            text="As slurmctld counts them.",
        ),
        Panel(
            LINES,
            "Threads and queues of slurmctld",
            {
                "threads": "slurm_scheduler_threads{CLUSTER}",
                "messages to nodes": "slurm_scheduler_agent_queue_size{CLUSTER}",
                "messages to slurmdbd": "slurm_scheduler_dbd_queue_size{CLUSTER}",
            },
            text="slurmctld has at most 256 threads. Messages to slurmdbd are queued while the database is down.",
        ),
        Panel(
            LINES,
            "Requests per second",
            {"requests": "instance:slurm_rpc_requests:rate5m{CLUSTER}"},
            text="Requests to slurmctld, mean of five minutes.",
        ),
        Panel(
            LINES,
            "Requests per second, by message",
            {"{{message}}": f"topk(10, {rate('slurm_rpc_requests_total{CLUSTER}', 'message')})"},
            text="The ten most frequent kinds of requests.",
        ),
        Panel(
            LINES,
            "Requests per second, by user",
            {"{{user}}": f"topk(10, {rate('slurm_rpc_user_requests_total{CLUSTER}', 'user')})"},
            text="The ten users with most requests.",
        ),
        Panel(
            LINES,
            "Processing time, by message",
            {"{{message}}": f"topk(10, {rate('slurm_rpc_seconds_total{CLUSTER}', 'message')})"},
            unit="percentunit",
            width=HALF,
            text="Share of the time that slurmctld spends on requests; several threads may add up to more than 100 %.",
        ),
        Panel(
            LINES,
            "Backfill depth",
            {
                "waiting": "slurm_backfill_last_queue_length{CLUSTER}",
                "examined": "slurm_backfill_last_depth{CLUSTER}",
                "tried": "slurm_backfill_last_try_depth{CLUSTER}",
            },
            width=HALF,
            text="Jobs of the last backfill cycle.",
        ),
    ),
    is_folded=True,
)

ALERTS = Row(
    "Alerts",
    (
        Panel(
            TABLE,
            "Firing alerts",
            {
                "alerts": (
                    'count by (alertname, severity) (ALERTS{alertstate="firing", '
                    'alertname=~"(Slurm|Filesystem|Node|Job|Gpu).+"})'
                )
            },
            labels=("alertname", "severity"),
            width=FULL,
            text="Of the rules of slurmscope, of all clusters. The page Dashboards of the documentation has a first "
            "step for each.",
        ),
    ),
)

DASHBOARD = Dashboard(
    name="cluster",
    title="Slurm cluster",
    text="What is up, allocated and idle, which nodes are missing, and how slurmctld copes.",
    rows=(NOW, CAPACITY, NODES, ALERTS, SCHEDULER),
    portal_page="/cluster",
)
