# SPDX-License-Identifier: Apache-2.0
"""Read the energy meter of a node: the first of Cray's counters, ACPI's power meter, IPMI and RAPL that works.

Meters of the whole node are preferred to RAPL, which knows processors and memory only. IPMI may take 20 seconds: it is
read by a thread of its own, and readings use the last power it reported. Slurm's own counters are no source: its
plugins (acct_gather_energy) read the same sensors, and the agent runs no Slurm command.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from slurmscope.node.energy import Covers, EnergySplit, MeterReading, Moment, NodeEnergy
from slurmscope.node.gpu.records import Gpus
from slurmscope.node.job_use import NodeJobs
from slurmscope.node.kernel_files import read_bytes

MAX_BYTES = 4096
MAX_SENSORS = 64
IPMI_SECONDS = 30.0
"""Interval between two IPMI readings."""
IPMI_TIMEOUT_SECONDS = 25.0
IPMI_KEEP_SECONDS = 120.0
"""How long the last power is used; afterwards nothing is measured."""
KEEP_SECONDS = 300.0
"""How long a meter that cannot be read is waited for, and over what time a power is integrated."""
MAX_WATTS = 100_000.0
PACKAGE_WATTS = 500.0
"""What a processor may use all the time: after the range of its counter at this power, it may have wrapped twice."""
_IPMI = (("ipmitool", "dcmi", "power", "reading"), ("ipmi-dcmi", "--get-system-power-statistics"))
_IPMI_WATTS = re.compile(rb"(?:Instantaneous power reading|Current Power)\s*:\s*(\d{1,6})\s*Watts", re.IGNORECASE)
_NUMBER = re.compile(rb"\s*(\d{1,20})\b")
_TICKS_PER_SECOND = 100.0


@dataclass(frozen=True, slots=True)
class Sensor:
    """One counter in joules, or a power in watts; ``range_joules`` is where a counter starts again from 0."""

    joules: float | None = None
    watts: float | None = None
    range_joules: float | None = None


Sensors = Mapping[str, Sensor]


def read_cray(sysfs: Path) -> Sensors:
    """Read Cray's counters of the node and its parts, such as ``1234 J 1700000000 us``."""
    folder = sysfs / "cray/pm_counters"
    files = sorted(folder.glob("*energy"))[:MAX_SENSORS]
    found = {file.name.removesuffix("energy").rstrip("_") or "node": Sensor(joules=_number(file)) for file in files}
    return found if "node" in found and found["node"].joules is not None else {}


def read_hwmon(sysfs: Path) -> Sensors:
    """Read ACPI's power meters; of a superchip those of its modules, which include all others."""
    found: dict[str, Sensor] = {}
    for folder in sorted((sysfs / "class/hwmon").glob("hwmon*"))[:MAX_SENSORS]:
        watts = _number(folder / "power1_average", 1e-6)
        # Boards report 0 for a power that they do not know.
        if _text(folder / "name").strip() == b"power_meter" and watts is not None and 0 < watts <= MAX_WATTS:
            label = _text(folder / "power1_oem_info").decode("ascii", "replace").strip()
            found[label or folder.name] = Sensor(watts=watts)
    modules = {label: sensor for label, sensor in found.items() if label.startswith("Module Power")}
    return modules or found


def read_rapl(sysfs: Path) -> Sensors:
    """Read the counters of processors (``package-0``), their parts (``package-0/core``) and ``psys``."""
    found: dict[str, Sensor] = {}
    root = sysfs / "class/powercap"
    for zone in sorted(root.glob("intel-rapl:*"))[:MAX_SENSORS]:
        joules, size = _number(zone / "energy_uj", 1e-6), _number(zone / "max_energy_range_uj", 1e-6)
        name = _text(zone / "name").decode("ascii", "replace").strip()
        parent = zone.name.rpartition(":")[0]
        if ":" in parent:
            name = f"{_text(root / parent / 'name').decode('ascii', 'replace').strip()}/{name}"
        if joules is not None and name:
            found[name if name not in found else f"{name} {zone.name}"] = Sensor(joules=joules, range_joules=size)
    return found


