# SPDX-License-Identifier: Apache-2.0
"""Pages of another cluster show what its own controller reports, and never what another one does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.cluster.events import NodeEvent
from slurmscope.cluster.sinfo import Node, Nodes
from slurmscope.core.errors import AmbiguousName, ArchiveError, ServerBusy
from slurmscope.jobs.pending.blockers import QueueFacts
from slurmscope.jobs.pending.queue import PendingQueue
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.viewer import Viewer
from slurmscope.portal.app import make_app
from slurmscope.portal.cluster_now import ClusterNow, NodeProblem, PartitionNow, QueueRow
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import FakeBackend, FakeLive, OtherCluster, make_backend
from tests.fakes.reports import make_record, make_report
from tests.fakes.two_clusters import make_two_clusters
from tests.fakes.waiting import make_queue, make_waiting


def make_node(state: str, cpus: int) -> Node:
    return Node(
        name="n1", partitions=("batch",), base_state=state, state_text=state, flags=frozenset(), cpus_total=cpus,
        cpus_allocated=0, cpus_idle=cpus, memory_bytes=1 << 30, allocated_memory_bytes=0, weight=1,
        free_memory_bytes=None, load=None, gres=(), reason=None, reason_user=None, reason_since_seconds=None,
    )  # fmt: skip


BETA = ClusterNow(
    age_seconds=3.0,
    jobs_by_state={"RUNNING": 5},
    pending_by_reason={"Licenses": 77},
    nodes_by_state={"drained": 3},
    cpus=24,
    cpus_allocated=6,
    partitions=(PartitionNow(name="short", nodes=3, cpus=24, pending_jobs=77),),
    queue=(QueueRow(partition="short", reason="Licenses", jobs=77, cpus=154, gpus=0),),
    troubles=(NodeProblem(node="n1", state="drained", reason="fan of beta"),),
)


@pytest.fixture
def backend() -> FakeBackend:
    """Read alpha, the cluster of the portal's host, and beta; both have a node n1 and a pending job 50."""
    made = make_backend(make_two_clusters())
    made.waiting = make_queue(make_waiting(50, name="in-alpha"), make_waiting(51, priority=5000), cluster="alpha")
    made.facts = QueueFacts(nodes=Nodes(nodes=(make_node("idle", 16),)))
    made.others["beta"] = OtherCluster(
        now=BETA,
        waiting=make_queue(make_waiting(50, name="in-beta", reason="JobHeldUser"), cluster="beta"),
        facts=QueueFacts(nodes=Nodes(nodes=(make_node("drained", 8),))),
        events=(NodeEvent(1, 2, "DRAIN", "root(0)", "event of beta"),),
    )
    return made


def sign_in(backend: FakeBackend, name: str = "ada") -> PortalClient:
    return PortalClient(backend.make_app(), name)


def test_cluster_page_is_that_of_the_named_cluster(backend: FakeBackend) -> None:
    sue = sign_in(backend, "sue")
    alpha, beta = Page(sue.get("/cluster").text), Page(sue.get("/cluster?cluster=beta").text)
    assert sue.get("/cluster").text == sue.get("/cluster?cluster=alpha").text
    assert ("fan of beta" in beta.text, "fan of beta" in alpha.text) == (True, False)
    assert ("bad DIMM" in beta.text, "bad DIMM" in alpha.text) == (False, True)
    assert {"/cluster?cluster=alpha", "/cluster?cluster=beta", "/nodes/beta/n1"} <= set(beta.links)
    assert "/jobs?cluster=beta&state=PENDING&partition=short" in beta.links
    assert 'hx-get="/cluster/now?cluster=beta"' in beta.html
    # Charts of the last day are recorded of the cluster of the portal's host only.
    assert ("Last 24 hours" in beta.text, "Last 24 hours" in alpha.text) == (False, True)
    update = Page(sue.get("/cluster/now?cluster=beta").text).text
    assert "fan of beta" in update
    assert "fan of beta" not in Page(sign_in(backend).get("/cluster/now?cluster=beta").text).text
    for link in beta.links:
        if "format=csv" in link:
            assert "batch" not in sue.get(link).text
    rows = sue.get("/cluster?table=queue&format=json&cluster=beta").json()["rows"]
    assert [("short", 77)] == [(row["partition"], row["jobs"]) for row in rows]


def test_api_of_the_cluster_is_that_of_the_named_cluster(backend: FakeBackend) -> None:
    ada = sign_in(backend)
    assert {"drained": 3} == ada.get("/api/v2/cluster?cluster=beta").json()["nodes_by_state"]
    assert ada.get("/api/v2/cluster").json() == ada.get("/api/v2/cluster?cluster=alpha").json()
    assert "short" == ada.get("/api/v2/waiting-times?cluster=beta").json()["partition"]


