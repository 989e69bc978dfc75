# SPDX-License-Identifier: Apache-2.0
"""Users and accounts: who has what, who uses it, and who is close to a limit."""

from __future__ import annotations

from deploy.grafana.panels import ACCOUNTS, BARS, HALF, LINES, STACK, TABLE, Choice, Dashboard, Panel, Row, rate

ACCOUNT = 'CLUSTER, account=~"$account"'
HERE = 'CLUSTER, user="$user"'


def of_user(recorded: str) -> str:
    """Return a recorded series of the running jobs of the chosen user."""
    return (
        f"slurm_job:jobs_{recorded}{{NODE}} and on (cluster, slurm_job)"
        ' jobs_info{NODE, user="$user", has_ended="false"}'
    )


EVERYBODY = Row(
    "All users",
    (
        Panel(
            BARS,
            "Users by CPUs of running jobs",
            {"{{user}}": 'topk(12, slurm_user_job_cpus{CLUSTER, state="RUNNING"})'},
            text="The twelve users with most allocated CPUs.",
        ),
        Panel(
            BARS,
            "Users by GPUs of running jobs",
            {"{{user}}": 'topk(12, sum by (user) (slurm_user_job_gres{CLUSTER, state="RUNNING", gres="gpu"}))'},
            text="The twelve users with most allocated GPUs.",
        ),
        Panel(
            BARS,
            "Users by memory of running jobs",
            {"{{user}}": 'topk(12, slurm_user_job_memory_bytes{CLUSTER, state="RUNNING"})'},
            unit="bytes",
            text="The twelve users with most allocated memory.",
        ),
        Panel(
            STACK,
            "CPUs of running jobs, by account",
            {"{{account}}": f'topk(12, slurm_account_job_cpus{{{ACCOUNT}, state="RUNNING"}})'},
            text="The twelve accounts with most allocated CPUs.",
        ),
        Panel(
            STACK,
            "GPUs of running jobs, by account",
            {
                "{{account}}": f"topk(12, sum by (account) (slurm_account_job_gres{{{ACCOUNT}, "
                'state="RUNNING", gres="gpu"}))'
            },
            text="The twelve accounts with most allocated GPUs.",
        ),
        Panel(
            STACK,
            "Pending jobs, by account",
            {"{{account}}": f'topk(12, slurm_account_jobs{{{ACCOUNT}, state="PENDING"}})'},
            text="The twelve accounts with most pending jobs.",
        ),
    ),
)

USER = Row(
    "User $user",
    (
        Panel(
            STACK,
            "Jobs, by state",
            {"{{state}}": f'slurm_user_jobs{{{HERE}, state=~"RUNNING|PENDING|SUSPENDED|COMPLETING"}}'},
            text="Every task of an array is a job.",
        ),
        Panel(
            LINES,
            "Allocated and busy cores",
            {
                "allocated": f'slurm_user_job_cpus{{{HERE}, state="RUNNING"}}',
                "busy": f"sum({of_user('cpu_seconds:rate5m')})",
            },
            text="CPUs of the running jobs, and cores that they keep busy.",
        ),
        Panel(
            LINES,
            "Allocated and used memory",
            {
                "allocated": f'slurm_user_job_memory_bytes{{{HERE}, state="RUNNING"}}',
                "used": f"sum({of_user('memory_bytes:sum')})",
            },
            unit="bytes",
            text="Memory of the running jobs, without page cache.",
        ),
        Panel(
            TABLE,
            "Running jobs",
            {
                "nodes": of_user("nodes:count"),
                "cores": of_user("cores:sum"),
                "busy cores": of_user("cpu_seconds:rate5m"),
                "memory": of_user("memory_bytes:sum"),
                "memory limit": of_user("memory_limit_bytes:sum"),
                "GPUs": of_user("gpus:count"),
                "busy GPUs": of_user("gpus_busy:sum"),
            },
            labels=("slurm_job",),
            units={"memory": "bytes", "memory limit": "bytes"},
            width=16,
            text="Measured jobs, on all of their nodes; the job ID leads to the dashboard of the job.",
        ),
        Panel(
            LINES,
            "Requests per second to slurmctld",
            {"requests": rate(f"slurm_rpc_user_requests_total{{{HERE}}}")},
            text="Of commands such as squeue, sbatch and scontrol.",
        ),
    ),
)

SHARES = Row(
    "Shares and limits",
    (
        Panel(
            LINES,
            "Usage against share, by account",
            {
                "{{account}} used": f"slurm_account_fairshare_effective_usage{{{ACCOUNT}}}",
                "{{account}} granted": f"slurm_account_fairshare_norm_shares{{{ACCOUNT}}}",
            },
            unit="percentunit",
            text="Share of the usage and of the granted shares of all accounts with the same parent.",
        ),
        Panel(
            BARS,
            "Users with the lowest fair share",
            {"{{user}} ({{account}})": f"bottomk(12, slurm_user_fairshare{{{ACCOUNT}}})"},
            unit="percentunit",
            text="Their jobs get the lowest fair-share priority.",
        ),
        Panel(
            STACK,
            "CPU-hours of ended jobs, by account",
            {
                "{{account}}": "topk(12, sum by (account) (increase("
                f"slurm_ended_job_cpu_seconds_total{{{ACCOUNT}}}[1h]))) / 3600"
            },
            text="Within an hour, counted when jobs end: all hours of a long job count at its end.",
        ),
        Panel(
            BARS,
            "Account and user limits closest to being reached",
            {
                "{{account}} {{user}} {{limit}} {{tres}}": (
                    f"topk(15, slurm_association_used_tres{{{ACCOUNT}}} / slurm_association_limit_tres{{CLUSTER}})"
                ),
                "{{account}} {{user}} {{limit}}": (
                    f"topk(15, slurm_association_used_jobs{{{ACCOUNT}}} / slurm_association_limit_jobs{{CLUSTER}})"
                ),
            },
            unit="percentunit",
            width=HALF,
            warn_from=0.8,
            bad_from=1.0,
            text="Usage divided by the limit. At 100 %, further jobs wait.",
        ),
        Panel(
            BARS,
            "QOS limits closest to being reached",
            {
                "{{qos}} {{account}} {{user}} {{limit}} {{tres}}": (
                    "topk(15, slurm_qos_used_tres{CLUSTER} / slurm_qos_limit_tres{CLUSTER})"
                )
            },
            unit="percentunit",
            width=HALF,
            warn_from=0.8,
            bad_from=1.0,
            text="Usage divided by the limit. At 100 %, further jobs wait.",
        ),
    ),
)

DASHBOARD = Dashboard(
    name="users",
    title="Slurm users and accounts",
    text="Who has what, who uses it, and who is close to a limit.",
    choices=(Choice("user", "User", "slurm_user_jobs{CLUSTER}", "user"), ACCOUNTS),
    rows=(EVERYBODY, USER, SHARES),
    portal_page="/users/$user",
)
