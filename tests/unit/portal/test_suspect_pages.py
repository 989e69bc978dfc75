# SPDX-License-Identifier: Apache-2.0
"""Staff see on the pages of a node and of the cluster whether jobs fail there, and with how much data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.jobs.suspect_nodes import SUSPECT_CHANCE, WATCH_CHANCE
from tests.fakes.archive_backend import ArchiveBackend, open_archive_backend
from tests.fakes.browser import Page, open_portal
from tests.fakes.reports import make_record, make_report


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[ArchiveBackend]:
    """Keep 50 jobs of each of three nodes, of which every second one failed on n0, and three jobs of n9."""
    reports = [
        make_report(
            make_record(
                number + 1,
                user=f"user{number % 4}",
                nodes=("n9" if number > 149 else f"n{number % 3}",),
                state="FAILED" if number % 6 == 3 else "COMPLETED",
            )
        )
        for number in range(153)
    ]
    with open_archive_backend(tmp_path, reports) as found:
        yield found


def text(backend: ArchiveBackend, path: str, viewer: str = "root") -> str:
    return " ".join(Page(open_portal(backend, viewer).get(path).text).text.split())


def test_node_page_says_what_is_known_of_its_jobs(backend: ArchiveBackend) -> None:
    failed = "suspect: 25 of 50 jobs of 2 users failed; 0.3 expected from the same jobs elsewhere"

    # 25 of 50 fail; of each of the four names elsewhere none, with one run more at the usual 26 of 153.
    assert f"Jobs of the last 30 days: {failed}" in text(backend, "/nodes/n0")
    assert "Jobs of the last 30 days: normal: none of 50 jobs failed" in text(backend, "/nodes/n1")
    assert "too little data: 3 jobs of one node, 20 are needed" in text(backend, "/nodes/n9")


def test_cluster_page_names_suspect_nodes_to_staff_only(backend: ArchiveBackend) -> None:
    assert "Suspect nodes n0 : suspect: 25 of 50" in text(backend, "/cluster")
    assert "Suspect nodes" not in text(backend, "/cluster", "user1")
    assert "suspect" not in text(backend, "/nodes/n0", "user1")


def test_words_for_suspect_nodes_are_explained(backend: ArchiveBackend) -> None:
    page = text(backend, "/suspects")
    assert f"once in {1 / SUSPECT_CHANCE:.0f} periods. watch: once in {1 / WATCH_CHANCE:.0f}," in page
