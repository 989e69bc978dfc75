# SPDX-License-Identifier: Apache-2.0
"""Skip tests where a program that they need is missing; in CI they fail instead, so that no test is lost unnoticed."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

# With one of these set, tests that cannot run fail.
REQUIRING_VARIABLES = ("CI", "SLURMSCOPE_REQUIRE_LAB")
PACKAGES = {
    "curl": "curl",
    "dpkg-deb": "dpkg",
    "gcc": "gcc libc6-dev",
    "mmdebstrap": "mmdebstrap",
    "openssl": "openssl",
    "promtool": "prometheus",
    "shellcheck": "shellcheck",
    "rpmbuild": "rpm",
    "squeue": "slurm-client",
    "strace": "strace",
    "systemd-analyze": "systemd",
}
"""Debian packages of programs; ``scripts/setup test`` installs them."""


def require_program(name: str) -> str:
    """Return the path of a program that the test needs."""
    path = shutil.which(name)
    if path is None:
        refuse(f"{name} is not installed: apt-get install {PACKAGES[name]}")
    return path


def refuse(reason: str) -> NoReturn:
    """Skip the test, or let it fail in CI."""
    if any(os.environ.get(name) for name in REQUIRING_VARIABLES):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
