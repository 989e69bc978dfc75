# SPDX-License-Identifier: Apache-2.0
"""A job ID that several clusters have is ambiguous for viewers who may see several of the jobs, and for no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.archive.interface import NEWEST_FIRST, JobFilter, JobPage, ListOrder, PagePosition
from slurmscope.core.clock import Clock
from slurmscope.core.errors import AmbiguousName, CommandTimedOut
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.viewer import EVERYTHING, Viewer
from slurmscope.reports import local_jobs
from slurmscope.reports.find import KEPT_SECONDS, KnownClusters, ReportFinder
from slurmscope.reports.make import ReportMaker
from tests.fakes.archive import FakeArchive
from tests.fakes.reporting import FakeAccounting
from tests.fakes.reports import START, make_record, make_report
from tests.fakes.two_clusters import make_job_and_array, make_two_clusters

PATIENCE_SECONDS = 30.0
FEDERATED = (2 << 26) + 7
ADA, BOB, EVE = (Viewer(name=name) for name in ("ada", "bob", "eve"))


def make_finder(archive: FakeArchive, accounting: FakeAccounting) -> ReportFinder:
    return ReportFinder(archive, accounting, ReportMaker(None), clusters=archive.clusters)


@pytest.fixture
def archive() -> FakeArchive:
    return FakeArchive(make_two_clusters())


@pytest.fixture
def accounting() -> FakeAccounting:
    return FakeAccounting()


def test_archived_job_is_found_by_its_cluster(archive: FakeArchive, accounting: FakeAccounting) -> None:
    finder = make_finder(archive, accounting)
    for cluster in ("alpha", "beta"):
        report = finder.report(ADA, "4711", cluster)
        assert report is not None
        assert cluster == report.record.cluster
    assert finder.report(ADA, "4711", "gamma") is None
    assert finder.report(ADA, "4712", "beta") is None


def test_id_of_two_jobs_is_ambiguous_for_those_who_may_see_both(
    archive: FakeArchive, accounting: FakeAccounting
) -> None:
    finder = make_finder(archive, accounting)
    with pytest.raises(AmbiguousName, match="job 4711 exists in several clusters: alpha, beta") as raised:
        finder.report(ADA, "4711")
    assert ("job", "4711", ("alpha", "beta")) == (raised.value.kind, raised.value.name, raised.value.clusters)
    for viewer, cluster in ((ADA, "alpha"), (BOB, "beta")):
        report = finder.report(viewer, "4712")
        assert report is not None
        assert cluster == report.record.cluster
    assert finder.report(EVE, "4711") is None
    with pytest.raises(AmbiguousName):
        finder.report(EVERYTHING, "4712")


def test_job_that_has_just_started_in_another_cluster_is_one_of_two(
    archive: FakeArchive, accounting: FakeAccounting
) -> None:
    accounting.records.append(make_record(4713, cluster="alpha", state="RUNNING", end_seconds=None))
    finder = make_finder(archive, accounting)
    with pytest.raises(AmbiguousName):
        finder.report(ADA, "4713")
    running, ended = (finder.report(ADA, "4713", cluster) for cluster in ("alpha", "beta"))
    assert running is not None
    assert ended is not None
    assert ("RUNNING", "COMPLETED") == (running.record.state, ended.record.state)


@pytest.mark.parametrize("is_job_archived", [True, False])
@pytest.mark.parametrize("is_array_archived", [True, False])
def test_job_and_array_of_another_cluster_are_ambiguous(is_job_archived: bool, is_array_archived: bool) -> None:
    job, *tasks = make_job_and_array()
    # The archive knows both clusters by other jobs.
    archive, accounting = FakeArchive(make_two_clusters()), FakeAccounting()
    for reports, is_archived in (([job], is_job_archived), (tasks, is_array_archived)):
        if is_archived:
            archive.save(reports)
        else:
            accounting.records += [replace(report.record, state="RUNNING", end_seconds=None) for report in reports]
    finder = make_finder(archive, accounting)
    with pytest.raises(AmbiguousName, match="job 6000 exists in several clusters: alpha, beta"):
        finder.report(ADA, "6000")
    found = finder.report(ADA, "6000", "alpha")
    assert found is not None
    assert "plain-on-alpha" == found.record.name
    assert finder.report(ADA, "6000", "beta") is None


@pytest.mark.parametrize("is_archived", [True, False])
def test_array_of_another_user_does_not_make_an_id_ambiguous(is_archived: bool) -> None:
    job, *tasks = make_job_and_array()
    foreign = [replace(task.record, user="bob", account="b") for task in tasks]
    archive = FakeArchive([*make_two_clusters(), job, *(map(make_report, foreign) if is_archived else ())])
    accounting = FakeAccounting([] if is_archived else foreign)
    finder = make_finder(archive, accounting)
    report = finder.report(ADA, "6000")
    assert report is not None
    assert "alpha" == report.record.cluster
    with pytest.raises(AmbiguousName):
        finder.report(EVERYTHING, "6000")


def test_arrays_are_not_looked_for_while_there_is_one_cluster(accounting: FakeAccounting) -> None:
    class ListingFails(FakeArchive):
        def list_jobs(
            self,
            viewer: Viewer,
            wanted: JobFilter,
            *,
            after: PagePosition | None = None,
            limit: int = 50,
            order: ListOrder = NEWEST_FIRST,
        ) -> JobPage:
            raise AssertionError("this is a query too many")

    archive = ListingFails([make_report(make_record(6000, cluster="alpha"))])
    assert make_finder(archive, accounting).report(ADA, "6000") is not None
    archive.save([make_report(make_record(6000, cluster="beta", user="bob", account="b"))])
    with pytest.raises(AssertionError):
        make_finder(archive, accounting).report(ADA, "6000")


def test_running_job_of_another_user_does_not_make_an_id_ambiguous(
    archive: FakeArchive, accounting: FakeAccounting
) -> None:
    accounting.records.append(make_record(4713, cluster="alpha", user="bob", account="b", end_seconds=None))
    report = make_finder(archive, accounting).report(ADA, "4713")
    assert report is not None
    assert "beta" == report.record.cluster


def test_running_jobs_of_two_clusters_are_told_apart(archive: FakeArchive, accounting: FakeAccounting) -> None:
    accounting.records += [
        make_record(5000, cluster=cluster, name=cluster, state="RUNNING", end_seconds=None)
        for cluster in ("alpha", "beta")
    ]
    finder = make_finder(archive, accounting)
    for cluster in ("alpha", "beta"):
        report = finder.report(ADA, "5000", cluster)
        assert report is not None
        assert cluster == report.record.name
    with pytest.raises(AmbiguousName):
        finder.report(ADA, "5000")


def test_revoked_copy_of_a_federated_job_does_not_make_its_id_ambiguous(
    archive: FakeArchive, accounting: FakeAccounting
) -> None:
    accounting.records += [
        # 4713 is archived of beta. Slurm submits a federated job to all clusters, and one of them runs it.
        make_record(4713, cluster="alpha", state="REVOKED", start_seconds=None, end_seconds=None),
        make_record(5000, cluster="alpha", state="REVOKED", start_seconds=None, end_seconds=None),
        make_record(5000, cluster="beta", state="RUNNING", end_seconds=None),
        make_record(5001, cluster="alpha", state="REVOKED", start_seconds=None, end_seconds=None),
    ]
    finder = make_finder(archive, accounting)
    found = {
        (shown_id, cluster): finder.report(ADA, shown_id, cluster)
        for shown_id, cluster in (("4713", ""), ("5000", ""), ("5000", "alpha"), ("5001", ""))
    }
    assert {
        ("4713", ""): ("beta", "COMPLETED"),
        ("5000", ""): ("beta", "RUNNING"),
        ("5000", "alpha"): ("alpha", "REVOKED"),
        ("5001", ""): ("alpha", "REVOKED"),
    } == {key: (report.record.cluster, report.record.state) for key, report in found.items() if report}


def requeue(submit_seconds: int, **changed: object) -> JobRecord:
    """Make a run of a federated job, which may have been requeued to another cluster."""
    return make_record(
        FEDERATED, submit_seconds=START + submit_seconds, start_seconds=START + submit_seconds, **changed
    )


@pytest.mark.parametrize("state", ["NODE_FAIL", "REQUEUED"])
def test_newest_run_of_a_federated_job_is_shown_whichever_cluster_ran_it(
    archive: FakeArchive, accounting: FakeAccounting, state: str
) -> None:
    first, shown_id = requeue(0, cluster="alpha", state=state), str(FEDERATED)
    archive.save([make_report(first)])
    accounting.records += [first, requeue(600, cluster="beta", state="RUNNING", end_seconds=None)]

    def find(cluster: str = "") -> tuple[str, str]:
        report = make_finder(archive, accounting).report(ADA, shown_id, cluster)
        assert report is not None
        return report.record.cluster, report.record.state

    assert ("beta", "RUNNING") == find()
    assert ("alpha", state) == find("alpha")
    archive.save([make_report(requeue(600, cluster="beta"))])
    assert ("beta", "COMPLETED") == find()
    accounting.records.clear()
    assert ("beta", "COMPLETED") == find()
    # Requeued once more, to the first cluster.
    accounting.records.append(requeue(9000, cluster="alpha", state="RUNNING", end_seconds=None))
    assert ("alpha", "RUNNING") == find()


def test_revoked_copy_of_a_requeued_job_is_not_its_newest_run(archive: FakeArchive, accounting: FakeAccounting) -> None:
    """Slurm gives the copy the times of the run in another cluster."""
    first, revoked = requeue(0, cluster="alpha", state="NODE_FAIL"), requeue(600, cluster="alpha", state="REVOKED")
    run = requeue(600, cluster="beta", state="RUNNING", end_seconds=None)
    archive.save([make_report(first)])
    accounting.records += [revoked, run]

    def find() -> tuple[str, str]:
        report = make_finder(archive, accounting).report(ADA, str(FEDERATED))
        assert report is not None
        return report.record.cluster, report.record.state

    assert ("beta", "RUNNING") == find()
    archive.save([make_report(revoked), make_report(run)])
    accounting.records.clear()
    assert ("beta", "RUNNING") == find()


def test_new_cluster_without_archived_jobs_may_have_the_id_too(accounting: FakeAccounting) -> None:
    archive = FakeArchive([make_report(make_record(4713, cluster="alpha"))])
    accounting.records.append(make_record(4713, cluster="beta", state="RUNNING", end_seconds=None))
    finder = make_finder(archive, accounting)
    assert finder.report(ADA, "4713") is not None
    finder.know_clusters(lambda: ("alpha", "beta"))
    with pytest.raises(AmbiguousName):
        finder.report(ADA, "4713")


def test_equal_ids_of_two_federations_are_ambiguous(archive: FakeArchive, accounting: FakeAccounting) -> None:
    archive.save([make_report(requeue(0, cluster="alpha")), make_report(requeue(600, cluster="beta", user="bob"))])
    finder = make_finder(archive, accounting)
    with pytest.raises(AmbiguousName):
        finder.report(EVERYTHING, str(FEDERATED))


def test_ended_job_is_shown_without_a_warning_while_accounting_is_down(archive: FakeArchive) -> None:
    finder = make_finder(archive, FakeAccounting(error=CommandTimedOut(["sacct"], "was killed")))
    report = finder.report(ADA, "4713")
    assert report is not None
    assert not any("Accounting" in sentence for sentence in report.missing)


def test_clusters_are_read_again_after_a_minute_and_kept_while_the_archive_is_down() -> None:
    archive, seconds = FakeArchive([make_report(make_record(cluster="alpha"))]), [0.0]
    known = KnownClusters(archive, Clock(monotonic=lambda: seconds[0]))
    assert ("alpha",) == known()
    archive.save([make_report(make_record(cluster="beta"))])
    assert ("alpha",) == known()
    seconds[0] += KEPT_SECONDS
    assert ("alpha", "beta") == known()
    archive.is_down = True
    seconds[0] += KEPT_SECONDS
    assert ("alpha", "beta") == known()
    assert () == KnownClusters(None)()


def test_array_of_many_tasks_does_not_hide_an_older_one(
    archive: FakeArchive, accounting: FakeAccounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_jobs, "MAX_TASKS", 2)
    archive.save(
        [
            make_report(make_record(7000 + task, cluster=cluster, array_job_id=7000, submit_seconds=submit))
            for cluster, count, submit in (("alpha", 3, START), ("beta", 1, START - 9000))
            for task in range(count)
        ]
    )

    def find(cluster: str) -> list[str]:
        found = local_jobs.find_array(
            ADA, 7000, cluster=cluster, archive=archive, accounting=accounting, maker=ReportMaker(None)
        )
        return [report.record.cluster for report in found]

    with pytest.raises(AmbiguousName, match="array 7000 exists in several clusters: alpha, beta"):
        find("")
    assert (["alpha"] * 2, ["beta"]) == (find("alpha"), find("beta"))
