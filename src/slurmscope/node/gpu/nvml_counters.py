# SPDX-License-Identifier: Apache-2.0
"""Count what GPUs do over time, seconds at work and bytes moved, and read what the driver counts of their health.

The driver's gauge of utilization looks at a fraction of a second. A load that is busy for 0.6 s of every second reads
as 0 for ever where the scrape interval is a multiple of its period. So the child process that calls the driver counts
on its own clock, and a reading gets totals. By device, the first of these sources that works:

- ``gpm``: hardware counters between two samples (Hopper and later): exact, and by kind of work;
- ``samples``: the mean of the driver's buffer of samples of the gauge, which spans seconds;
- ``gauge``: the gauge at each count;
- ``none``: the driver counts nothing for the device.

Newer headers have counters "since reboot" (GPM 248 to 260). They are not used: they have neither busy time nor memory,
which need the means between two samples anyway, and as each sample follows the last one, no time is missed.

Runs in the child process alone, and imports little.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from slurmscope.core.units import MIB

COUNT_SECONDS = 4.382
"""Seconds between two counts. Hardware counters miss nothing; the buffer of an H200 holds 14 s of samples.

No multiple of it is near a whole second: a gauge that is read at the period of a load sees one phase of it for ever.
"""
REACH_SECONDS = 15.0
"""What a gauge or the buffer of its samples says of the time before: of more than this, nothing is known."""
SHORTEST_SECONDS = 0.2
"""Hardware counters of a shorter time are too rough."""
MOST_PIDS = 256

# Of nvml.h: metrics in percent of the time between two samples, and in MiB per second.
_SHARES = {
    1: "busy", 2: "sm_active", 4: "integer", 5: "tensor_active", 6: "dfma", 7: "hmma", 8: "dmma", 9: "imma",
    10: "dram_active", 11: "fp64", 12: "fp32", 13: "fp16",
}  # fmt: skip
_RATES = {20: "pcie_transmitted", 21: "pcie_received", 60: "nvlink_received", 61: "nvlink_transmitted"}
_METRICS = (*_SHARES, *_RATES)
_UTILIZATION_SAMPLES = 1

# "Not available" of 64-bit values, which some fields give with a code of success.
NO_VALUE = 1 << 63
LINKS_SECONDS = 300.0
"""How long the error ratios of links are kept: they move slowly, and to read them takes a value for each link."""

# Fields of nvml.h: nanoseconds for which a reason held clocks down, since the driver was loaded.
_THROTTLES = {
    74: "power_cap", 75: "thermal", 77: "board_limit", 79: "reliability", 269: "software_thermal",
    270: "hardware_thermal", 271: "power_brake",
}  # fmt: skip
# Fields of nvml.h: errors since the driver was loaded, rows of memory that were replaced, and what the driver asks for.
_HEALTH = {
    3: "ecc_corrected", 4: "ecc_uncorrected", 38: "nvlink_crc_flit", 45: "nvlink_crc_data", 52: "nvlink_replay",
    59: "nvlink_recovery", 94: "pcie_replays", 142: "remapped_corrected", 143: "remapped_uncorrected",
    144: "remap_pending", 145: "remap_failed", 160: "nvlink_ecc", 230: "recovery_action",
}  # fmt: skip
# Fields of nvml.h that each link has: a mantissa of four bits above a negative power of ten in eight.
_LINK_RATIOS = {220: "link_ratio_effective", 222: "link_ratio_symbol"}
_MOST_LINKS = 18
# Flags of two bits in the health mask of a fabric: less bandwidth, and broken routes. A state of 0 is no fabric.
_FABRIC_FLAGS, _TRUE, _FALSE = (0, 4), 1, 2

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
        self._has_gauge = not self._is_instance and call("nvmlDeviceGetUtilizationRates", handle) is not None
        if self._gpm is None and self._has_gauge:
            self._read_samples()  # those from before are not ours

    def count(self, now: float, pids: Collection[int], *, is_due: bool = True) -> None:
        """Add what happened since the last count; ``pids`` have a context on the device now.

        A count that is not due is one for a reading. Those come at even intervals: a gauge is not read for them.
        """
        seconds = now - self._counted_at
        if seconds < SHORTEST_SECONDS or (not is_due and self._seconds and self.source == "gauge"):
            return
        found = self._read()
        if found is None:  # nothing new yet: the next count covers this time too
            return
        self._counted_at = now
        shares, rates = found
        if "busy" not in shares:  # what was counted since is not known
            return
        seconds = seconds if self._gpm is not None else min(seconds, REACH_SECONDS)
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
        if self._gpm is not None:
            return "gpm"
        return "samples" if self._seen_micros else "gauge" if self._has_gauge else "none"

    def _read(self) -> tuple[dict[str, float], dict[str, float]] | None:
        """Return shares of the time since the last count, and bytes per second; None if there is nothing new."""
        found: tuple[dict[str, float], dict[str, float]] | None = None
        use = self._call("nvmlDeviceGetUtilizationRates", self._handle) if self._has_gauge else None
        if self._gpm is not None:
            found = self._gpm.read()
        elif use is not None:
            busy = self._read_samples() if self._seen_micros else use.gpu / 100
            found = None if busy is None else ({"busy": busy}, {})
        if found is not None and use is not None:
            found[0]["memory_busy"] = use.memory / 100
        return found

    def _read_samples(self) -> float | None:
        """Return the mean of the samples since the last call.

        Time stamps are the driver's: they only say which samples are new. None if there are none.
        """
        found = self._call("nvmlDeviceGetSamples", self._handle, _UTILIZATION_SAMPLES, self._seen_micros)
        new = [sample for sample in (found[1] if found else ()) if sample.timeStamp > self._seen_micros]
        if not new:
            self._seen_micros = self._newest_micros()
            return None
        self._seen_micros = max(sample.timeStamp for sample in new)
        return float(sum(sample.sampleValue.uiVal for sample in new)) / len(new) / 100

    def _newest_micros(self) -> int:
        """Return the last time stamp in the buffer, which is an earlier one after the driver's clock was set back."""
        found = self._call("nvmlDeviceGetSamples", self._handle, _UTILIZATION_SAMPLES, 0)
        return max((sample.timeStamp for sample in found[1]), default=0) if found else self._seen_micros

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
        # Without any the clock may have been set back: then the next call takes all that there are.
        self._seen_process_micros = max((sample.timeStamp for sample in found), default=0)
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

    def read(self) -> tuple[dict[str, float], dict[str, float]] | None:
        """Return shares and rates, as far as they are known; None without a new sample."""
        if self._take(self._spare) is None:
            return None
        values = self._compare(self._last, self._spare)
        self._last, self._spare = self._spare, self._last
        shares = {name: values[number] / 100 for number, name in _SHARES.items() if number in values}
        rates = {name: values[number] * MIB for number, name in _RATES.items() if number in values}
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


