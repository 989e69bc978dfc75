# SPDX-License-Identifier: Apache-2.0
"""Show what a cluster is made of and how it does: nodes, GPUs, the scheduler, slurmscope itself."""

from __future__ import annotations

from deploy.grafana.panels import FULL, HALF, NODES_READ, Look, Panel, Query, Row, or_zero, share

IDLE_GPUS = (
    '(slurm_node_gres{@, gres="gpu"} - slurm_node_gres_used{@, gres="gpu"})'
    " and on (node) slurm_node_usable{@} == 1 and on (node) slurm_node_allocated_cpus{@} >= slurm_node_cpus{@}"
)

NODES = Row(
    title="Nodes",
    panels=(
        Panel(
            title="Nodes by state",
            queries=(Query("slurm_nodes{@} > 0", "{{base_state}}"),),
            look=Look.STACK,
        ),
        Panel(
            title="Nodes with a flag",
            queries=(Query("slurm_nodes_flagged{@} > 0", "{{flag}}"),),
            text="A node can have several flags.",
        ),
        Panel(
            title="Load and allocated CPUs",
            queries=(
                Query("slurm_load{@}", "load"),
                Query('slurm_cpus{@, state="allocated"}', "allocated"),
                Query("sum(slurm_cpus{@})", "all"),
            ),
            text="A load far below the allocated CPUs means that jobs do not use the CPUs they have.",
        ),
        Panel(
            title="CPUs allocated, by partition",
            queries=(
                Query(
                    share(
                        'slurm_partition_cpus{@, partition=~"$partition", state="allocated"}',
                        'slurm_partition_cpus{@, partition=~"$partition"}',
                        "partition",
                    ),
                    "{{partition}}",
                ),
            ),
            look=Look.BARS,
            unit="percentunit",
        ),
        Panel(
            title="Memory allocated, by partition",
            queries=(
                Query(
                    'slurm_partition_allocated_memory_bytes{@, partition=~"$partition"}'
                    " / slurm_partition_memory_bytes{@}",
                    "{{partition}}",
                ),
            ),
            look=Look.BARS,
            unit="percentunit",
        ),
        Panel(
            title="CPUs, by state",
            queries=(Query("sum by (state) (slurm_cpus{@})", "{{state}}"),),
            look=Look.STACK,
            text="Unusable: idle, on unavailable nodes.",
        ),
        Panel(
            title="Nodes that are down or drained",
            queries=(
                Query(
                    "1000 * slurm_node_drain_since_timestamp_seconds{@}"
                    " * on (node) group_left (reason, user) slurm_node_drain_info{@}"
                ),
            ),
            look=Look.TABLE,
            width=HALF,
            unit="dateTimeAsIso",
            columns=(("node", "node"), ("Value", "since"), ("reason", "reason"), ("user", "by")),
        ),
        Panel(
            title="Reservations",
            queries=(
                Query(
                    "1000 * slurm_reservation_end_timestamp_seconds{@}"
                    " * on (reservation) group_left (flags) slurm_reservation_info{@}"
                ),
            ),
            look=Look.TABLE,
            width=HALF,
            unit="dateTimeAsIso",
            columns=(("reservation", "reservation"), ("Value", "until"), ("flags", "flags")),
        ),
    ),
)

GPUS = Row(
    title="GPUs",
    panels=(
        Panel(
            title="GPUs, by state",
            queries=(Query('sum by (state) (slurm_gres{@, gres="gpu"})', "{{state}}"),),
            look=Look.STACK,
            text="Unusable: idle, on unavailable nodes.",
        ),
        Panel(
            title="Requested and idle GPUs",
            queries=(
                Query('sum by (model) (slurm_job_gres{@, state="PENDING", gres="gpu"})', "{{model}} asked for"),
                Query('sum by (model) (slurm_gres{@, gres="gpu", state="idle"})', "{{model}} idle"),
            ),
        ),
        Panel(
            title="Idle GPUs without a free CPU",
            queries=(Query(or_zero(f"sum({IDLE_GPUS})", NODES_READ), "GPUs"),),
            text="No job can use these GPUs, because all CPUs of their nodes are allocated.",
        ),
        Panel(
            title="GPUs allocated, by partition",
            queries=(
                Query(
                    share(
                        'slurm_partition_gres{@, partition=~"$partition", gres="gpu", state="allocated"}',
                        'slurm_partition_gres{@, partition=~"$partition", gres="gpu"}',
                        "partition, model",
                    ),
                    "{{partition}} {{model}}",
                ),
            ),
            look=Look.BARS,
            width=HALF,
            unit="percentunit",
        ),
        Panel(
            title="GPUs of running jobs, by account",
            queries=(
                Query(
                    "topk(12, sum by (account) "
                    '(slurm_account_job_gres{@, account=~"$account", state="RUNNING", gres="gpu"}))',
                    "{{account}}",
                ),
            ),
            look=Look.STACK,
            width=HALF,
        ),
    ),
)

