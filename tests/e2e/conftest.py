# SPDX-License-Identifier: Apache-2.0
"""Share one real Slurm cluster among all end-to-end tests of a session."""

import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from lab import LabUnavailable, SlurmLab

# With one of these set, a machine that cannot run the lab fails the tests instead of skipping them.
REQUIRING_VARIABLES = ("CI", "SLURMSCOPE_REQUIRE_LAB")


@pytest.fixture(scope="session")
def slurm_lab() -> Iterator[SlurmLab]:
    """Give the session's cluster, as the test before has left it."""
    # Not pytest's own temporary folder: that one is closed to the users whose jobs run here.
    lab = SlurmLab(Path(tempfile.mkdtemp(prefix="slurm-lab-")))
    try:
        lab.start()
        yield lab
    finally:
        lab.destroy()


@pytest.fixture
def clean_lab(slurm_lab: SlurmLab) -> SlurmLab:
    """Give the session's cluster with all daemons alive, no jobs and idle nodes."""
    slurm_lab.reset()
    return slurm_lab


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of the lab, and keep them in one worker under ``--dist loadgroup``."""
    for item in items:
        if "slurm_lab" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.lab)
            if config.pluginmanager.hasplugin("xdist"):
                item.add_marker(pytest.mark.xdist_group("lab"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """Turn a missing requirement of a fixture into a skip."""
    try:
        return (yield)
    except LabUnavailable as error:
        _refuse(error)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Turn a missing requirement of a test into a skip."""
    try:
        return (yield)
    except LabUnavailable as error:
        _refuse(error)


def _refuse(error: LabUnavailable) -> NoReturn:
    if any(os.environ.get(name) for name in REQUIRING_VARIABLES):
        pytest.fail(str(error), pytrace=False)
    pytest.skip(str(error))
