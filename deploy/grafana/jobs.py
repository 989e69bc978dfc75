# SPDX-License-Identifier: Apache-2.0
"""Show those who run a cluster what happens on it: now, in the queue, in waits, in shares and limits."""

from __future__ import annotations

from deploy.grafana.panels import HALF, JOBS_READ, Look, Panel, Query, Row, or_zero, share

UP_OR_DOWN = (("1", "up", "green"), ("0", "down", "red"))

NOW = Row(
    title="Now",
    panels=(
        Panel(
            title="Slurm",
            queries=(Query("slurm_up{@}"),),
            look=Look.NUMBER,
            width=4,
            words=UP_OR_DOWN,
            text="Whether a controller responds.",
        ),
        Panel(
            title="Running jobs",
            queries=(Query(or_zero('sum(slurm_jobs{@, state="RUNNING"})', JOBS_READ)),),
            look=Look.NUMBER,
            width=4,
        ),
        Panel(
            title="Pending jobs",
            queries=(Query(or_zero('sum(slurm_jobs{@, state="PENDING"})', JOBS_READ)),),
            look=Look.NUMBER,
            width=4,
            text="Every task of an array is a job.",
        ),
        Panel(
            title="CPUs allocated",
            queries=(Query(share('slurm_cpus{@, state="allocated"}', "slurm_cpus{@}")),),
            look=Look.DIAL,
            width=4,
            unit="percentunit",
        ),
        Panel(
            title="GPUs allocated",
            queries=(Query(share('slurm_gres{@, gres="gpu", state="allocated"}', 'slurm_gres{@, gres="gpu"}')),),
            look=Look.DIAL,
            width=4,
            unit="percentunit",
        ),
        Panel(
            title="Unavailable nodes",
            queries=(Query('sum(slurm_nodes{@, base_state!="future"}) - sum(slurm_nodes_usable{@})'),),
            look=Look.NUMBER,
            width=4,
            warn_from=1,
            bad_from=10,
            text="Down, drained, in maintenance, booting, or not responding.",
        ),
    ),
)

QUEUE = Row(
    title="Queue",
    panels=(
        Panel(
            title="Jobs by state",
            queries=(
                Query(
                    "sum by (state) (slurm_partition_jobs"
                    '{@, partition=~"$partition", state=~"RUNNING|PENDING|CONFIGURING|COMPLETING|SUSPENDED|STOPPED"})',
                    "{{state}}",
                ),
            ),
            look=Look.STACK,
            text="A pending job counts in every partition in which it can start.",
        ),
        Panel(
            title="Pending jobs, by reason",
            queries=(
                Query('sum by (reason) (slurm_partition_pending_jobs{@, partition=~"$partition"})', "{{reason}}"),
            ),
            look=Look.STACK,
        ),
        Panel(
            title="Users by CPUs of running jobs",
            queries=(Query('topk(12, slurm_user_job_cpus{@, state="RUNNING"})', "{{user}}"),),
            look=Look.BARS,
        ),
        Panel(
            title="CPUs of running jobs, by account",
            queries=(
                Query('topk(12, slurm_account_job_cpus{@, account=~"$account", state="RUNNING"})', "{{account}}"),
            ),
            look=Look.STACK,
            width=HALF,
        ),
        Panel(
            title="CPUs requested by pending jobs, by account",
            queries=(
                Query('topk(12, slurm_account_job_cpus{@, account=~"$account", state="PENDING"})', "{{account}}"),
            ),
            look=Look.STACK,
            width=HALF,
        ),
    ),
)

