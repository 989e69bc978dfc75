# SPDX-License-Identifier: Apache-2.0
"""An archive in a file passes the contract tests, and says in one sentence what is wrong with the file."""

from __future__ import annotations

from tests.contracts.archive import ArchiveContract
from tests.contracts.sums import SumContract


class TestSqlite(ArchiveContract, SumContract):
    """Run the contract tests."""
