# SPDX-License-Identifier: Apache-2.0
"""Read amounts of trackable resources as the controller counts them: bare numbers, memory in MiB."""

from __future__ import annotations

_MIB = 1024 * 1024


def unit_of(tres: str) -> int:
    """Return what one counted piece of a resource is in base units: 1 MiB of memory is 1,048,576 bytes.

    These three are the resources whose numbers Slurm prints with M, G or T where it prints units.
    """
    return _MIB if tres in ("mem", "gres/gpumem") or tres.startswith("bb/") else 1


def parse_minutes(text: str) -> dict[str, float]:
    """Read ``cpu=600,mem=4096`` (in minutes) into seconds; raises ValueError for anything else."""
    amounts: dict[str, float] = {}
    for entry in text.split(",") if text else ():
        name, _, minutes = entry.rpartition("=")
        if not name or not minutes.isascii() or not minutes.isdecimal() or len(minutes) > 20:
            raise ValueError(f"{entry!r} is not a trackable resource such as cpu=4")
        amounts[name] = int(minutes) * 60.0 * unit_of(name)
    return amounts
