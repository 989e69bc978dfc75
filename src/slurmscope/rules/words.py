# SPDX-License-Identifier: Apache-2.0
"""Write numbers into sentences, and computed lines for a job script."""

from __future__ import annotations

import math

_MIB = 1 << 20
_GIB = 1 << 30
_MINUTE, _HOUR, _DAY = 60, 3600, 86400

MEMORY_RESERVE = 1.2
"""Ask for a fifth more than was needed: peaks differ from run to run."""

_MEMORY_FLOOR_BYTES = 512 * _MIB
_MEMORY_STEPS = ((4 * _GIB, 256 * _MIB), (32 * _GIB, _GIB), (128 * _GIB, 4 * _GIB), (512 * _GIB, 16 * _GIB))
_TIME_STEPS = ((_HOUR, 10 * _MINUTE), (8 * _HOUR, 30 * _MINUTE), (2 * _DAY, _HOUR))


def say_bytes(amount: float) -> str:
    """Write a size with a binary unit: 819 MiB, 1.5 GiB."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = 0
    while power < len(units) - 1 and amount >= 1023.5:
        amount /= 1024
        power += 1
    return f"{say_number(amount)} {units[power]}"


def say_seconds(seconds: float) -> str:
    """Write a duration with its two largest units: 2 h 5 min."""
    whole = round(seconds)
    unit = _HOUR if whole >= _DAY else _MINUTE if whole >= _HOUR else 1
    whole = round(whole / unit) * unit
    parts = (
        (whole // _DAY, "d"), (whole % _DAY // _HOUR, "h"), (whole % _HOUR // _MINUTE, "min"), (whole % _MINUTE, "s")
    )  # fmt: skip
    return " ".join(f"{count:,} {name}" for count, name in parts if count) or "0 s"


def say_percent(ratio: float) -> str:
    """Write a share as a percentage; little is not called nothing."""
    percent = 100 * ratio
    if 0 < percent < 0.1:
        return "under 0.1 %"
    return f"{percent:.1f} %" if 0 < percent < 10 else f"{percent:,.0f} %"


def say_number(amount: float) -> str:
    """Write a number with one decimal where that tells something: 2.0, 37.5, 1,234."""
    if amount >= 100 or (amount == round(amount) and amount >= 10):
        return f"{amount:,.0f}"
    return f"{amount:.1f}"


def say_count(count: float, one: str, many: str = "") -> str:
    """Write how many of something: 1 node, 2 nodes."""
    return f"{count:,.0f} {one if round(count) == 1 else many or one + 's'}"


def memory_to_ask_bytes(needed_bytes: float, reserve: float = MEMORY_RESERVE) -> int:
    """Return what to ask for: a reserve above the need, rounded up to a figure people would write."""
    wanted = max(needed_bytes * reserve, _MEMORY_FLOOR_BYTES)
    step = next((step for bound, step in _MEMORY_STEPS if wanted <= bound), 64 * _GIB)
    return math.ceil(wanted / step) * step


def memory_line(size_bytes: int, option: str = "mem") -> str:
    """Write the line that asks for memory; Slurm takes whole numbers only."""
    text = f"{size_bytes // _GIB}G" if size_bytes % _GIB == 0 else f"{math.ceil(size_bytes / _MIB)}M"
    return f"#SBATCH --{option}={text}"


def time_to_ask_seconds(needed_seconds: float, reserve: float = 1.5) -> int:
    """Return what to ask for: half as much again, rounded up."""
    wanted = max(needed_seconds * reserve, 10 * _MINUTE)
    step = next((step for bound, step in _TIME_STEPS if wanted <= bound), 6 * _HOUR)
    return math.ceil(wanted / step) * step


def time_line(seconds: int) -> str:
    """Write the line that asks for time, as days-hours:minutes:seconds."""
    days = f"{seconds // _DAY}-" if seconds >= _DAY else ""
    return f"#SBATCH --time={days}{seconds % _DAY // _HOUR:02}:{seconds % _HOUR // _MINUTE:02}:00"