def sum_rapl(rises: Mapping[str, float]) -> float:
    """Add up processors and memory; core and uncore are parts of a package, and psys includes packages."""
    parts = sum(rise for name, rise in rises.items() if _is_counted(name))
    # A psys that counts less than its processors does not work, as on boards without that sensor.
    return max(parts, sum(rise for name, rise in rises.items() if name.startswith("psys")))


def _is_counted(name: str) -> bool:
    top, _, part = name.partition("/")
    return (top.startswith("package") and part in {"", "dram"}) or top.startswith("dram")


def sum_cray(rises: Mapping[str, float]) -> float:
    return rises.get("node", 0.0)


def sum_all(rises: Mapping[str, float]) -> float:
    return math.fsum(rises.values())


class IpmiPower:
    """Query the board for its power in a thread, which ends with :meth:`close`."""

    def __init__(self, sysfs: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[float, float] | None = None
        self._stop = threading.Event()
        self._argv = _find_ipmi() if any((sysfs / "class/ipmi").glob("ipmi*")) else None
        self._is_awaited = self._argv is not None
        self._thread: threading.Thread | None = None

    def read(self, _: Path) -> Sensors:
        """Return the last power, unless it is too old; the first call starts the thread.

        Until it has an answer, or has none, the power is that of a node that was not read: another meter would be used
        for a moment only.
        """
        if self._argv and self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._argv,), name="ipmi", daemon=True)
            self._thread.start()
        last = self._last
        if last is None and self._is_awaited:
            return {"node": Sensor()}
        return {"node": Sensor(watts=last[1])} if last and self._clock() - last[0] <= IPMI_KEEP_SECONDS else {}

    def close(self) -> None:
        """End the thread after its current query."""
        self._stop.set()

    def _run(self, argv: tuple[str, ...]) -> None:
        while not self._stop.is_set():
            if (watts := parse_ipmi(read_output(argv, IPMI_TIMEOUT_SECONDS))) is not None:
                self._last = (self._clock(), watts)
            self._is_awaited = False
            self._stop.wait(IPMI_SECONDS)


def _find_ipmi() -> tuple[str, ...] | None:
    import shutil  # which loads three compressors

    return next((argv for argv in _IPMI if shutil.which(argv[0])), None)


def read_output(argv: Sequence[str], timeout_seconds: float) -> bytes:
    """Return the beginning of what a command prints until the timeout, and end it with all that it started."""
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError:
        return b""
    with process:
        try:
            return b"".join(_read_until(process.stdout, time.monotonic() + timeout_seconds))
        finally:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)


def _read_until(pipe: IO[bytes] | None, deadline: float) -> Iterator[bytes]:
    room, remaining = MAX_BYTES, deadline - time.monotonic()
    while pipe is not None and room > 0 and remaining > 0 and select.select([pipe], [], [], remaining)[0]:
        if not (chunk := os.read(pipe.fileno(), room)):
            return
        yield chunk
        room, remaining = room - len(chunk), deadline - time.monotonic()


def parse_ipmi(answer: bytes) -> float | None:
    """Return the power that ipmitool or FreeIPMI reported; None without one, or for 0, which boards report for it."""
    match = _IPMI_WATTS.search(answer)
    watts = float(match[1]) if match else 0.0
    return watts if 0 < watts <= MAX_WATTS else None


Read = Callable[[Path], Sensors]
Add = Callable[[Mapping[str, float]], float]