WAITS = Row(
    title="Wait times",
    panels=(
        Panel(
            title="Wait from submission to start",
            queries=tuple(
                Query(
                    f"histogram_quantile({quantile}, sum by (le, partition) "
                    '(increase(slurm_job_wait_seconds_bucket{@, partition=~"$partition"}[1h])))',
                    f"{{{{partition}}}} {name}",
                )
                for quantile, name in ((0.5, "half"), (0.95, "95 of 100"))
            ),
            unit="s",
            text="Median and 95th percentile of the jobs that started within the last hour.",
        ),
        Panel(
            title="Started jobs, by wait time",
            queries=(
                Query(
                    'sum by (le) (increase(slurm_job_wait_seconds_bucket{@, partition=~"$partition"}'
                    "[$__rate_interval]))",
                    "{{le}}",
                ),
            ),
            look=Look.HEATMAP,
            unit="s",
        ),
        Panel(
            title="Oldest pending job",
            queries=(Query('slurm_partition_oldest_pending_age_seconds{@, partition=~"$partition"}', "{{partition}}"),),
            unit="s",
            text="Without held jobs.",
        ),
    ),
)

ENDED = Row(
    title="Ended jobs",
    panels=(
        Panel(
            title="Jobs that ended within an hour",
            queries=(
                Query(
                    "sum by (state) (increase(slurm_jobs_ended_total"
                    '{@, partition=~"$partition", account=~"$account"}[1h]))',
                    "{{state}}",
                ),
            ),
            look=Look.STACK,
        ),
        Panel(
            title="Run time of ended jobs",
            queries=tuple(
                Query(
                    f"histogram_quantile({quantile}, sum by (le, partition) "
                    '(increase(slurm_job_run_seconds_bucket{@, partition=~"$partition"}[1h])))',
                    f"{{{{partition}}}} {name}",
                )
                for quantile, name in ((0.5, "half"), (0.95, "95 of 100"))
            ),
            unit="s",
            text="Median and 95th percentile of the jobs that ended within the last hour.",
        ),
        Panel(
            title="CPUs of ended jobs, by account",
            queries=(
                Query(
                    "topk(12, sum by (account) (increase(slurm_ended_job_cpu_seconds_total"
                    '{@, partition=~"$partition", account=~"$account"}[1h]))) / 3600',
                    "{{account}}",
                ),
            ),
            look=Look.STACK,
            text="CPU-hours per hour, counted when jobs end: all hours of a long job count at its end.",
        ),
    ),
)

SHARES = Row(
    title="Shares and limits",
    panels=(
        Panel(
            title="Usage against share, by account",
            queries=(
                Query('slurm_account_fairshare_effective_usage{@, account=~"$account"}', "{{account}} used"),
                Query('slurm_account_fairshare_norm_shares{@, account=~"$account"}', "{{account}} granted"),
            ),
            unit="percentunit",
            text="Share of the usage and of the granted shares of all accounts with the same parent.",
        ),
        Panel(
            title="Users with the lowest fair share",
            queries=(Query('bottomk(12, slurm_user_fairshare{@, account=~"$account"})', "{{user}} ({{account}})"),),
            look=Look.BARS,
            unit="percentunit",
            text="Their jobs get the lowest fair-share priority.",
        ),
        Panel(
            title="Licences in use",
            queries=(Query("slurm_licenses_used{@} / slurm_licenses{@}", "{{license}}"),),
            look=Look.BARS,
            unit="percentunit",
            bad_from=1.0,
        ),
        Panel(
            title="Account and user limits closest to being reached",
            queries=(
                Query(
                    'topk(15, slurm_association_used_tres{@, account=~"$account"} / slurm_association_limit_tres{@})',
                    "{{account}} {{user}} {{limit}} {{tres}}",
                ),
                Query(
                    'topk(15, slurm_association_used_jobs{@, account=~"$account"} / slurm_association_limit_jobs{@})',
                    "{{account}} {{user}} {{limit}}",
                ),
            ),
            look=Look.BARS,
            width=HALF,
            unit="percentunit",
            warn_from=0.8,
            bad_from=1.0,
        ),
        Panel(
            title="QOS limits closest to being reached",
            queries=(
                Query(
                    "topk(15, slurm_qos_used_tres{@} / slurm_qos_limit_tres{@})",
                    "{{qos}} {{account}} {{user}} {{limit}} {{tres}}",
                ),
            ),
            look=Look.BARS,
            width=HALF,
            unit="percentunit",
            warn_from=0.8,
            bad_from=1.0,
        ),
    ),
)
