# SPDX-License-Identifier: Apache-2.0
"""Licences are counted as the configuration, the queue and the reservations have them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import ALICE, SlurmLab
from tests.e2e.scrape import scrape


@pytest.fixture
def shared_lab(clean_lab: SlurmLab) -> Iterator[SlurmLab]:
    """Give a cluster with a part of 50 licences that the database shares out."""
    resource = ("resource", "name=abaqus", "server=flex1")
    where = ("servertype=flexlm", "type=license", "count=50", "cluster=lab", "percentallowed=40")
    clean_lab.run("sacctmgr", "-i", "add", *resource, *where)
    clean_lab.wait_for(lambda: "abaqus@flex1" in clean_lab.run("scontrol", "show", "licenses"), what="the licence")
    yield clean_lab
    clean_lab.run("sacctmgr", "-i", "delete", *resource)


def test_counts_are_those_of_configuration_and_queue(clean_lab: SlurmLab) -> None:
    configured = next(row for row in clean_lab.run("scontrol", "show", "config").splitlines() if "Licenses " in row)
    job = clean_lab.submit(ALICE, "--licenses=matlab:3")
    clean_lab.wait_state(job, {"RUNNING"})

    served = scrape(clean_lab, "licenses")

    assert "matlab:10" == configured.partition("=")[2].strip()
    assert "matlab:3" == clean_lab.run("squeue", "--noheader", f"--jobs={job}", "--format=%W").strip()
    name = ("matlab",)
    assert (10, 3, 7) == tuple(served[f"slurm_licenses{end}"][name] for end in ("", "_used", "_free"))
    assert (10, 3, 7) == tuple(served[f"slurm_lic_{end}"][name] for end in ("total", "used", "free"))
    assert ("matlab", "no") in served["slurm_license_info"]


def test_licences_of_the_database_are_remote(shared_lab: SlurmLab) -> None:
    served = scrape(shared_lab, "licenses")

    assert ("abaqus@flex1", "yes") in served["slurm_license_info"]
    assert 20 == served["slurm_licenses"]["abaqus@flex1",]


def test_reservations_hold_licences(clean_lab: SlurmLab) -> None:
    name = "reservationname=two-matlabs"
    clean_lab.run(
        "scontrol", "create", "reservation", name, "starttime=now", "duration=10", "licenses=matlab:2",
        "accounts=physics", "flags=license_only",
    )  # fmt: skip
    try:
        served = scrape(clean_lab, "licenses")
    finally:
        clean_lab.run("scontrol", "delete", name)

    assert 2 == served["slurm_licenses_reserved"]["matlab",]
