# SPDX-License-Identifier: Apache-2.0
"""An archive in a file keeps its promises, and says in one sentence what is wrong with the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.store.archive.archive import SqlArchive
from slurmscope.store.archive.opening import open_archive
from slurmscope.store.archive.settings import ArchiveSettings
from tests.promises.archive import ArchivePromises
from tests.promises.sums import SumPromises


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[SqlArchive]:
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db", timeout=60.0))
    yield archive
    archive.close()


class TestSqlite(ArchivePromises, SumPromises):
    """Run every test of the promises."""
