# SPDX-License-Identifier: Apache-2.0
"""``slurmscope nodes suspects`` lists nodes on which jobs fail more often than elsewhere."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.cli import slurmscope
from slurmscope.reports.sources import open_archive
from tests.fakes.reports import make_record, make_report


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return an archive of three nodes, on one of which every second job of four users failed yesterday."""
    submitted = int(time.time()) - 90_000
    url = f"sqlite:///{tmp_path}/archive.db"
    reports = [
        make_report(
            make_record(
                number + 1,
                user=f"user{number % 4}",
                nodes=(f"n{number % 3}",),
                state="FAILED" if number % 6 == 3 else "COMPLETED",
                submit_seconds=submitted,
            )
        )
        for number in range(150)
    ]
    with closing(open_archive(ArchiveSettings(url=url))) as archive:
        archive.save(reports)
    return url


def run(*arguments: str) -> str:
    done = CliRunner().invoke(slurmscope, ["nodes", "suspects", *arguments], catch_exceptions=False)
    assert 0 == done.exit_code
    return done.output


def test_node_is_named_with_its_numbers(url: str) -> None:
    head, line, *rest = run("--archive.url", url).splitlines()

    assert ["node", "verdict", "jobs", "failed", "expected", "users", "time", "GPU", "errors"] == head.split()
    assert ["n0", "suspect", "50", "25"] == line.split()[:4]
    assert [] == rest


def test_all_nodes_are_listed_on_request(url: str) -> None:
    assert ["n0", "n1", "n2"] == sorted(line.split()[0] for line in run("--archive.url", url, "--all").splitlines()[1:])
    assert {"n0": "suspect", "n1": "normal", "n2": "normal"} == {
        node["node"]: node["verdict"] for node in json.loads(run("--archive.url", url, "--json"))
    }


def test_no_jobs_are_too_little_data(url: str) -> None:
    assert "No node of 0 is suspect; of 0 there is too little data.\n" == run("--archive.url", url, "--days", "1")