def test_cluster_that_cannot_be_read_says_so_on_its_own_page(backend: FakeBackend) -> None:
    backend.others["beta"] = OtherCluster(now=ClusterNow(problems=("Slurm jobs of beta cannot be read: killed",)))
    ada = sign_in(backend)
    for path in ("/cluster?cluster=beta", "/cluster/now?cluster=beta"):
        page = Page(ada.get(path).text)
        assert "Slurm jobs of beta cannot be read: killed" in page.text
        assert "unknown" in page.text
    assert "beta cannot be read" not in Page(ada.get("/cluster").text).text
    # An archived cluster that is not read here, and a name that is none.
    for name in ("gamma", "%3Cb%3E"):
        assert "is not read." in Page(ada.get(f"/cluster?cluster={name}").text).text


def test_pending_job_is_explained_from_its_own_cluster(backend: FakeBackend) -> None:
    ada = sign_in(backend)
    assert 300 == ada.get("/jobs/50").status_code
    alpha, beta = Page(ada.get("/jobs/alpha/50").text).text, Page(ada.get("/jobs/beta/50").text).text
    assert ("in-alpha" in alpha, "2 of 2 pending jobs in batch" in alpha) == (True, True)
    assert ("in-beta" in beta, "held" in beta, "of 2 pending jobs" in beta) == (True, True, False)
    # What is free is that of the nodes of the same cluster: beta has none, because its node is drained.
    assert ("16 cores" in alpha, "16 cores" in beta) == (True, False)
    # On a login node of another cluster the command would release the job of the same ID there.
    assert "scontrol -M beta release 50" in beta
    answer = ada.get("/api/v2/jobs/beta/50/waiting").json()
    assert ("beta", "JobHeldUser", "in-beta") == (answer["cluster"], answer["reason"], answer["name"])
    assert "in-beta" in ada.get("/jobs/beta/50/waiting").text
    assert 404 == sign_in(backend, "bob").get("/jobs/beta/50").status_code


def test_federated_job_is_pending_in_several_clusters(backend: FakeBackend) -> None:
    shown_id = (1 << 26) + 5
    backend.waiting = make_queue(make_waiting(shown_id), cluster="alpha")
    backend.others["beta"].waiting = make_queue(make_waiting(shown_id), cluster="beta")
    assert 200 == sign_in(backend).get(f"/jobs/{shown_id}").status_code
    backend.others["beta"].waiting = make_queue(make_waiting(shown_id, user="bob"), cluster="beta")
    assert 300 == sign_in(backend, "sue").get(f"/jobs/{shown_id}").status_code


def test_federated_job_that_another_cluster_has_started_is_not_pending(backend: FakeBackend) -> None:
    shown_id = (1 << 26) + 5
    pending = make_waiting(shown_id, name="still-pending")
    backend.waiting = make_queue(pending, cluster="alpha")

    def add_run(state: str, submit_seconds: int) -> None:
        seconds = pending.submit_seconds + submit_seconds
        record = make_record(
            shown_id, cluster="beta", name="runs", state=state, submit_seconds=seconds, start_seconds=seconds + 1,
            end_seconds=None if state == "RUNNING" else seconds + 2,
        )  # fmt: skip
        backend.archive.save([make_report(record)])

    def shows_pending() -> bool:
        return "still-pending" in sign_in(backend).get(f"/jobs/{shown_id}").text

    # It was requeued after this run; a revoked copy never ran.
    add_run("NODE_FAIL", -600)
    assert shows_pending()
    add_run("REVOKED", 0)
    assert shows_pending()
    add_run("RUNNING", 0)
    assert not shows_pending()
    assert "runs" in sign_in(backend).get(f"/jobs/{shown_id}").text


def test_job_that_runs_in_another_cluster_and_is_not_archived_yet_is_a_choice(backend: FakeBackend) -> None:
    ada = sign_in(backend)
    assert 200 == ada.get("/jobs/51").status_code
    backend.live["51"] = make_report(make_record(51, cluster="beta", state="RUNNING", end_seconds=None))
    answer = ada.get("/jobs/51")
    assert 300 == answer.status_code
    assert {"/jobs/alpha/51", "/jobs/beta/51"} <= set(Page(answer.text).links)
    assert 200 == ada.get("/jobs/alpha/51").status_code
    # A job that the viewer may not see is none.
    backend.live["51"] = make_report(make_record(51, cluster="beta", user="bob", account="chemistry"))
    assert 200 == ada.get("/jobs/51").status_code


