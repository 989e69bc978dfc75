# SPDX-License-Identifier: Apache-2.0
"""The tables of an archive in a file are created once; those of another release are refused."""

from __future__ import annotations

from tests.contracts.schema_version import SchemaVersionContract


class TestSqlite(SchemaVersionContract):
    """Run the contract tests on a file."""
