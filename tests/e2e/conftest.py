# SPDX-License-Identifier: Apache-2.0
"""Share one real Slurm cluster among all end-to-end tests of a worker."""

from collections.abc import Generator, Iterator

import pytest

from lab import LabUnavailable, SlurmLab, temporary_lab
from tests.requirements import refuse

LONGEST_FILES = (
    "test_resubmission_kinds",
    "test_archive_servers",
    "test_appearance",
    "test_short_jobs",
    "test_profile",
    "test_portal_lab",
    "test_up",
    "test_completions",
    "test_profile_influxdb",
    "test_demo_portal",
    "test_lab",
    "test_node_jobs",
    "test_install_docs",
    "test_tracing",
    "test_cgroup2_guest",
    "test_discovery",
    "test_two_clusters",
    "test_several_portals",
    "test_remote_write",
    "test_doctor",
    "test_failures",
    "test_backends",
    "test_many_jobs",
    "test_accounting",
    "test_attacks_private_data",
    "test_private_data",
    "test_migrate",
    "test_scale",
    "test_controller_gone",
    "test_dashboards",
    "test_job_reports",
    "test_demo",
    "test_process_groups",
)
"""Files of this folder and of tests/browser that take longest, in this order; all others follow in random order."""


@pytest.fixture(scope="session")
def slurm_lab() -> Iterator[SlurmLab]:
    """Give the worker's cluster, as the test before has left it."""
    with temporary_lab() as lab:
        yield lab


@pytest.fixture
def clean_lab(slurm_lab: SlurmLab) -> SlurmLab:
    """Give the worker's cluster with all daemons alive, no jobs and idle nodes."""
    slurm_lab.reset()
    return slurm_lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the lab, and start with the files that take longest, so that workers end together."""
    for item in items:
        if "slurm_lab" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.lab)
    items.sort(key=lambda item: _rank(item.path.stem))


def _rank(module: str) -> int:
    return LONGEST_FILES.index(module) if module in LONGEST_FILES else len(LONGEST_FILES)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """Turn a missing requirement of a fixture into a skip."""
    try:
        return (yield)
    except LabUnavailable as error:
        refuse(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Turn a missing requirement of a test into a skip."""
    try:
        return (yield)
    except LabUnavailable as error:
        refuse(str(error))
