# SPDX-License-Identifier: Apache-2.0
"""GPUs: which are allocated, what they do, which jobs leave them idle, which fail."""

from __future__ import annotations

from deploy.grafana.panels import (
    BARS,
    DIAL,
    GPUS,
    HALF,
    LINES,
    NODES_READ,
    NUMBER,
    PARTITIONS,
    STACK,
    TABLE,
    Dashboard,
    Panel,
    Row,
    by_state,
    or_zero,
    share,
)

HELD = "slurm_job:jobs_gpus:count{NODE}"
BUSY = "slurm_job:jobs_gpus_busy:sum{NODE}"


def work(unit: str) -> str:
    """Return the mean work of a unit of the GPUs that jobs hold and that have hardware counters."""
    done = f"slurm_job:jobs_gpu_{unit}_active_seconds:rate5m{{NODE}}"
    return f"sum({done}) / sum({HELD} and on (cluster, slurm_job) {done})"


# Idle GPUs of usable nodes whose CPUs are all allocated.
WITHOUT_CPU = (
    '(slurm_node_gres{CLUSTER, gres="gpu"} - slurm_node_gres_used{CLUSTER, gres="gpu"})'
    " and on (node) slurm_node_usable{CLUSTER} == 1"
    " and on (node) slurm_node_allocated_cpus{CLUSTER} >= slurm_node_cpus{CLUSTER}"
)

NOW = Row(
    "Now",
    (
        Panel(
            DIAL,
            "Allocated",
            {"": share('slurm_gres{CLUSTER, gres="gpu", state="allocated"}', 'slurm_gres{CLUSTER, gres="gpu"}')},
            unit="percentunit",
            text="Share of all GPUs, also those of unavailable nodes.",
        ),
        Panel(
            DIAL,
            "Busy",
            {"": f"sum({BUSY}) / sum({HELD})"},
            unit="percentunit",
            text="Share of the GPUs held by jobs in which a kernel runs.",
        ),
        Panel(
            DIAL,
            "Multiprocessors at work",
            {"": work("sm")},
            unit="percentunit",
            text="Mean over all GPUs held by jobs, from hardware counters (Hopper and later).",
        ),
        Panel(
            NUMBER,
            "Held and idle",
            {"": "sum(jobs_gpu_held_idle{NODE})"},
            warn_from=1,
            text="GPUs that no process of their job uses.",
        ),
        Panel(
            NUMBER,
            "Idle without a free CPU",
            {"": or_zero(f"sum({WITHOUT_CPU})", NODES_READ)},
            warn_from=1,
            text="No job can use these GPUs, because all CPUs of their nodes are allocated.",
        ),
        Panel(
            NUMBER,
            "Lost",
            {"": "sum(gpu_lost{NODE})"},
            bad_from=1,
            text="GPUs that were there and cannot be reached any more.",
        ),
    ),
)

ALLOCATION = Row(
    "Allocation",
    (
        by_state("GPUs", GPUS),
        Panel(
            LINES,
            "GPUs allocated, by model",
            {"{{model}}": "instance_model:slurm_gpus_allocated:ratio{CLUSTER}"},
            unit="percentunit",
            text="Share of the GPUs of each model.",
        ),
        Panel(
            LINES,
            "Requested by pending jobs",
            {"{{model}}": 'sum by (model) (slurm_job_gres{CLUSTER, state="PENDING", gres="gpu"})'},
            text="Jobs that name no model have an empty one.",
        ),
        Panel(
            BARS,
            "GPUs allocated, by partition",
            {
                "{{partition}} {{model}}": share(
                    'slurm_partition_gres{CLUSTER, partition=~"$partition", gres="gpu", state="allocated"}',
                    'slurm_partition_gres{CLUSTER, partition=~"$partition", gres="gpu"}',
                    "partition, model",
                )
            },
            unit="percentunit",
            text="Share of the GPUs of each partition and model.",
        ),
        Panel(
            STACK,
            "GPUs of running jobs, by account",
            {
                "{{account}}": "topk(12, sum by (account) "
                '(slurm_account_job_gres{CLUSTER, state="RUNNING", gres="gpu"}))'
            },
            text="The twelve accounts with most GPUs.",
        ),
        Panel(
            STACK,
            "GPUs of running jobs, by user",
            {"{{user}}": 'topk(12, sum by (user) (slurm_user_job_gres{CLUSTER, state="RUNNING", gres="gpu"}))'},
            text="The twelve users with most GPUs.",
        ),
    ),
)

