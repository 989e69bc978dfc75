# SPDX-License-Identifier: Apache-2.0
"""The chores run tests that exist, and ``make check`` those of modules without I/O."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.lowest import TESTS
from scripts.pure import pure_files, pure_tests

ROOT = Path(__file__).parents[2]


def test_every_path_in_the_makefile_exists() -> None:
    paths = re.findall(r"\btests/[\w/.]+", (ROOT / "Makefile").read_text(encoding="utf-8"))

    assert "tests/unit" in paths
    assert [] == [path for path in (*paths, *TESTS) if not (ROOT / path).exists()]


def test_modules_without_io_exist() -> None:
    files = pure_files()

    assert "src/slurmscope/metrics/write.py" in files
    assert [] == [file for file in files if not (ROOT / file).is_file()]


def test_test_that_reaches_io_by_itself_or_by_a_conftest_file_is_not_pure() -> None:
    tests = pure_tests()

    assert "tests/unit/metrics/test_write.py" in tests
    # It imports subprocess by slurmscope.slurm.command.
    assert "tests/unit/slurm/test_command.py" not in tests
    # Its module is pure, but the conftest file of its folder opens a portal.
    assert "tests/unit/portal/test_staff.py" not in tests
