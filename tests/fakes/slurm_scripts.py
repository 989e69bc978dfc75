# SPDX-License-Identifier: Apache-2.0
"""Write shell scripts that stand for commands of Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def make_commands(folder: Path, scripts: Mapping[str, str]) -> Path:
    """Write each script under the name of its command, and return the folder."""
    folder.mkdir()
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return folder
