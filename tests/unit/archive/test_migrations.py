# SPDX-License-Identifier: Apache-2.0
"""An older archive in a file is migrated, by itself or by the command."""

from __future__ import annotations

from tests.contracts.migration import MigrationContract


class TestSqlite(MigrationContract):
    """Run the contract tests on a file."""
