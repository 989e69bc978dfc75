# SPDX-License-Identifier: Apache-2.0
"""Write samples as the trace endpoint takes them: the keys of the older wrapper script, and a few more."""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.model.traced_run import SlurmContext, TreeSample

Sample = dict[str, object]
"""One sample as the endpoint takes it."""

COMMAND_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Hold what all samples of one command have in common."""

    pid: int
    host: str
    user: str
    command: str
    slurm: SlurmContext
    start_seconds: float
    interval_seconds: float


class SampleWriter:
    """Write the samples of one command, in their order."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._last_time = sender.start_seconds
        self._last_cpu = 0.0

    def write(self, sample: TreeSample) -> Sample:
        """Return one sample; ``cpus`` is the use since the previous one, in percent of a core."""
        sender, elapsed = self._sender, sample.time_seconds - self._last_time
        busy = max(0.0, sample.cpu_seconds - self._last_cpu)
        percent = 100 * busy / elapsed if elapsed > 0 else 0.0
        self._last_time, self._last_cpu = sample.time_seconds, sample.cpu_seconds
        values = {
            "job_id": sender.slurm.job_id or 0,
            "pid": sender.pid,
            "cpus": round(percent, 1),
            "threads": float(sample.threads),
            "mem": float(sample.resident_bytes),
            "read_bytes": _float(sample.read_bytes),
            "write_bytes": _float(sample.write_bytes),
            "username": sender.user,
            "hostname": sender.host,
            "command": cut_bytes(sender.command),
            "rank": sender.slurm.rank,
            "step_id": sender.slurm.step_id or None,
            "cpu_seconds": round(sample.cpu_seconds, 3),
            "interval": sender.interval_seconds,
            "time": round(sample.time_seconds, 3),
            "start_time": round(sender.start_seconds, 3),
        }
        return {key: value for key, value in values.items() if value is not None}


def cut_bytes(text: str) -> str:
    """Cut a text to what the endpoint takes, and make it valid UTF-8."""
    return text.encode("utf-8", "replace")[:COMMAND_BYTES].decode("utf-8", "ignore")


def _float(number: int | None) -> float | None:
    return None if number is None else float(number)
