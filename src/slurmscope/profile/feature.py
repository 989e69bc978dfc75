# SPDX-License-Identifier: Apache-2.0
"""Export the samples that Slurm itself took of steps and tasks, if a socket or address to receive them is configured.

::

    slurm_profile_task_cpu_seconds_total{slurm_job="4711",slurm_node="n17",step="0",task="1"} 93.02
    slurm_profile_task_resident_bytes{slurm_job="4711",slurm_node="n17",step="0",task="1"} 2.097152e+06
    slurm_profile_power_watts{slurm_job="4711",slurm_node="n17",step="0",sensor="node"} 412
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from slurmscope.core.config import file_path
from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import Section, parse_text, setting
from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.exporter.feature import Feature, Host, Running
from slurmscope.exporter.reading import SharedReading
from slurmscope.exporter.settings import WebSettings, parse_push_url
from slurmscope.http.server.address import parse_address
from slurmscope.metrics.family import Family, Labels, Metric, counter, gauge
from slurmscope.node.job_use import NodeJobs
from slurmscope.node.settings import NodeSettings
from slurmscope.profile.events import Profile, StepKey

_STEP = ("slurm_job", "slurm_node", "step")
_TASK = (*_STEP, "task")
INTERCONNECTS = ("ofed", "sysfs")


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


def parse_inbox_address(given: object) -> str:
    """Parse the address to listen on for writes; empty for none."""
    text = parse_text(given)
    try:
        return str(parse_address(text)) if text else ""
    except ConfigError as error:
        raise ValueError(str(error)) from error


def parse_interconnect(given: object) -> str:
    """Parse the name of Slurm's interconnect plugin; empty if it is not known."""
    name = parse_text(given).removeprefix("acct_gather_interconnect/")
    if name and name not in INTERCONNECTS:
        raise ValueError(f"{name!r} is not one of {', '.join(INTERCONNECTS)}")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """How samples of Slurm's profiling plugin are received; see docs/profiling.md."""

    socket: Path | None = file_path(
        None, "Listen on this unix socket for Slurm's profiling plugin; ProfilePrometheusSocket in acct_gather.conf."
    )
    influxdb_listen_address: str = setting(
        "",
        "Listen here for Slurm's plugin acct_gather_profile/influxdb; ProfileInfluxDBHost in acct_gather.conf. "
        "On a loopback address only root may write; others need TLS and users in web.config.file.",
        parse=parse_inbox_address,
        metavar="ADDRESS",
    )
    influxdb_gpus: bool = setting(
        False, "Use the GPU fields of acct_gather_profile/influxdb; only if AccountingStorageTRES has gres/gpu."
    )
    influxdb_interconnect: str = setting(
        "",
        "AcctGatherInterconnectType where acct_gather_profile/influxdb is used: ofed or sysfs. Without it, "
        "network bytes are left out, as their unit differs.",
        parse=parse_interconnect,
        metavar="NAME",
    )
    timeout: float = 600.0
    """Drop a step that sent nothing for this long; longer than the intervals of JobAcctGatherFrequency."""
    push: str = setting(
        "",
        "Push the samples to this Pushgateway under Slurm's own names, and delete them there at the step's end.",
        parse=parse_push_url,
        metavar="URL",
        is_secret=True,
    )
    push_interval: float = 5.0
    """Minimum interval between pushes of the same job."""

    @property
    def has_input(self) -> bool:
        """Return whether samples can be received."""
        return self.socket is not None or bool(self.influxdb_listen_address)


def check_push(settings: ProfileSettings) -> None:
    """Raise ConfigError if samples are to be pushed, but cannot be received."""
    if settings.push and not settings.has_input:
        raise ConfigError(
            "profile.push needs profile.socket or profile.influxdb-listen-address, where the samples to push arrive"
        )


ADVICE = "check the path of its socket and the directory, which the unit creates while the agent runs"
RUNNING_SECONDS = 3.0
"""How long the reading of profiled steps waits for that of the jobs."""


def find_running(node_jobs: SharedReading) -> frozenset[int] | None:
    """Return the jobs that run on this node, None if they could not be read now."""
    node_jobs.request()
    snapshot = node_jobs.wait(time.monotonic() + RUNNING_SECONDS)
    if snapshot.error is not None or not isinstance(snapshot.value, NodeJobs):
        return None
    return frozenset(job.key.job_id for job in snapshot.value.jobs if not job.has_ended)


def _open(host: Host) -> Running:
    settings, jobs = host.config.of(ProfileSettings), host.readings["node_jobs"]

    def share(read: Callable[[], Profile]) -> tuple[SharedReading]:
        return (SharedReading("profile", read, interval_seconds=jobs.interval_seconds, advice=ADVICE),)

    check_push(settings)
    if not settings.has_input:
        return Running(readings=share(Profile))
    # Imported here: most nodes receive no samples.
    from slurmscope.profile.service import NodeProfiling

    profiling = NodeProfiling(
        settings,
        grace_seconds=host.config.of(NodeSettings).grace,
        host=socket.gethostname(),
        config_file=host.config.of(WebSettings).config_file,
        find_running=partial(find_running, jobs),
    )
    stack = ExitStack()
    stack.enter_context(profiling.open())
    return Running(readings=share(profiling.read), checks=profiling.checks, close=stack.close)


PROFILING = Feature(
    name="profile", sections=(Section(name="profile", type=ProfileSettings),), collectors=(COLLECTOR,), open=_open
)
