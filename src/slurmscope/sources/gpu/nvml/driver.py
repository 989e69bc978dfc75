# SPDX-License-Identifier: Apache-2.0
"""Name the signs of NVIDIA's driver; importing this imports nothing else about GPUs."""

from __future__ import annotations

from pathlib import Path

DRIVER_SIGNS = (Path("/proc/driver/nvidia"), Path("/dev/nvidiactl"))
"""One of these exists where the driver is loaded."""
