# SPDX-License-Identifier: Apache-2.0
"""An older archive in a file is migrated, by itself or by the command."""

from __future__ import annotations

from tests.promises.migration import MigrationPromises


class TestSqlite(MigrationPromises):
    """Run every test of the promises on a file."""
