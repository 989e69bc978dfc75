# SPDX-License-Identifier: Apache-2.0
"""An archive in a file, empty at first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.archive.sql_archive import SqlArchive
from tests.fakes.archive_file import open_at


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.db"


@pytest.fixture
def archive(path: Path) -> Iterator[SqlArchive]:
    with closing(open_at(path)) as archive:
        yield archive
