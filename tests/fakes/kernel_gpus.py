# SPDX-License-Identifier: Apache-2.0
"""Write the files of a node with GPUs of AMD or Intel, as the kernel's documentation describes them.

Documentation/gpu/drm-usage-stats.rst, Documentation/gpu/amdgpu/, Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon,
drivers/gpu/drm/amd/amdkfd/kfd_process.c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30
KFD_NUMBER = 50_000
"""Number of the first GPU in the KFD, which gives GPUs numbers of its own."""


@dataclass
class KernelGpus:
    """Be a /sys and a /proc below a folder; any file may be written again."""

    root: Path

    @property
    def sysfs(self) -> Path:
        return self.root / "sys"

    @property
    def procfs(self) -> Path:
        return self.root / "proc"

    def add(self, number: int, driver: str, **files: object) -> str:
        """Add the GPU with render node 128 + number; return its PCI address."""
        pdev = f"0000:{0xC1 + number:02x}:00.0"
        folder = self.sysfs / "devices/pci0000:c0" / pdev
        modules = self.sysfs / "bus/pci/drivers" / driver
        modules.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True)
        (folder / "driver").symlink_to(modules)
        node = self.sysfs / f"class/drm/renderD{128 + number}"
        node.mkdir(parents=True)
        (node / "device").symlink_to(folder)
        self.set(pdev, **files)
        return pdev

    def set(self, pdev: str, **files: object) -> None:
        """Write files of a GPU; those of its sensors begin with ``hwmon_``."""
        folder = self.sysfs / "devices/pci0000:c0" / pdev
        for name, content in files.items():
            is_sensor = name.startswith("hwmon_")
            file = folder / "hwmon/hwmon3" / name.removeprefix("hwmon_") if is_sensor else folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{content}\n")

    def add_amd(self, number: int, **files: object) -> str:
        pdev = self.add(number, "amdgpu", device="0x740f", unique_id=f"{0xABCD0 + number:016x}", **files)
        node = self.sysfs / f"class/kfd/kfd/topology/nodes/{number + 1}"
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(f"{KFD_NUMBER + number}\n")
        (node / "properties").write_text(f"cpu_cores_count 0\ndrm_render_minor {128 + number}\ndomain 0\n")
        return pdev

    def add_kfd_process(self, pid: int, **bytes_by_gpu: int) -> None:
        """Add a process of ROCm; ``gpu0=4096`` is what it holds of the first GPU."""
        folder = self.sysfs / f"class/kfd/kfd/proc/{pid}"
        folder.mkdir(parents=True, exist_ok=True)
        for name, size in bytes_by_gpu.items():
            (folder / f"vram_{KFD_NUMBER + int(name.removeprefix('gpu'))}").write_text(f"{size}\n")

    def add_descriptor(self, pid: int, number: int, target: str, text: str = "") -> None:
        """Add an open file of a process, with the lines that its file system adds."""
        folder = self.procfs / str(pid)
        for name in ("fd", "fdinfo"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        link = folder / f"fd/{number}"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        (folder / f"fdinfo/{number}").write_text(f"pos:\t0\nflags:\t02100002\nmnt_id:\t25\nino:\t520\n{text}")

    def add_client(self, pid: int, pdev: str, lines: Mapping[str, object], *, number: int = 5, client: int = 7) -> None:
        """Add a client of a GPU; ``lines`` are what the driver adds, without ``drm-``."""
        driver = (self.sysfs / "devices/pci0000:c0" / pdev / "driver").resolve().name
        known = {"driver": driver, "pdev": pdev, "client-id": client, **lines}
        text = "".join(f"drm-{name}:\t{value}\n" for name, value in known.items())
        self.add_descriptor(pid, number, "/dev/dri/renderD128", text)
