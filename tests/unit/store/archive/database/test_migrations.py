# SPDX-License-Identifier: Apache-2.0
"""An older archive in a file is migrated, by itself or by the command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.store.archive.archive import SqlArchive
from slurmscope.store.archive.opening import open_archive
from slurmscope.store.archive.settings import ArchiveSettings
from tests.promises.migration import MigrationPromises


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[SqlArchive]:
    with closing(open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db", timeout=60.0))) as archive:
        yield archive


class TestSqlite(MigrationPromises):
    """Run every test of the promises on a file."""
