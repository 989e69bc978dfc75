# SPDX-License-Identifier: Apache-2.0
"""Build the stand-in for NVIDIA's library, and tell it what to answer."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.requirements import require_program

SOURCE = Path(__file__).parent / "fake_nvml.c"
MACHINES = Path(__file__).parents[2] / "fixtures/gpus"
"""Simulated machines, in files that the library answers from."""
GIBIBYTE = 1 << 30


def build_library(folder: Path) -> Path:
    """Compile it under the name that the real one has."""
    argv = [
        require_program("gcc"),
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        "libnvidia-ml.so.1",
        str(SOURCE),
    ]
    subprocess.run(argv, cwd=folder, check=True, timeout=120)
    return folder


@dataclass
class FakeNvml:
    """Be a driver with as many GPUs as were added; the file it answers from can be changed at any time."""

    library: Path
    folder: Path
    lines: list[str] = field(default_factory=list)
    gpus: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """Give what a process needs to find this library instead of the real one."""
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.library),
            "FAKE_NVML": str(self.folder / "scenario"),
            "FAKE_NVML_LOG": str(self.folder / "calls"),
        }

    def say(self, *lines: str) -> None:
        """Add lines to the scenario; later ones win."""
        self.lines += lines
        scenario = self.folder / "scenario.new"
        scenario.write_text("\n".join([f"count {self.gpus}", *self.lines]) + "\n", encoding="latin-1")
        scenario.rename(self.folder / "scenario")

    def play(self, machine: str) -> None:
        """Become the machine of a file; the one of before is gone."""
        text = (MACHINES / f"{machine}.txt").read_text(encoding="ascii")
        self.lines = [line for line in text.splitlines() if not line.startswith("#")]
        self.gpus = next(int(line.removeprefix("count ")) for line in self.lines if line.startswith("count "))
        self.say()

    def take_back(self, beginning: str) -> None:
        """Remove lines from the scenario."""
        self.lines = [line for line in self.lines if not line.startswith(beginning)]
        self.say()

    def add_gpus(self, number: int, *, minors: tuple[int, ...] = ()) -> None:
        """Add GPUs of 80 GiB that tell everything; no two give the same value anywhere."""
        for gpu in range(self.gpus, self.gpus + number):
            self.gpus += 1
            minor = minors[gpu] if minors else gpu
            used = (gpu + 1) * GIBIBYTE
            self.say(
                f"set nvmlDeviceGetUUID@{gpu} GPU-{gpu:08x}-0000-4000-8000-000000000000",
                f"set nvmlDeviceGetName@{gpu} NVIDIA Fake {gpu}",
                f"set nvmlDeviceGetMinorNumber@{gpu} {minor}",
                f"set nvmlDeviceGetPciInfo@{gpu} 00000000:{gpu:02X}:00.0",
                f"set nvmlDeviceGetUtilizationRates@{gpu} {10 + gpu} {20 + gpu}",
                f"set nvmlDeviceGetMemoryInfo_v2@{gpu} {80 * GIBIBYTE} {GIBIBYTE} {79 * GIBIBYTE - used} {used}",
                f"set nvmlDeviceGetMemoryInfo@{gpu} {80 * GIBIBYTE} {79 * GIBIBYTE - used} {GIBIBYTE + used}",
                f"set nvmlDeviceGetPowerUsage@{gpu} {70_500 + gpu}",
                f"set nvmlDeviceGetTotalEnergyConsumption@{gpu} {9_000_000_500 + gpu}",
                f"set nvmlDeviceGetTemperatureV@{gpu} {40 + gpu}",
                f"set nvmlDeviceGetTemperature@{gpu} {40 + gpu}",
            )

    def cut(self, gpu: int, instances: int) -> None:
        """Cut a GPU into MIG instances, which tell their memory and processes only."""
        self.say(f"mig {gpu} {instances}", f"code nvmlDeviceGetUtilizationRates@{gpu} 3")
        for number in range(instances):
            device = 100 * (gpu + 1) + number
            self.say(
                f"set nvmlDeviceGetUUID@{device} MIG-{gpu:08x}-0000-4000-8000-{number:012x}",
                f"set nvmlDeviceGetName@{device} NVIDIA Fake {gpu} MIG 1g.10gb",
                f"set nvmlDeviceGetGpuInstanceId@{device} {7 + number}",
                f"set nvmlDeviceGetComputeInstanceId@{device} 0",
                f"set nvmlDeviceGetMemoryInfo_v2@{device} {10 * GIBIBYTE} 0 {9 * GIBIBYTE} {GIBIBYTE}",
            )

    def calls(self) -> Counter[str]:
        """Count the calls so far, by function and device."""
        try:
            return Counter((self.folder / "calls").read_text(encoding="ascii").splitlines())
        except FileNotFoundError:
            return Counter()
