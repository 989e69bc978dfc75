# SPDX-License-Identifier: Apache-2.0
"""Export the samples that Slurm itself took of steps and tasks, received from its profiling plugin.

::

    slurm_profile_task_cpu_seconds_total{slurm_job="4711",slurm_node="n17",step="0",task="1"} 93.02
    slurm_profile_task_resident_bytes{slurm_job="4711",slurm_node="n17",step="0",task="1"} 2.097152e+06
    slurm_profile_power_watts{slurm_job="4711",slurm_node="n17",step="0",sensor="node"} 412
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, Labels, Metric, counter, gauge
from slurmscope.profile.events import Profile, StepKey

_STEP = ("slurm_job", "slurm_node", "step")
_TASK = (*_STEP, "task")


def _metrics(labels: tuple[str, ...], helps: Mapping[str, str]) -> Mapping[str, Metric]:
    """Declare metrics by the names that :mod:`slurmscope.profile.steps` gives their quantities."""
    return {
        name.removesuffix("_total"): (counter if name.endswith("_total") else gauge)(
            f"slurm_profile_{name}", text, *labels
        )
        for name, text in helps.items()
    }


TASKS = _metrics(
    _TASK,
    {
        "task_cpu_seconds_total": "CPU time of the task.",
        "task_busy_cores": "Cores the task kept busy between its last two samples.",
        "task_cpu_frequency_hertz": "Mean frequency of the cores the task ran on.",
        "task_resident_bytes": "Resident memory of the task.",
        "task_virtual_bytes": "Virtual memory of the task.",
        "task_major_faults_total": "Major page faults of the task's processes.",
        "task_read_bytes_total": "Bytes read by the task.",
        "task_write_bytes_total": "Bytes written by the task.",
        "task_gpu_memory_bytes": "GPU memory of the task.",
        "task_gpu_utilization_ratio": "GPU utilization of the task; 1 is one GPU fully used, several GPUs add up.",
    },
)
POWER = gauge(
    "slurm_profile_power_watts",
    "Power of the node during the step by sensor: node, a GPU, or as the energy plugin names it.",
    *_STEP,
    "sensor",
)
NODE_WIDE = _metrics(
    _STEP,
    {
        "filesystem_reads_total": "Read operations of the node on Lustre during the step.",
        "filesystem_read_bytes_total": "Bytes the node read from Lustre during the step.",
        "filesystem_writes_total": "Write operations of the node on Lustre during the step.",
        "filesystem_write_bytes_total": "Bytes the node wrote to Lustre during the step.",
        "network_receive_packets_total": "Packets the node received during the step.",
        "network_transmit_packets_total": "Packets the node sent during the step.",
        "network_receive_bytes_total": "Bytes the node received during the step.",
        "network_transmit_bytes_total": "Bytes the node sent during the step.",
    },
)
LAST_SAMPLE = gauge(
    "slurm_profile_last_sample_timestamp_seconds", "Unix time of the last sample that Slurm took of the step.", *_STEP
)
EVENTS = counter("slurmscope_profile_events_total", "Events received from the profiling plugin by kind.", "event")
REJECTED = counter(
    "slurmscope_profile_rejected_total",
    "What was received and not used: datagrams and writes of others than root (sender) or in another format "
    "(malformed), events of ended steps (late), repeated ones, those above a limit, and fields with an impossible "
    "value.",
    "reason",
)
LOST = counter(
    "slurmscope_profile_lost_total",
    "Events that the plugin could not send at once; samples are sent again later. See net.unix.max_dgram_qlen.",
)
PUSH_ERRORS = counter(
    "slurmscope_profile_push_errors_total",
    "Groups of profiled jobs that could not be pushed to the Pushgateway or deleted there.",
)


def collect(options: NoOptions, *, profile: Profile) -> Iterator[Family]:  # noqa: ARG001 - the protocol
    samples: dict[str, dict[Labels, float]] = {}
    for step in profile.steps:
        for (quantity, place), value in step.measured.items():
            samples.setdefault(quantity, {})[*_labels(step.key), place] = value
    for quantity, metric in TASKS.items():
        yield Family(metric, samples.get(quantity, {}))
    yield Family(POWER, samples.get("power_watts", {}))
    for quantity, metric in NODE_WIDE.items():
        yield Family(metric, {labels[:-1]: value for labels, value in samples.get(quantity, {}).items()})
    times = {_labels(step.key): step.last_sample_seconds for step in profile.steps}
    yield Family(LAST_SAMPLE, {labels: seconds for labels, seconds in times.items() if seconds is not None})
    yield Family(EVENTS, {(kind,): count for kind, count in profile.events.items()})
    yield Family(REJECTED, {(reason,): count for reason, count in profile.rejected.items()})
    yield Family(LOST, {} if profile.lost is None else {(): profile.lost})
    yield Family(PUSH_ERRORS, {} if profile.push_errors is None else {(): profile.push_errors})


def _labels(key: StepKey) -> Labels:
    return str(key.job_id), key.node, key.step


COLLECTOR = Collector(
    name="profile",
    role=Role.NODE,
    help="Slurm's own samples of steps and tasks, from a profiling plugin; needs profile.socket or "
    "profile.influxdb-listen-address.",
    needs=("profile",),
    metrics=(*TASKS.values(), POWER, *NODE_WIDE.values(), LAST_SAMPLE, EVENTS, REJECTED, LOST, PUSH_ERRORS),
    collect=collect,
)