@pytest.mark.parametrize("error", [ServerBusy("too many lookups"), ArchiveError("down")])
def test_pending_job_is_shown_while_accounting_cannot_be_read(
    backend: FakeBackend, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(viewer: Viewer, shown_id: str, cluster: str = "") -> JobReport | None:
        raise error

    monkeypatch.setattr(backend, "find_report", fail)
    assert 200 == sign_in(backend).get("/jobs/51").status_code


def test_choice_has_the_clusters_of_accounting_and_of_queues(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(viewer: Viewer, shown_id: str, cluster: str = "") -> JobReport | None:
        raise AmbiguousName("job", shown_id, ("beta", "gamma"))

    monkeypatch.setattr(backend, "find_report", fail)
    links = set(Page(sign_in(backend).get("/jobs/51").text).links)
    assert {"/jobs/alpha/51", "/jobs/beta/51", "/jobs/gamma/51"} <= links


def test_first_page_lists_pending_jobs_of_all_clusters(backend: FakeBackend) -> None:
    page = Page(sign_in(backend).get("/").text)
    assert {"/jobs/alpha/50", "/jobs/beta/50", "/cluster?cluster=beta"} <= set(page.links)
    assert "Pending 3 jobs" in page.text
    assert "51 train (alpha), 50 in-alpha (alpha)" in page.text
    assert "50 in-beta (beta)" in page.text


def test_pending_array_is_that_of_the_named_cluster(backend: FakeBackend) -> None:
    array = make_waiting(60, array_job_id=60, tasks=(range(3),), tasks_text="0-2", name="sweep-beta")
    backend.others["beta"].waiting = make_queue(array, cluster="beta")
    ada = sign_in(backend)
    assert "sweep-beta" in ada.get("/arrays/beta/60").text
    assert "sweep-beta" in ada.get("/arrays/60").text
    assert "cluster beta" in Page(ada.get("/jobs/60_1").text).text
    assert 404 == ada.get("/arrays/alpha/60").status_code


def test_node_shows_the_state_of_its_own_cluster(backend: FakeBackend) -> None:
    sue = sign_in(backend, "sue")
    assert 300 == sue.get("/nodes/n1").status_code
    states = {name: sue.get(f"/api/v2/nodes/{name}/n1").json() for name in ("alpha", "beta")}
    assert [("idle", 16), ("drained", 8)] == [(one["state"], one["cpus"]) for one in states.values()]
    assert "event of beta" in sue.get("/nodes/beta/n1").text
    assert "event of beta" not in sue.get("/nodes/alpha/n1").text
    backend.others["beta"] = replace(backend.others["beta"], facts=QueueFacts())
    assert "currently unknown" in sue.get("/nodes/beta/n1").text


def test_new_cluster_without_archived_jobs_is_named_in_links(backend: FakeBackend) -> None:
    alone = make_backend([report for report in make_two_clusters() if report.record.cluster == "alpha"])
    alone.waiting, alone.others = backend.waiting, backend.others
    page = Page(sign_in(alone, "sue").get("/cluster?cluster=beta").text)
    assert "/nodes/beta/n1" in page.links
    assert "drained" in sign_in(alone, "sue").get("/nodes/beta/n1").text


def test_no_cluster_is_taken_for_that_of_the_host_while_its_name_is_unknown(backend: FakeBackend) -> None:
    """The own controller was down when the portal started: all clusters are read by their names."""
    backend.others["alpha"] = OtherCluster(
        now=ClusterNow(partitions=(PartitionNow(name="other", nodes=1, cpus=8),)),
        waiting=make_queue(make_waiting(70, name="in-alpha"), cluster="alpha"),
        events=(NodeEvent(1, 2, "DRAIN", "root(0)", "event of alpha"),),
    )
    backend.others = {name: backend.others[name] for name in ("alpha", "beta")}
    backend.waiting, backend.events = None, (NodeEvent(1, 2, "DRAIN", "root(0)", "event of the host"),)
    sue, ada = sign_in(backend, "sue"), sign_in(backend)
    # The host's cluster has a node n1 with 16 cores, charts, and the partition batch.
    assert sue.get("/api/v2/nodes/alpha/n1").json()["state"] is None
    assert "event of alpha" in sue.get("/nodes/alpha/n1").text
    assert "event of the host" not in sue.get("/nodes/alpha/n1").text
    assert "16 cores" not in Page(ada.get("/jobs/alpha/70").text).text
    page = Page(sue.get("/cluster?cluster=alpha").text).text
    assert ("Last 24 hours" in page, "bad DIMM" in page) == (False, False)
    host = Page(sue.get("/cluster").text)
    assert ("bad DIMM" in host.text, "<h1>Cluster</h1>" in host.html) == (True, True)
    assert '<h2 id="now">Cluster</h2>' in ada.get("/").text
    assert ("", "") == tuple(ada.get("/api/v2/waiting-times").json()[name] for name in ("cluster", "partition"))


def test_node_is_looked_up_without_waiting_for_queues(backend: FakeBackend) -> None:
    read: list[str] = []

    class WatchedLive(FakeLive):
        def queue(self, cluster: str) -> PendingQueue | None:
            read.append(cluster)
            return None

    app = make_app(replace(backend.connect(), live=WatchedLive(backend)))
    assert 200 == PortalClient(app, "bob").get("/nodes/n9").status_code
    assert [] == read