WORK = Row(
    "Work",
    (
        Panel(
            LINES,
            "Held and busy GPUs",
            {"held by jobs": f"sum({HELD})", "busy": f"sum({BUSY})"},
            text="Busy: a kernel runs. GPUs that several jobs share are not counted as busy.",
        ),
        Panel(
            LINES,
            "Work of the GPUs held by jobs",
            {
                "multiprocessors": work("sm"),
                "tensor cores": work("tensor"),
            },
            unit="percentunit",
            text="Mean share of the time in which they were at work, from hardware counters (Hopper and later).",
        ),
        Panel(
            LINES,
            "Power",
            {"GPUs": "sum(rate(slurm_node_energy_gpu_joules_total{NODE}[5m]))"},
            unit="watt",
            text="Of all GPUs.",
        ),
        Panel(
            TABLE,
            "Jobs that leave most GPUs idle",
            {
                "idle": f"topk(20, {HELD} - on (cluster, slurm_job) {BUSY} > 0.1)",
                "held": f"{HELD} and on (cluster, slurm_job) topk(20, {HELD} - on (cluster, slurm_job) {BUSY} > 0.1)",
            },
            labels=("slurm_job",),
            units={"idle": "short"},
            text="GPUs that the job holds, less those in which its kernels run.",
        ),
        Panel(
            BARS,
            "GPUs with least free memory",
            {
                "{{instance}} GPU {{gpu}} {{mig}}": (
                    "topk(12, gpu_memory_used_bytes{NODE} / gpu_memory_size_bytes{NODE})"
                )
            },
            unit="percentunit",
            width=HALF,
            text="Share of the memory that is used.",
        ),
    ),
)

HEALTH = Row(
    "Health",
    (
        Panel(
            TABLE,
            "Errors (Xid) in the chosen time",
            {"errors": "max by (instance, gpu, xid) (max_over_time(gpu_xid_errors_total{NODE}[$__range]))"},
            labels=("instance", "gpu", "xid"),
            width=8,
            text="Errors that the driver reported since the agent of the node started.",
        ),
        Panel(
            TABLE,
            "GPUs that need a reset",
            {"": 'max by (instance, gpu, action) (gpu_recovery_action{NODE, action!="none"} == 1)'},
            labels=("instance", "gpu", "action"),
            width=8,
            text="What the driver asks for after an error.",
        ),
        Panel(
            TABLE,
            "Memory errors",
            {
                "uncorrected": 'max by (instance, gpu) (gpu_ecc_errors_total{NODE, kind="uncorrected"} > 0)',
                "rows to replace": "max by (instance, gpu) (gpu_remap_pending{NODE} > 0)",
                "not replaced": "max by (instance, gpu) (gpu_remap_failed{NODE} > 0)",
            },
            labels=("instance", "gpu"),
            width=8,
            text="Uncorrected errors since the driver was loaded, and rows of memory that wait for a reset to be "
            "replaced, or could not be.",
        ),
        Panel(
            LINES,
            "Clocks held down, by reason",
            {"{{reason}}": "sum by (reason) (rate(gpu_throttled_seconds_total{NODE}[5m]))"},
            text="Number of GPUs whose clocks were held down, on average.",
        ),
        Panel(
            BARS,
            "Hottest GPUs",
            {"{{instance}} GPU {{gpu}}": "topk(12, gpu_temperature_celsius{NODE})"},
            unit="celsius",
            warn_from=80,
            bad_from=90,
            text="Core temperature.",
        ),
        Panel(
            BARS,
            "Unreadable GPUs",
            {"{{instance}} GPU {{gpu}}": "1 - gpu_readable{NODE} == 1"},
            text="Lost, or the agent has no access to them.",
        ),
    ),
)

DASHBOARD = Dashboard(
    name="gpus",
    title="Slurm GPUs",
    text="Which GPUs are allocated, what they do, which jobs leave them idle, and which fail.",
    choices=(PARTITIONS,),
    rows=(NOW, ALLOCATION, WORK, HEALTH),
)
