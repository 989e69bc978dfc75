# SPDX-License-Identifier: Apache-2.0
"""One node: what Slurm says of it, and what its jobs do."""

from __future__ import annotations

from deploy.grafana.panels import DIAL, HALF, LINES, NAME, NUMBER, STACK, TABLE, Choice, Dashboard, Panel, Row, rate

SLURM = 'CLUSTER, node="$node"'
HERE = 'NODE, slurm_node="$node"'
RUNNING = f'jobs_info{{{HERE}, has_ended="false"}}'

NOW = Row(
    "Node $node",
    (
        Panel(
            NAME,
            "State",
            {"{{base_state}}": f"slurm_node_state_info{{{SLURM}}}"},
            text="Base state; flags such as drain are in the table below.",
        ),
        Panel(
            NUMBER,
            "Usable",
            {"": f"slurm_node_usable{{{SLURM}}}"},
            words=(("1", "yes", "green"), ("0", "no", "red")),
            text="Whether Slurm can start jobs on idle resources of the node.",
        ),
        Panel(
            NUMBER,
            "Node agent",
            {"": 'up{NODE, job="slurm-nodes", instance="$node"}'},
            words=(("1", "up", "green"), ("0", "down", "red")),
            text="Whether Prometheus can scrape the agent, without which jobs on the node are not measured.",
        ),
        Panel(
            DIAL,
            "CPUs allocated",
            {"": f"slurm_node_allocated_cpus{{{SLURM}}} / slurm_node_cpus{{{SLURM}}}"},
            unit="percentunit",
            text="Share of the CPUs that jobs have.",
        ),
        Panel(
            DIAL,
            "Memory allocated",
            {"": f"slurm_node_allocated_memory_bytes{{{SLURM}}} / slurm_node_memory_bytes{{{SLURM}}}"},
            unit="percentunit",
            text="Share of the memory that jobs have.",
        ),
        Panel(
            NUMBER,
            "Power now",
            {"": f"sum(slurm_node_power_watts{{{HERE}}})"},
            unit="watt",
            text="Of what the meter of the node covers; see the dashboard Energy.",
        ),
    ),
)

JOBS = Row(
    "Jobs",
    (
        Panel(
            TABLE,
            "Jobs on the node",
            {
                "processes": f"sum by (slurm_job, user) ({RUNNING} * on (slurm_job) group_left ()"
                f" max by (slurm_job) (jobs_processes{{{HERE}}}))",
                "cores": f"max by (slurm_job) (jobs_cores{{{HERE}}})",
                "busy cores": f"max by (slurm_job) (jobs_busy_cores{{{HERE}}})",
                "memory": f"max by (slurm_job) (jobs_memory_rss_bytes{{{HERE}}})",
                "memory limit": f"max by (slurm_job) (jobs_memory_limit_bytes{{{HERE}}})",
                "GPUs": f"count by (slurm_job) (jobs_gpu_held{{{HERE}}} == 1)",
            },
            labels=("slurm_job", "user"),
            units={"memory": "bytes", "memory limit": "bytes"},
            width=16,
            text="Jobs that run now. Memory is resident memory; shared pages count once per process.",
        ),
        Panel(
            TABLE,
            "Down or drained",
            {
                "since": f"1000 * slurm_node_drain_since_timestamp_seconds{{{SLURM}}}"
                f" * on (node) group_left (reason, user) slurm_node_drain_info{{{SLURM}}}"
            },
            labels=("reason", "user"),
            unit="dateTimeAsIso",
            width=8,
            text="Empty on a healthy node.",
        ),
        Panel(
            STACK,
            "Busy cores, by job",
            {"{{slurm_job}}": rate(f"jobs_cpu_seconds_total{{{HERE}}}", "slurm_job")},
            text="Cores that each job keeps busy.",
        ),
        Panel(
            STACK,
            "Memory, by job",
            {"{{slurm_job}}": f"sum by (slurm_job) (jobs_memory_rss_bytes{{{HERE}}})"},
            unit="bytes",
            text="Resident memory of the processes; shared pages count once per process.",
        ),
        Panel(
            LINES,
            "Waiting for a core, by job",
            {"{{slurm_job}}": rate(f"jobs_run_queue_wait_seconds_total{{{HERE}}}", "slurm_job")},
            text="Threads that were ready to run but had no core.",
        ),
        Panel(
            LINES,
            "Load and allocated CPUs",
            {
                "load": f"slurm_node_load{{{SLURM}}}",
                "allocated": f"slurm_node_allocated_cpus{{{SLURM}}}",
                "all": f"slurm_node_cpus{{{SLURM}}}",
            },
            text="A load far below the allocated CPUs means that jobs do not use the CPUs they have.",
        ),
        Panel(
            STACK,
            "Read and written, by job",
            {
                "{{slurm_job}} read": rate(f"jobs_io_read_bytes_total{{{HERE}}}", "slurm_job"),
                "{{slurm_job}} written": rate(f"jobs_io_write_bytes_total{{{HERE}}}", "slurm_job"),
            },
            unit="Bps",
            text="By system calls, from and to any file system or pipe.",
        ),
        Panel(
            LINES,
            "Processes that are stopped or wait for a disk",
            {"{{slurm_job}}": f"sum by (slurm_job) (jobs_held_processes{{{HERE}}})"},
            text="For a minute or longer.",
        ),
    ),
)

