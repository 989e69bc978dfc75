# SPDX-License-Identifier: Apache-2.0
"""Jobs are read of the clusters that have views; a cluster without views hides no other."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from slurmscope.accounting import database
from slurmscope.accounting.database import DatabaseAccounting
from slurmscope.accounting.server import TRES_VIEW, job_view, step_view
from slurmscope.accounting.settings import ALL_CLUSTERS, AccountingSettings
from slurmscope.core.errors import ServerError


class FakeSession:
    """Answer as a database with the views of some clusters, in which no job matches, and record what was read."""

    name = "slurm_acct_db on localhost"

    def __init__(self, clusters: Sequence[str]) -> None:
        self.clusters = clusters
        self.read: list[str] = []

    def query(self, statement: str, values: Sequence[object] = ()) -> tuple[tuple[str, ...], ...]:
        if "information_schema.tables" in statement:
            views = (view for cluster in self.clusters for view in (job_view(cluster), step_view(cluster)))
            return tuple((name,) for name in (TRES_VIEW, *views))
        self.read += [cluster for cluster in ("alpha", "beta") if job_view(cluster) in statement]
        return ()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    session = FakeSession(("alpha",))

    @contextmanager
    def open_session(_settings: AccountingSettings) -> Iterator[FakeSession]:
        yield session

    monkeypatch.setattr(database, "open_session", open_session)
    return session


def test_cluster_without_views_hides_no_other(session: FakeSession, caplog: pytest.LogCaptureFixture) -> None:
    accounting = DatabaseAccounting(AccountingSettings(clusters=("alpha", "beta")))

    with caplog.at_level(logging.WARNING):
        assert () == accounting.read_jobs([5000])

    assert {"alpha"} == set(session.read)
    assert ("alpha", "beta") == accounting.clusters()
    assert [True] == ["no job views of beta" in str(vars(record)) for record in caplog.records]
    session.clusters = ("alpha", "beta")
    accounting.read_jobs([5000])
    assert {"alpha", "beta"} == set(session.read)


@pytest.mark.parametrize(("readable", "clusters"), [(("alpha",), ("beta",)), ((), ("alpha", "beta")), ((), ("all",))])
def test_error_is_raised_if_no_chosen_cluster_has_views(
    session: FakeSession, readable: tuple[str, ...], clusters: tuple[str, ...]
) -> None:
    assert "all" == ALL_CLUSTERS
    session.clusters = readable

    with pytest.raises(ServerError, match="no job views"):
        DatabaseAccounting(AccountingSettings(clusters=clusters)).read_jobs([1])


def test_all_clusters_are_those_with_views(session: FakeSession) -> None:
    session.clusters = ("alpha", "beta")
    accounting = DatabaseAccounting(AccountingSettings(clusters=(ALL_CLUSTERS,)))

    assert ("alpha", "beta") == accounting.clusters()
    accounting.read_jobs([1])
    assert {"alpha", "beta"} == set(session.read)
