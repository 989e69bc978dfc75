# SPDX-License-Identifier: Apache-2.0
"""One job: what it has, what it uses, and on which node it does something else than on the others."""

from __future__ import annotations

from deploy.grafana.panels import DIAL, FULL, LINES, NUMBER, STACK, TABLE, Choice, Dashboard, Panel, Row, rate

HERE = 'NODE, slurm_job="$job"'

NOW = Row(
    "Job $job",
    (
        Panel(
            NUMBER, "Nodes", {"": f"slurm_job:jobs_nodes:count{{{HERE}}}"}, text="Nodes on which the job is measured."
        ),
        Panel(
            NUMBER,
            "Cores",
            {"": f"slurm_job:jobs_cores:sum{{{HERE}}}"},
            text="Cores that the job may use, on all nodes.",
        ),
        Panel(
            DIAL,
            "Cores at work",
            {"": f"slurm_job:jobs_cpu_seconds:rate5m{{{HERE}}} / slurm_job:jobs_cores:sum{{{HERE}}}"},
            unit="percentunit",
            text="Share of its cores that the job keeps busy, mean of five minutes.",
        ),
        Panel(
            DIAL,
            "Memory",
            {"": f"slurm_job:jobs_memory_bytes:sum{{{HERE}}} / slurm_job:jobs_memory_limit_bytes:sum{{{HERE}}}"},
            unit="percentunit",
            warn_from=0.9,
            bad_from=0.97,
            text="Share of its memory limit on all nodes, without page cache.",
        ),
        Panel(
            DIAL,
            "Busy GPUs",
            {"": f"slurm_job:jobs_gpus_busy:sum{{{HERE}}} / slurm_job:jobs_gpus:count{{{HERE}}}"},
            unit="percentunit",
            text="Share of its GPUs that the job keeps busy.",
        ),
        Panel(
            NUMBER,
            "OOM-killed processes",
            {"": f"slurm_job:jobs_oom_kills:sum{{{HERE}}}"},
            bad_from=1,
            text="Processes that were killed because the job had reached its memory limit.",
        ),
    ),
)

CPU = Row(
    "CPU",
    (
        Panel(
            LINES,
            "Busy cores",
            {
                "busy": f"slurm_job:jobs_cpu_seconds:rate5m{{{HERE}}}",
                "allocated": f"slurm_job:jobs_cores:sum{{{HERE}}}",
            },
            text="Cores that the job keeps busy and that it may use, on all nodes.",
        ),
        Panel(
            LINES,
            "Busy cores, by node",
            {"{{slurm_node}}": rate(f"jobs_cpu_seconds_total{{{HERE}}}", "slurm_node")},
            text="A node that differs from the others holds them up, or has too little work.",
        ),
        Panel(
            LINES,
            "Work done while ready to run, by node",
            {"{{slurm_node}}": f"slurm_job_node:jobs_run:ratio5m{{{HERE}}}"},
            unit="percentunit",
            text="Share of the time in which threads could run and had a core. Low: other programs use the same cores.",
        ),
        Panel(
            STACK,
            "Threads, by state",
            {"{{state}}": f"sum by (state) (jobs_threads{{{HERE}}})"},
            text="On all nodes, at the moment of each scrape.",
        ),
        Panel(
            LINES,
            "Throttled",
            {"{{slurm_node}}": rate(f"jobs_cpu_throttled_seconds_total{{{HERE}}}", "slurm_node")},
            text="Seconds per second for which the CPU limit of the job held it back.",
        ),
        Panel(
            LINES,
            "Time since the job last moved",
            {"{{kind}}": f"min by (kind) (jobs_progress_seconds{{{HERE}}})"},
            unit="s",
            text="By kind of work, on the node where it moved last. All of them growing: the job is stuck.",
        ),
    ),
)

MEMORY = Row(
    "Memory",
    (
        Panel(
            LINES,
            "Memory and limit",
            {
                "memory": f"slurm_job:jobs_memory_bytes:sum{{{HERE}}}",
                "limit": f"slurm_job:jobs_memory_limit_bytes:sum{{{HERE}}}",
            },
            unit="bytes",
            text="On all nodes, without page cache.",
        ),
        Panel(
            LINES,
            "Memory, by node",
            {"{{slurm_node}}": f"sum by (slurm_node) (jobs_memory_rss_bytes{{{HERE}}})"},
            unit="bytes",
            text="Resident memory of the processes; shared pages count once per process.",
        ),
        Panel(
            STACK,
            "Memory, by kind",
            {
                "anonymous": f"sum(jobs_memory_anon_bytes{{{HERE}}})",
                "shared": f"sum(jobs_memory_shmem_bytes{{{HERE}}})",
                "page cache": f"sum(jobs_memory_file_bytes{{{HERE}}})",
            },
            unit="bytes",
            text="What is charged to the job on all nodes. The kernel can reclaim page cache.",
        ),
    ),
)

