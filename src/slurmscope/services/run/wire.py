# SPDX-License-Identifier: Apache-2.0
"""Write samples as the trace endpoint takes them: the keys of the older wrapper script, and a few more."""

from __future__ import annotations

from dataclasses import dataclass

from slurmscope.model.traced_run import SlurmContext, TreeSample

Sample = dict[str, object]
"""One sample as the endpoint takes it."""

COMMAND_BYTES = 64
SHORTEST_WINDOW_SECONDS = 0.5
"""Of a running process the kernel shows CPU time in hundredths of a second, at its end all of it: what was used in a
moment is not known."""


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
        self._window_start = self._last = (sender.start_seconds, 0.0)

    def write(self, sample: TreeSample) -> Sample:
        """Return one sample; sizes of a command that has ended already are left out."""
        sender, is_alive = self._sender, sample.processes > 0
        values = {
            "job_id": sender.slurm.job_id or 0,
            "pid": sender.pid,
            "cpus": self._percent(sample),
            "threads": float(sample.threads) if is_alive else None,
            "mem": float(sample.resident_bytes) if is_alive else None,
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

    def _percent(self, sample: TreeSample) -> float | None:
        """Return the use in percent of a core since the previous sample; since an earlier one if that was just now."""
        shortest = min(SHORTEST_WINDOW_SECONDS, self._sender.interval_seconds / 2)
        if sample.time_seconds - self._last[0] >= shortest:
            self._window_start = self._last
        self._last = (sample.time_seconds, sample.cpu_seconds)
        start_seconds, cpu_seconds = self._window_start
        elapsed = sample.time_seconds - start_seconds
        return round(100 * max(0.0, sample.cpu_seconds - cpu_seconds) / elapsed, 1) if elapsed > 0 else None


def cut_bytes(text: str) -> str:
    """Cut a text to what the endpoint takes, and make it valid UTF-8."""
    return text.encode("utf-8", "replace")[:COMMAND_BYTES].decode("utf-8", "ignore")


def _float(number: int | None) -> float | None:
    return None if number is None else float(number)
