# SPDX-License-Identifier: Apache-2.0
"""Give commands an archive to read, and commands of Slurm that say little."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.fakes.archive_file import write_archive
from tests.fakes.slurm_scripts import make_commands


@pytest.fixture(scope="session")
def shared_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an archive once; nobody writes to it."""
    path = tmp_path_factory.mktemp("archive") / "archive.db"
    write_archive(path, int(time.time()))
    return path


@pytest.fixture
def archive(shared_archive: Path, tmp_path: Path) -> Path:
    """Return a copy that a test may write to."""
    return Path(shutil.copy(shared_archive, tmp_path / "archive.db"))


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """Make commands of a Slurm that knows no jobs, and one account with coordinators."""
    return make_commands(tmp_path / "slurm", {"sacct": "", "sacctmgr": "echo 'physics|grace,ada'; echo 'optics|'"})