IO = Row(
    "Input, output, network",
    (
        Panel(
            LINES,
            "Read and written",
            {
                "read": f"slurm_job:jobs_io_read_bytes:rate5m{{{HERE}}}",
                "written": f"slurm_job:jobs_io_write_bytes:rate5m{{{HERE}}}",
            },
            unit="Bps",
            text="By system calls, from and to any file system or pipe.",
        ),
        Panel(
            LINES,
            "NFS",
            {
                "{{filesystem}} read": rate(f"jobs_filesystem_read_bytes_total{{{HERE}}}", "filesystem"),
                "{{filesystem}} written": rate(f"jobs_filesystem_write_bytes_total{{{HERE}}}", "filesystem"),
            },
            unit="Bps",
            text="Of jobs that are alone on their nodes.",
        ),
        Panel(
            LINES,
            "Network",
            {
                "{{transport}} received": rate(f"jobs_network_receive_bytes_total{{{HERE}}}", "transport"),
                "{{transport}} sent": rate(f"jobs_network_transmit_bytes_total{{{HERE}}}", "transport"),
            },
            unit="Bps",
            text="Of jobs that are alone on their nodes.",
        ),
    ),
)

GPUS = Row(
    "GPUs and energy",
    (
        Panel(
            LINES,
            "Time in which a kernel ran, by GPU",
            {"{{slurm_node}} GPU {{gpu}}": rate(f"jobs_gpu_busy_seconds_total{{{HERE}}}", "slurm_node, gpu")},
            unit="percentunit",
            text="Says nothing about how much of the GPU the kernel used: see the panel to the right.",
        ),
        Panel(
            LINES,
            "Work of the GPUs",
            {
                "multiprocessors": f"avg(rate(jobs_gpu_sm_active_seconds_total{{{HERE}}}[$__rate_interval]))",
                "tensor cores": f"avg(rate(jobs_gpu_tensor_active_seconds_total{{{HERE}}}[$__rate_interval]))",
                "memory bandwidth": f"avg(rate(jobs_gpu_dram_active_seconds_total{{{HERE}}}[$__rate_interval]))",
            },
            unit="percentunit",
            text="Mean of all GPUs of the job. From hardware counters (Hopper and later).",
        ),
        Panel(
            LINES,
            "GPU memory",
            {
                "used": f"sum(jobs_gpu_held_memory_bytes{{{HERE}}})",
                "all": f"sum(jobs_gpu_held_memory_size_bytes{{{HERE}}})",
            },
            unit="bytes",
            text="Of all GPUs of the job.",
        ),
        Panel(
            LINES,
            "Transfers of the GPUs",
            {
                "PCIe received": rate(f"jobs_gpu_pcie_received_bytes_total{{{HERE}}}"),
                "PCIe sent": rate(f"jobs_gpu_pcie_transmitted_bytes_total{{{HERE}}}"),
                "NVLink received": rate(f"jobs_gpu_nvlink_received_bytes_total{{{HERE}}}"),
                "NVLink sent": rate(f"jobs_gpu_nvlink_transmitted_bytes_total{{{HERE}}}"),
            },
            unit="Bps",
            text="Of all GPUs of the job.",
        ),
        Panel(
            TABLE,
            "GPU faults",
            {"errors": f"max by (slurm_node, gpu, xid) (max_over_time(jobs_gpu_faults_total{{{HERE}}}[$__range]))"},
            labels=("slurm_node", "gpu", "xid"),
            width=8,
            text="Errors that the driver reported (Xid) while the job held the GPU.",
        ),
        Panel(
            STACK,
            "Power, by part",
            {"{{part}}": f"sum by (part) (rate(jobs_energy_joules_total{{{HERE}}}[5m]))"},
            unit="watt",
            text="An estimate: its GPUs, its share of the floor of its nodes (base), and by CPU time.",
        ),
    ),
)

NODES = Row(
    "Nodes of the job",
    (
        Panel(
            TABLE,
            "Use, by node",
            {
                "cores": f"max by (slurm_node) (jobs_cores{{{HERE}}})",
                "busy cores": f"max by (slurm_node) (jobs_busy_cores{{{HERE}}})",
                "memory": f"max by (slurm_node) (jobs_memory_rss_bytes{{{HERE}}})",
                "peak": f"max by (slurm_node) (jobs_memory_peak_bytes{{{HERE}}})",
                "limit": f"max by (slurm_node) (jobs_memory_limit_bytes{{{HERE}}})",
                "processes": f"max by (slurm_node) (jobs_processes{{{HERE}}})",
                "GPUs": f"count by (slurm_node) (jobs_gpu_held{{{HERE}}} == 1)",
            },
            labels=("slurm_node",),
            units={"memory": "bytes", "peak": "bytes", "limit": "bytes"},
            width=FULL,
            text="One row per node. Peak and limit include page cache.",
        ),
    ),
)

DASHBOARD = Dashboard(
    name="job",
    title="Slurm job",
    text="What a job has and what it uses, node by node. The portal has its report, with suggestions.",
    choices=(Choice("job", "Job", "slurm_job:jobs_nodes:count{NODE}", "slurm_job"),),
    rows=(NOW, CPU, MEMORY, IO, GPUS, NODES),
    portal_page="/jobs/$cluster/$job",
)
