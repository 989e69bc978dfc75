# SPDX-License-Identifier: Apache-2.0
"""Hold the result of one check of ``slurmscope doctor``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Report whether one thing works, and what to do if it does not."""

    name: str
    is_good: bool
    message: str
    advice: str = ""