def read_throttles(call: Call, handle: Any) -> dict[str, int]:
    """Return the nanoseconds for which each reason held clocks down."""
    return {_THROTTLES[number]: value for number, value in _fields(call, handle, _THROTTLES)}


class Health:
    """Read errors, the fabric and the links; the latter less often."""

    def __init__(self, nvml: Any, call: Call) -> None:
        self._nvml = nvml
        self._call = call
        self._links: dict[str, tuple[float, dict[str, float]]] = {}

    def read(self, uuid: str, handle: Any) -> dict[str, float]:
        errors = {_HEALTH[number]: value for number, value in _fields(self._call, handle, _HEALTH)}
        return errors | self._fabric(handle) | self._read_links(uuid, handle)

    def _read_links(self, uuid: str, handle: Any) -> dict[str, float]:
        """Return the highest error ratios of all links."""
        read_at, highest = self._links.get(uuid, (None, {}))
        if read_at is None or time.monotonic() - read_at >= LINKS_SECONDS:
            highest = {}
            wanted = [(number, link) for number in _LINK_RATIOS for link in range(_MOST_LINKS)]
            for number, value in _fields(self._call, handle, wanted):
                ratio = (value >> 8 & 0xF) * 10.0 ** -(value & 0xFF)
                if ratio <= 1:  # another is no error ratio
                    highest[_LINK_RATIOS[number]] = max(ratio, highest.get(_LINK_RATIOS[number], 0.0))
            self._links[uuid] = time.monotonic(), highest
        return highest

    def _fabric(self, handle: Any) -> dict[str, int]:
        """Read the state of the fabric that NVSwitches make, and whether it is worse than it should be."""
        make = getattr(self._nvml, "c_nvmlGpuFabricInfo_v2_t", None)
        info = make() if make is not None else None
        if info is None or self._call("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info)) is None:
            return {}
        known = [flag for shift in _FABRIC_FLAGS if (flag := info.healthMask >> shift & 3) in {_TRUE, _FALSE}]
        degraded = {"fabric_degraded": int(_TRUE in known)} if known else {}
        return {"fabric_state": info.state, **degraded} if info.state else {}


def _fields(call: Call, handle: Any, wanted: Iterable[int | tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the fields that have a value, and these."""
    for field in call("nvmlDeviceGetFieldValues", handle, list(wanted)) or ():
        if field.nvmlReturn == 0 and field.value.ullVal < NO_VALUE:
            yield field.fieldId, field.value.ullVal
