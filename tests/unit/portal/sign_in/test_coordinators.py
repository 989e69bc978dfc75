# SPDX-License-Identifier: Apache-2.0
"""Coordinators are those of the clusters that accounting knows; while these are unknown, of none."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.archive.interface import JobFilter
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.clock import Clock
from slurmscope.core.errors import CommandTimedOut
from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.sign_in.coordinators import FAILED_SECONDS, KEPT_SECONDS, CoordinatedClusters
from slurmscope.reports.find import KnownClusters
from slurmscope.reports.sources import open_archive
from tests.fakes.reporting import FakeAccounting
from tests.fakes.reports import make_record, make_report


def test_only_cluster_of_the_archive_is_coordinated_while_accounting_cannot_be_read() -> None:
    accounting = FakeAccounting(error=CommandTimedOut(["sacctmgr"], "was killed"))
    assert frozenset({"alpha"}) == CoordinatedClusters(accounting.clusters, lambda: ("alpha",))()


@pytest.mark.parametrize("error", [None, CommandTimedOut(["sacctmgr"], "was killed")], ids=["known", "not known"])
def test_cluster_that_the_archive_gets_is_hidden_before_it_is_noticed(
    tmp_path: Path, error: CommandTimedOut | None
) -> None:
    with closing(open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as archive:
        archive.save([make_report(make_record(1, cluster="alpha", user="bob", account="physics"))])
        clock = Clock(monotonic=lambda: 0.0)
        accounting = FakeAccounting([make_record(cluster="alpha")], error=error)
        find = CoordinatedClusters(accounting.clusters, KnownClusters(archive, clock), clock)

        def seen() -> list[tuple[str, int]]:
            cora = Viewer(name="cora", coordinates=frozenset({"physics"}), coordinated_clusters=find())
            return [(row.cluster, row.job_id) for row in archive.list_jobs(cora, JobFilter()).rows]

        assert [("alpha", 1)] == seen()
        archive.save([make_report(make_record(2, cluster="gamma", user="bob", account="physics"))])
        assert [("alpha", 1)] == seen()


@pytest.mark.parametrize("archived", [(), ("beta",)], ids=["not read yet", "another site's"])
def test_only_cluster_is_not_taken_for_that_of_accounting(archived: tuple[str, ...]) -> None:
    accounting = FakeAccounting([make_record(cluster="alpha")])
    assert frozenset({"alpha"}) == CoordinatedClusters(accounting.clusters, lambda: archived)()


def test_clusters_of_accounting_are_coordinated_and_none_while_it_cannot_be_read() -> None:
    seconds = [0.0]
    accounting = FakeAccounting([make_record(cluster="alpha")])
    find = CoordinatedClusters(accounting.clusters, lambda: ("alpha", "beta"), Clock(monotonic=lambda: seconds[0]))
    assert frozenset({"alpha"}) == find()
    accounting.error = CommandTimedOut(["sacctmgr"], "was killed")
    assert frozenset({"alpha"}) == find()
    seconds[0] += KEPT_SECONDS
    assert frozenset() == find()
    accounting.error = None
    assert frozenset() == find()
    seconds[0] += FAILED_SECONDS
    assert frozenset({"alpha"}) == find()
