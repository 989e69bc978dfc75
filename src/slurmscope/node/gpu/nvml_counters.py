# SPDX-License-Identifier: Apache-2.0
"""Count what GPUs do over time: seconds at work, bytes moved.

The driver's gauge of utilization looks at a fraction of a second. A load that is busy for 0.6 s of every second reads
as 0 for ever where the scrape interval is a multiple of its period. So the child process that calls the driver counts
on its own clock, and a reading gets totals. By device, the first of these sources that works:

- ``gpm``: hardware counters between two samples (Hopper and later): exact, and by kind of work;
- ``samples``: the mean of the driver's buffer of samples of the gauge, which spans seconds;
- ``gauge``: the gauge at each count.

Runs in the child process alone, and imports little.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

COUNT_SECONDS = 4.0
"""Seconds between two counts. Hardware counters miss nothing; the buffer of an H200 holds 14 s of samples."""
SHORTEST_SECONDS = 0.2
"""Hardware counters of a shorter time are too rough."""
MOST_PIDS = 256

_MEBIBYTE = 1 << 20
# Of nvml.h: metrics in percent of the time between two samples, and in MiB per second.
_SHARES = {
    1: "busy", 2: "sm_active", 4: "integer", 5: "tensor_active", 6: "dfma", 7: "hmma", 8: "dmma", 9: "imma",
    10: "dram_active", 11: "fp64", 12: "fp32", 13: "fp16",
}  # fmt: skip
_RATES = {20: "pcie_transmitted", 21: "pcie_received", 60: "nvlink_received", 61: "nvlink_transmitted"}
_METRICS = (*_SHARES, *_RATES)
_UTILIZATION_SAMPLES = 1

Call = Callable[..., Any]
"""Calls a function of the library by name; None where the device, the driver or the binding does not support it."""


class DeviceCounters:
    """Count one GPU or MIG instance from now on."""

    def __init__(self, nvml: Any, call: Call, handle: Any, now: float, *, gpu_instance: int | None = None) -> None:
        """Take the device; for a MIG instance the GPU that it is part of, and its number there."""
        self._call = call
        self._handle = handle
        self._counted_at = now
        self._seen_micros = 0
        self._seen_process_micros = 0
        self._totals: defaultdict[str, float] = defaultdict(float)
        self._seconds = 0.0
        self._by_pid: dict[int, float] = {}
        self._gpm = _open_gpm(nvml, call, handle, gpu_instance)
        self._is_instance = gpu_instance is not None
        if self._gpm is None and not self._is_instance:
            self._read_samples()  # those from before are not ours

    def count(self, now: float, pids: Collection[int]) -> None:
        """Add what happened since the last count; ``pids`` have a context on the device now."""
        seconds = now - self._counted_at
        if seconds < SHORTEST_SECONDS:
            return
        shares, rates = self._read()
        if not shares:  # nothing new yet: the next count covers this time too
            return
        self._counted_at = now
        self._seconds += seconds
        for name, share in shares.items():
            self._totals[name] += min(max(share, 0.0), 1.0) * seconds
        for name, rate in rates.items():
            self._totals[name] += max(rate, 0.0) * seconds
        self._attribute(min(max(shares["busy"], 0.0), 1.0) * seconds, pids)

    def describe(self) -> dict[str, object]:
        """Return the totals so far, the seconds that they cover, and the busy seconds of each process."""
        totals = {name: round(total, 6) for name, total in self._totals.items()}
        processes = [[pid, round(seconds, 6)] for pid, seconds in self._by_pid.items()]
        return {"source": self.source, "seconds": round(self._seconds, 6), "totals": totals, "processes": processes}

    def close(self) -> None:
        """Give the driver its memory back."""
        if self._gpm is not None:
            self._gpm.close()

    @property
    def source(self) -> str:
        return "gpm" if self._gpm is not None else "samples" if self._seen_micros else "gauge"

    def _read(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return shares of the time since the last count, and bytes per second; both empty if nothing is known."""
        shares: dict[str, float] = {}
        rates: dict[str, float] = {}
        use = None if self._is_instance else self._call("nvmlDeviceGetUtilizationRates", self._handle)
        if self._gpm is not None:
            shares, rates = self._gpm.read()
        elif use is not None:
            busy = self._read_samples() if self._seen_micros else use.gpu / 100
            shares = {} if busy is None else {"busy": busy}
        if shares and use is not None:
            shares["memory_busy"] = use.memory / 100
        return (shares, rates) if "busy" in shares else ({}, {})

    def _read_samples(self) -> float | None:
        """Return the mean of the samples since the last call.

        Time stamps are the driver's: they only say which samples are new. None if there are none.
        """
        found = self._call("nvmlDeviceGetSamples", self._handle, _UTILIZATION_SAMPLES, self._seen_micros)
        new = [sample for sample in (found[1] if found else ()) if sample.timeStamp > self._seen_micros]
        if not new:
            return None
        self._seen_micros = max(sample.timeStamp for sample in new)
        return float(sum(sample.sampleValue.uiVal for sample in new)) / len(new) / 100

    def _attribute(self, busy_seconds: float, pids: Collection[int]) -> None:
        """Split the time among the processes; by the driver's own shares, where several have a context."""
        weights = dict.fromkeys(pids, 1.0) if len(pids) == 1 else self._read_process_shares(pids)
        whole = sum(weights.values())
        self._by_pid = {pid: self._by_pid.get(pid, 0.0) for pid in list(pids)[:MOST_PIDS]}
        for pid in self._by_pid.keys() & weights.keys():
            self._by_pid[pid] += busy_seconds * weights[pid] / whole if whole else 0.0

    def _read_process_shares(self, pids: Collection[int]) -> dict[int, float]:
        if not pids:
            return {}
        found = self._call("nvmlDeviceGetProcessUtilization", self._handle, self._seen_process_micros) or ()
        weights: defaultdict[int, float] = defaultdict(float)
        for sample in found:
            if sample.timeStamp > self._seen_process_micros:
                weights[sample.pid] += sample.smUtil
        self._seen_process_micros = max([self._seen_process_micros, *(sample.timeStamp for sample in found)])
        return weights


