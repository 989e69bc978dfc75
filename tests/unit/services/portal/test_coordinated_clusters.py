# SPDX-License-Identifier: Apache-2.0
"""Coordinators are those of the clusters that accounting knows; while these are unknown, of none."""

from __future__ import annotations

import pytest

from slurmscope.errors import CommandTimedOut
from slurmscope.services.portal.coordinated_clusters import FAILED_SECONDS, KEPT_SECONDS, CoordinatedClusters
from slurmscope.services.runtime.clock import Clock
from tests.fakes.reporting import FakeAccounting
from tests.fakes.reports import make_record


def test_one_cluster_needs_no_distinction() -> None:
    accounting = FakeAccounting(error=CommandTimedOut(["sacctmgr"], "was killed"))
    assert CoordinatedClusters(accounting.clusters, lambda: ("alpha",))() is None


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
