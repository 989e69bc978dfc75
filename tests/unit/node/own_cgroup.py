# SPDX-License-Identifier: Apache-2.0
"""Make a real cgroup for a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CGROUP_V1 = Path("/sys/fs/cgroup/freezer")
CGROUP_V2 = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


@contextmanager
def own_cgroup(version: str) -> Iterator[Path]:
    """Yield a real cgroup, and remove it."""
    candidates = [CGROUP_V1] if version == "v1" else [c for c in CGROUP_V2 if (c / "cgroup.controllers").exists()]
    folder = Path("/nonexistent") if not candidates else candidates[0] / f"slurmscope-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup {version} can be made here: {error}")
    try:
        yield folder
    finally:
        for path, _, _ in os.walk(folder, topdown=False):
            Path(path).rmdir()
