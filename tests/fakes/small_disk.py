# SPDX-License-Identifier: Apache-2.0
"""Run Python code on a small file system that only its process can see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MOUNT = 'mount -t tmpfs -o "size=$1k" none "$2" && exec "$3" -c "$4" "$2"'


def run_on_small_disk(folder: Path, size_kb: int, code: str) -> bytes:
    """Mount a real file system on the folder in a mount namespace, run the code with the folder, return its output."""
    own_mounts = ["unshare", "--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        own_mounts += ["--user", "--map-root-user"]
    probe = subprocess.run([*own_mounts, "true"], check=False, capture_output=True, timeout=60)
    if probe.returncode != 0:
        pytest.skip(f"no private mount namespace: {probe.stderr.decode().strip()}")
    argv = [*own_mounts, "sh", "-c", MOUNT, "sh", str(size_kb), str(folder), sys.executable, code]
    return subprocess.run(argv, check=True, capture_output=True, timeout=60, cwd=ROOT).stdout