class EnergyMeter:
    """Count with the first source that works. Not thread-safe."""

    def __init__(self, sysfs: Path, ipmi: Read, clock: Callable[[], float] = time.monotonic) -> None:
        self._sysfs = sysfs
        self._clock = clock
        self._sources: tuple[tuple[str, Covers, Read, Add], ...] = (
            ("cray", Covers.NODE, read_cray, sum_cray),
            ("hwmon", Covers.NODE, read_hwmon, sum_all),
            ("ipmi", Covers.NODE, ipmi, sum_all),
            ("rapl", Covers.PROCESSORS, read_rapl, sum_rapl),
        )
        self._source = ""
        self._before: tuple[float, Sensors] | None = None
        self._domains: dict[str, float] = {}

    def read(self) -> MeterReading | None:
        """Return what was counted since the last reading; None if no source works."""
        for source, covers, read, add in self._sources:
            sensors = read(self._sysfs)
            if source == self._source and self._is_late(sensors):
                return MeterReading(
                    source=source, covers=covers, rise_joules=None, domains=dict(self._domains), is_late=True
                )
            if sensors:
                return self._count(source, covers, sensors, add)
        self._before = None
        return None

    def _is_late(self, sensors: Sensors) -> bool:
        """Return whether a sensor is missing that may be back at the next reading."""
        read_at, before = self._before or (-math.inf, {})
        is_missing = any(_is_known(sensor) and not _is_known(sensors.get(name)) for name, sensor in before.items())
        return is_missing and self._clock() - read_at <= KEEP_SECONDS

    def _count(self, source: str, covers: Covers, sensors: Sensors, add: Add) -> MeterReading:
        now = self._clock()
        if source != self._source:
            self._source, self._before, self._domains = source, None, {}
        before, self._before = self._before, (now, sensors)
        rise = None
        if before is not None:
            rises = dict(_rises(before[1], sensors, now - before[0]))
            rise = add(rises) if rises.keys() == before[1].keys() else None
            for name, joules in rises.items():
                self._domains[name] = self._domains.get(name, 0.0) + joules
        return MeterReading(source=source, covers=covers, rise_joules=rise, domains=dict(self._domains))


def _is_known(sensor: Sensor | None) -> bool:
    return sensor is not None and (sensor.joules is not None or sensor.watts is not None)


def _rises(before: Sensors, now: Sensors, elapsed: float) -> Iterator[tuple[str, float]]:
    """Yield what each sensor counted; nothing for one that is new, was set back to 0, or was not read for too long."""
    for name, sensor in now.items():
        was = before.get(name)
        if was is None:
            continue
        if sensor.watts is not None and was.watts is not None:
            if elapsed <= KEEP_SECONDS:
                yield name, elapsed * (sensor.watts + was.watts) / 2
        elif sensor.joules is not None and was.joules is not None:
            if sensor.range_joules and elapsed * PACKAGE_WATTS > sensor.range_joules:
                continue
            rise = sensor.joules - was.joules
            if rise < 0 and sensor.range_joules:
                rise += sensor.range_joules
            # More than any node can use is a counter that was set, not one that counts.
            if 0 <= rise <= MAX_WATTS * max(elapsed, 1.0):
                yield name, rise


class EnergyReader:
    """Read the meter with the jobs and GPUs of the same moment."""

    def __init__(
        self,
        root: Path,
        procfs: Path,
        jobs: Callable[[], NodeJobs],
        gpus: Callable[[], Gpus],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the host's root, its procfs, and functions that return the last known jobs and GPUs."""
        sysfs = root / "sys"
        self._ipmi = IpmiPower(sysfs, clock)
        self._meter = EnergyMeter(sysfs, self._ipmi.read, clock)
        self._split = EnergySplit()
        self._procfs, self._jobs, self._gpus, self._clock = procfs, jobs, gpus, clock
        self.close = self._ipmi.close

    def read(self) -> NodeEnergy | None:
        """Return the energy so far; None on a node without a meter."""
        jobs, gpus = self._jobs().jobs, self._gpus()
        cores, busy = parse_cpu_time(read_bytes(self._procfs / "stat", 256 * 1024))
        meter = self._meter.read()
        moment = Moment(
            at_seconds=self._clock(), meter=meter, jobs=jobs, gpus=gpus, cores=cores or 1, busy_seconds=busy
        )
        return self._split.add(moment)


def parse_cpu_time(stat: bytes) -> tuple[int, float | None]:
    """Return the number of logical CPUs in ``/proc/stat`` and the seconds for which they were busy."""
    lines = stat.split(b"\n")
    cores = sum(line.startswith(b"cpu") for line in lines[1:])
    try:
        ticks = [int(word) for word in lines[0].split()[1:9]]
    except ValueError:
        return cores, None
    # All but idle and iowait, the fourth and the fifth.
    return cores, (sum(ticks) - sum(ticks[3:5])) / _TICKS_PER_SECOND if ticks else None


def _number(file: Path, unit: float = 1.0) -> float | None:
    match = _NUMBER.match(_text(file))
    return int(match[1]) * unit if match else None


def _text(file: Path) -> bytes:
    return read_bytes(file, MAX_BYTES)