SCHEDULER = Row(
    title="Scheduler and requests",
    panels=(
        Panel(
            title="Cycle duration",
            queries=(
                Query("slurm_scheduler_last_cycle_seconds{@}", "main"),
                Query("slurm_backfill_last_cycle_seconds{@}", "backfill"),
            ),
            unit="s",
        ),
        Panel(
            title="Jobs per minute",
            queries=tuple(
                Query(f"60 * rate({metric}{{@}}[$__rate_interval])", name)
                for metric, name in (
                    ("slurm_scheduler_jobs_submitted_total", "submitted"),
                    ("slurm_scheduler_jobs_started_total", "started"),
                    ("slurm_backfill_jobs_total", "started by backfill"),
                    ("slurm_scheduler_jobs_completed_total", "completed"),
                    ("slurm_scheduler_jobs_canceled_total", "canceled"),
                )
            ),
        ),
        Panel(
            title="Threads and queues of slurmctld",
            queries=(
                Query("slurm_scheduler_threads{@}", "threads"),
                Query("slurm_scheduler_agent_queue_size{@}", "messages to nodes"),
                Query("slurm_scheduler_dbd_queue_size{@}", "messages to slurmdbd"),
            ),
            text="slurmctld has at most 256 threads. Messages to slurmdbd are queued while the database is down.",
        ),
        Panel(
            title="Requests per second, by message",
            queries=(
                Query(
                    "topk(10, sum by (message) (rate(slurm_rpc_requests_total{@}[$__rate_interval])))", "{{message}}"
                ),
            ),
        ),
        Panel(
            title="Requests per second, by user",
            queries=(
                Query("topk(10, sum by (user) (rate(slurm_rpc_user_requests_total{@}[$__rate_interval])))", "{{user}}"),
            ),
        ),
        Panel(
            title="Processing time of slurmctld, by message",
            queries=(
                Query("topk(10, sum by (message) (rate(slurm_rpc_seconds_total{@}[$__rate_interval])))", "{{message}}"),
            ),
            text="Seconds per second that slurmctld spends on requests.",
        ),
        Panel(
            title="Backfill depth",
            queries=(
                Query("slurm_backfill_last_queue_length{@}", "waiting"),
                Query("slurm_backfill_last_depth{@}", "looked at"),
                Query("slurm_backfill_last_try_depth{@}", "tried"),
            ),
            width=FULL,
            text="Jobs of the last backfill cycle.",
        ),
    ),
)

SELF = Row(
    title="slurmscope itself",
    is_folded=True,
    panels=(
        Panel(
            title="Collectors",
            queries=(Query("slurmscope_collector_success{@}", "{{collector}}"),),
            look=Look.NUMBER,
            width=FULL,
            words=(("1", "good", "green"), ("0", "old or missing", "red")),
        ),
        Panel(
            title="Age of polled data",
            queries=(Query("slurmscope_reading_age_seconds{@}", "{{source}}"),),
            unit="s",
        ),
        Panel(
            title="Poll duration",
            queries=(Query("slurmscope_reading_duration_seconds{@}", "{{source}}"),),
            unit="s",
        ),
        Panel(
            title="Failed polls",
            queries=(
                Query(
                    "sum by (source) (increase(slurmscope_reading_errors_total{@}[$__rate_interval]))"
                    " or sum by (source) (0 * slurmscope_readings_total{@})",
                    "{{source}}",
                ),
            ),
        ),
        Panel(
            title="Commands per minute",
            queries=(Query("60 * rate(slurmscope_commands_total{@}[$__rate_interval])", "{{command}}"),),
            look=Look.STACK,
            text="The load that slurmscope puts on the controller.",
        ),
        Panel(
            title="Series served and dropped",
            queries=(
                Query("scrape_samples_scraped{@}", "served"),
                Query(
                    or_zero(
                        "sum(increase(slurmscope_series_dropped_total{@}[$__rate_interval]))",
                        "slurmscope_config_last_reload_successful{@}",
                    ),
                    "dropped",
                ),
            ),
        ),
        Panel(
            title="CPU of the exporter",
            queries=(Query("rate(process_cpu_seconds_total{@}[$__rate_interval])", "CPU"),),
            unit="percentunit",
            text="Without the Slurm commands it runs.",
        ),
        Panel(
            title="Memory of the exporter",
            queries=(Query("process_resident_memory_bytes{@}", "resident"),),
            unit="bytes",
            width=HALF,
        ),
        Panel(
            title="HTTP requests per minute",
            queries=(
                Query("60 * sum by (code) (rate(slurmscope_http_requests_total{@}[$__rate_interval]))", "{{code}}"),
            ),
            width=HALF,
        ),
    ),
)
