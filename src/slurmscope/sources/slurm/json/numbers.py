# SPDX-License-Identifier: Apache-2.0
"""Parse a number in every format that Slurm's JSON has had for it."""

from __future__ import annotations

import math

import msgspec

NO_VALUE = 0xFFFFFFFE
"""Where Slurm keeps 32 bits, this means "not set" and the next number "without a limit"."""


class OptionalJsonNumber(msgspec.Struct, frozen=True, gc=False):
    """Hold a number that may be not set, or without a limit."""

    set: bool | None = True
    infinite: bool | None = False
    number: int | float | None = None


JsonNumber = int | float | str | OptionalJsonNumber | None
"""A text, such as ``"Infinity"``, replaces a number when slurmrestd is configured to write complex values."""


def whole(value: JsonNumber) -> int | None:
    """Return a whole number of 0 or more; None for one that is not set, without a limit or not a number."""
    if isinstance(value, OptionalJsonNumber):
        value = value.number if value.set and not value.infinite else None
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    if isinstance(value, int) and 0 <= value < NO_VALUE:
        return value
    return None
