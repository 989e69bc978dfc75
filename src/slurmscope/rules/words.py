# SPDX-License-Identifier: Apache-2.0
"""Write computed lines for a job script."""

from __future__ import annotations

import math

_MIB = 1 << 20
_GIB = 1 << 30
_MINUTE, _HOUR, _DAY = 60, 3600, 86400

MEMORY_RESERVE = 1.2
"""Ask for a fifth more than was needed: peaks differ from run to run."""

OOM_RESERVE = 1.5
"""Ask for half as much again as a job had that was killed: what it would have needed is not known."""

_MEMORY_FLOOR_BYTES = 512 * _MIB
_MEMORY_STEPS = ((4 * _GIB, 256 * _MIB), (32 * _GIB, _GIB), (128 * _GIB, 4 * _GIB), (512 * _GIB, 16 * _GIB))
_TIME_STEPS = ((_HOUR, 10 * _MINUTE), (8 * _HOUR, 30 * _MINUTE), (2 * _DAY, _HOUR))


def say_number(amount: float) -> str:
    """Write a number with one decimal where that tells something: 2.0, 37.5, 1,234."""
    if amount >= 100 or (amount == round(amount) and amount >= 10):
        return f"{amount:,.0f}"
    return f"{amount:.1f}"


def memory_to_ask_bytes(needed_bytes: float, reserve: float = MEMORY_RESERVE) -> int:
    """Return what to ask for: a reserve above the need, rounded up to a figure people would write."""
    wanted = max(needed_bytes * reserve, _MEMORY_FLOOR_BYTES)
    step = next((step for bound, step in _MEMORY_STEPS if wanted <= bound), 64 * _GIB)
    return math.ceil(wanted / step) * step


def memory_option(size_bytes: int, option: str = "mem") -> str:
    """Write the option that asks for memory; Slurm takes whole numbers only."""
    text = f"{size_bytes // _GIB}G" if size_bytes % _GIB == 0 else f"{math.ceil(size_bytes / _MIB)}M"
    return f"--{option}={text}"


def time_to_ask_seconds(needed_seconds: float, reserve: float = 1.5) -> int:
    """Return what to ask for: half as much again, rounded up."""
    wanted = max(needed_seconds * reserve, 10 * _MINUTE)
    step = next((step for bound, step in _TIME_STEPS if wanted <= bound), 6 * _HOUR)
    return math.ceil(wanted / step) * step


def time_line(seconds: int) -> str:
    """Write the line that asks for time, as days-hours:minutes:seconds."""
    days = f"{seconds // _DAY}-" if seconds >= _DAY else ""
    return f"#SBATCH --time={days}{seconds % _DAY // _HOUR:02}:{seconds % _HOUR // _MINUTE:02}:00"