DEVICES = Row(
    "Network, file systems, GPUs, power",
    (
        Panel(
            LINES,
            "Network",
            {
                "{{device}} received": rate(f"slurm_node_network_receive_bytes_total{{{HERE}}}", "device"),
                "{{device}} sent": rate(f"slurm_node_network_transmit_bytes_total{{{HERE}}}", "device"),
            },
            unit="Bps",
            text="Ports of RDMA and Ethernet.",
        ),
        Panel(
            LINES,
            "TCP segments sent again",
            {
                "retransmitted": f"rate(slurm_node_tcp_retransmitted_segments_total{{{HERE}}}[$__rate_interval])"
                f" / (rate(slurm_node_tcp_sent_segments_total{{{HERE}}}[$__rate_interval]) > 0)"
            },
            unit="percentunit",
            warn_from=0.01,
            text="More than 1 % mean a lossy network.",
        ),
        Panel(
            LINES,
            "NFS",
            {
                "{{filesystem}} read": rate(f"slurm_node_filesystem_read_bytes_total{{{HERE}}}", "filesystem"),
                "{{filesystem}} written": rate(f"slurm_node_filesystem_write_bytes_total{{{HERE}}}", "filesystem"),
            },
            unit="Bps",
            text="Bytes exchanged with the servers.",
        ),
        Panel(
            LINES,
            "GPU utilization",
            {"GPU {{gpu}} {{mig}}": 'gpu_utilization_ratio{NODE, instance="$node"}'},
            unit="percentunit",
            text="Share of time in which a kernel ran. That says nothing about how much of the GPU it used.",
        ),
        Panel(
            LINES,
            "GPU memory",
            {"GPU {{gpu}} {{mig}}": 'gpu_memory_used_bytes{NODE, instance="$node"}'},
            unit="bytes",
            text="Used memory of each GPU.",
        ),
        Panel(
            LINES,
            "Power",
            {
                "node": f"slurm_node_power_watts{{{HERE}}}",
                "GPUs": f"rate(slurm_node_energy_gpu_joules_total{{{HERE}}}[5m])",
                "jobs": f"rate(slurm_node_energy_jobs_joules_total{{{HERE}}}[5m])",
            },
            unit="watt",
            text="What the meter covers, and the parts of GPUs and jobs. The part of jobs is an estimate.",
        ),
    ),
)

SLURM_EVENTS = Row(
    "Flags and outages",
    (
        Panel(
            STACK,
            "Flags",
            {"{{flag}}": f"slurm_node_flag{{{SLURM}}}"},
            width=HALF,
            text="Flags that Slurm has set, such as drain or not_responding.",
        ),
        Panel(
            TABLE,
            "Last 7 days",
            {
                "times": f"sum by (state) (slurm_node_events{{{SLURM}}})",
                "duration": f"sum by (state) (slurm_node_lost_seconds{{{SLURM}}})",
            },
            labels=("state",),
            units={"duration": "s"},
            width=HALF,
            text="How often and how long the node was down or drained. Needs --collector.events.",
        ),
    ),
)

DASHBOARD = Dashboard(
    name="node",
    title="Slurm node",
    text="What Slurm says of a node, and what its jobs do.",
    choices=(Choice("node", "Node", "slurm_node_cpus{CLUSTER}", "node"),),
    rows=(NOW, JOBS, DEVICES, SLURM_EVENTS),
    portal_page="/nodes/$node",
)
