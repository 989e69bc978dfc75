# SPDX-License-Identifier: Apache-2.0
"""Decide which variables of a submission's environment are shown with their values.

Values may be passwords. Only those of Slurm and OpenMP are shown, and of these none whose name suggests a secret, such
as SLURM_JWT.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from slurmscope.model.job_script import EnvironmentVariable

MAX_VARIABLES = 1000
MAX_VALUE_CHARACTERS = 500

_SHOWN = re.compile(r"(?:SLURM|OMP)_[A-Z0-9_]+")
_SECRET = re.compile(r"JWT|TOKEN|KEY|SECRET|PASS|CRED|AUTH|SIGN|COOKIE", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


def show_environment(lines: Iterable[str]) -> tuple[EnvironmentVariable, ...]:
    """Return the variables of ``NAME=value`` lines in order of their names; other lines continue a value."""
    found: dict[str, EnvironmentVariable] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and _NAME.fullmatch(name):
            is_shown = _SHOWN.fullmatch(name) is not None and _SECRET.search(name) is None
            found[name] = EnvironmentVariable(name=name, value=value[:MAX_VALUE_CHARACTERS] if is_shown else None)
    return tuple(found[name] for name in sorted(found))[:MAX_VARIABLES]