class _Gpm:
    """Read hardware counters as means since the last reading."""

    def __init__(self, nvml: Any, call: Call, take: Callable[[Any], Any], samples: tuple[Any, Any]) -> None:
        self._call = call
        self._take = take
        self._last, self._spare = samples
        self._wanted = nvml.c_nvmlGpmMetricsGet_t()
        self._wanted.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._wanted.numMetrics = len(_METRICS)
        for place, number in enumerate(_METRICS):
            self._wanted.metrics[place].metricId = number

    def read(self) -> tuple[dict[str, float], dict[str, float]]:
        if self._take(self._spare) is None:
            return {}, {}
        values = self._compare(self._last, self._spare)
        self._last, self._spare = self._spare, self._last
        shares = {name: values[number] / 100 for number, name in _SHARES.items() if number in values}
        rates = {name: values[number] * _MEBIBYTE for number, name in _RATES.items() if number in values}
        return shares, rates

    def close(self) -> None:
        for sample in (self._last, self._spare):
            self._call("nvmlGpmSampleFree", sample)

    def _compare(self, first: Any, second: Any) -> dict[int, float]:
        self._wanted.sample1, self._wanted.sample2 = first, second
        if self._call("nvmlGpmMetricsGet", self._wanted) is None:
            return {}
        metrics = [self._wanted.metrics[place] for place in range(len(_METRICS))]
        # Not a number: the counters were reset in between.
        return {one.metricId: one.value for one in metrics if one.nvmlReturn == 0 and math.isfinite(one.value)}


def _open_gpm(nvml: Any, call: Call, handle: Any, gpu_instance: int | None) -> _Gpm | None:
    """Return what reads hardware counters; None where the device has none, or they cannot be read."""
    supported = call("nvmlGpmQueryDeviceSupport", handle)
    if supported is None or not supported.isSupportedDevice:
        return None

    def take(sample: Any) -> Any:
        if gpu_instance is None:
            return call("nvmlGpmSampleGet", handle, sample)
        return call("nvmlGpmMigSampleGet", handle, gpu_instance, sample)

    samples = call("nvmlGpmSampleAlloc"), call("nvmlGpmSampleAlloc")
    if None in samples:
        return None
    gpm = _Gpm(nvml, call, take, samples)
    if take(samples[0]) is None:
        gpm.close()
        return None
    return gpm
