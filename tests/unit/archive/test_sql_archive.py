# SPDX-License-Identifier: Apache-2.0
"""An archive in a file keeps its promises, and says in one sentence what is wrong with the file."""

from __future__ import annotations

from tests.promises.archive import ArchivePromises
from tests.promises.sums import SumPromises


class TestSqlite(ArchivePromises, SumPromises):
    """Run every test of the promises."""
