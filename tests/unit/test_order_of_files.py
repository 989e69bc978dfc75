# SPDX-License-Identifier: Apache-2.0
"""The tests against real daemons start with their longest files, under the names that these have today."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import LONGEST_FILES

TESTS = Path(__file__).parents[1]


def test_longest_files_exist() -> None:
    names = {path.stem for folder in ("browser", "e2e") for path in (TESTS / folder).glob("test_*.py")}

    assert set() == set(LONGEST_FILES) - names
