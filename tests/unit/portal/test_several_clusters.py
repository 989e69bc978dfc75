# SPDX-License-Identifier: Apache-2.0
"""Jobs, arrays and nodes with the same names in two clusters are distinguished, and none is revealed to others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from slurmscope.portal import jobs as jobs_module
from slurmscope.portal.settings import PortalSettings
from tests.fakes.archive_backend import ArchiveBackend, open_archive_backend
from tests.fakes.browser import Page, PortalClient
from tests.fakes.forms import post
from tests.fakes.portal_backend import VIEWERS, OtherCluster, make_backend
from tests.fakes.reports import START, make_record, make_report
from tests.fakes.two_clusters import make_job_and_array, make_two_clusters
from tests.fakes.waiting import make_queue, make_waiting

SUB_PAGES = (
    "", "/live", "/charts.json", "/charts/cpu.svg", "/charts/cpu.csv", "/nodes.csv", "/report.txt", "/report.json",
    "/report.html",
)  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveBackend]:
    """Keep jobs of two clusters in a real archive."""
    with open_archive_backend(tmp_path_factory.mktemp("clusters"), make_two_clusters()) as backend:
        yield backend


@pytest.fixture
def portal(stored: ArchiveBackend) -> ArchiveBackend:
    stored.fake = make_backend(())
    return stored


def find_token(html: str) -> str:
    return next(str(each["value"]) for each in Page(html).all("input") if each.get("name") == "csrf_token")


def sign_in(portal: ArchiveBackend, name: str = "ada") -> PortalClient:
    return PortalClient(portal.make_app(), name)


@pytest.mark.parametrize("page", SUB_PAGES)
def test_every_page_of_a_job_is_found_by_its_cluster(portal: ArchiveBackend, page: str) -> None:
    ada = sign_in(portal)
    alpha, beta = (ada.get(f"/jobs/{name}/4711{page}") for name in ("alpha", "beta"))
    assert [200, 200] == [alpha.status_code, beta.status_code]
    if page in {"", "/report.txt", "/report.json"}:
        assert "on-alpha" in alpha.text
        assert "on-beta" in beta.text
        assert "on-beta" not in alpha.text


@pytest.mark.parametrize("page", SUB_PAGES)
def test_short_address_of_two_jobs_offers_both(portal: ArchiveBackend, page: str) -> None:
    answer = sign_in(portal).get(f"/jobs/4711{page}?x=1")
    assert 300 == answer.status_code
    assert f"/jobs/alpha/4711{page}?x=1" in answer.text
    assert f"/jobs/beta/4711{page}?x=1" in answer.text


def test_page_of_choices_names_the_jobs(portal: ArchiveBackend) -> None:
    page = Page(sign_in(portal).get("/jobs/4711").text)
    assert "Job 4711 exists in 2 clusters." in page.text
    assert "on-alpha" in page.text
    assert "on-beta" in page.text


def test_api_answers_with_the_choices(portal: ArchiveBackend) -> None:
    answer = sign_in(portal).get("/api/v2/jobs/4711")
    assert (300, "application/json") == (answer.status_code, answer.headers["content-type"])
    assert {
        "error": "Job 4711 exists in 2 clusters. Choose one.",
        "choices": [
            {"cluster": "alpha", "url": "/api/v2/jobs/alpha/4711"},
            {"cluster": "beta", "url": "/api/v2/jobs/beta/4711"},
        ],
    } == answer.json()
    assert "on-beta" == sign_in(portal).get("/api/v2/jobs/beta/4711").json()["summary"]["record"]["name"]


def test_job_that_only_others_may_see_is_no_choice(portal: ArchiveBackend) -> None:
    ada, staff = sign_in(portal), sign_in(portal, "sue")
    assert 200 == ada.get("/jobs/4712").status_code
    assert "mine" in ada.get("/jobs/4712").text
    absent, foreign = ada.get("/jobs/gamma/4712"), ada.get("/jobs/beta/4712")
    assert [404, absent.content] == [foreign.status_code, foreign.content]
    assert 300 == staff.get("/jobs/4712").status_code
    assert [404] * 2 == [sign_in(portal, "eve").get(path).status_code for path in ("/jobs/4711", "/jobs/alpha/4711")]


def test_coordinator_of_one_cluster_sees_nothing_of_the_account_in_another(
    portal: ArchiveBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    cora = replace(VIEWERS["cora"], coordinated_clusters=frozenset({"alpha"}))
    monkeypatch.setitem(VIEWERS, "cora", cora)
    client = sign_in(portal, "cora")
    assert 200 == client.get("/jobs/4711").status_code
    absent, foreign = client.get("/jobs/4999"), client.get("/jobs/4900")
    # Both name the job as it was requested, and nothing else of it.
    assert [404, absent.content.replace(b"4999", b"4900")] == [foreign.status_code, foreign.content]
    assert [404] * 3 == [client.get(f"/{path}").status_code for path in ("jobs/beta/4711", "nodes/beta/n1", "nodes/n9")]
    assert {"alpha"} == {job["cluster"] for job in client.get("/api/v2/jobs").json()["jobs"]}
    assert "beta" not in client.get("/jobs?account=physics&format=csv").text
    monkeypatch.setitem(VIEWERS, "cora", replace(cora, coordinated_clusters=frozenset()))
    assert [] == client.get("/api/v2/jobs").json()["jobs"]


def test_short_address_of_one_job_shows_it(portal: ArchiveBackend) -> None:
    answer = sign_in(portal).get("/jobs/4713")
    assert 200 == answer.status_code
    assert "/jobs/beta/4713/report.pdf" in Page(answer.text).links


def test_links_name_the_cluster_only_if_there_are_several() -> None:
    one = [report for report in make_two_clusters() if report.record.cluster == "beta"]
    links = Page(PortalClient(make_backend(one).make_app(), "ada").get("/jobs").text).links
    assert "/jobs/4713" in links
    links = Page(PortalClient(make_backend(make_two_clusters()).make_app(), "ada").get("/jobs").text).links
    assert "/jobs/beta/4713" in links
    assert "/jobs/4713" not in links


def test_arrays_are_told_apart(portal: ArchiveBackend) -> None:
    ada = sign_in(portal)
    assert 300 == ada.get("/arrays/4800").status_code
    page = Page(ada.get("/arrays/beta/4800").text)
    assert "2 tasks" in page.text
    assert "/jobs/beta/4800_1" in page.links
    assert "/jobs/alpha/4800_1" not in page.links
    assert "/arrays/beta/4800" == ada.get("/jobs/beta/4800").headers["location"]


def test_array_with_too_many_tasks_for_a_page_does_not_hide_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "MAX_TASKS", 2)
    tasks = [
        make_report(make_record(7000 + task, cluster=cluster, array_job_id=7000, array_task_id=task, submit_seconds=at))
        for cluster, count, at in (("alpha", 3, START), ("beta", 1, START - 9000))
        for task in range(count)
    ]
    ada = PortalClient(make_backend(tasks).make_app(), "ada")
    assert 300 == ada.get("/arrays/7000").status_code
    assert "the newest 2 tasks of more" in Page(ada.get("/arrays/alpha/7000").text).text
    assert 200 == PortalClient(make_backend(tasks[:3]).make_app(), "ada").get("/arrays/7000").status_code


def test_job_and_array_of_one_id_are_told_apart() -> None:
    ada = PortalClient(make_backend([*make_two_clusters(), *make_job_and_array()]).make_app(), "ada")
    assert [300] * 3 == [ada.get(path).status_code for path in ("/jobs/6000", "/jobs/6000/nodes.csv", "/mail/6000")]
    page = Page(ada.get("/jobs/6000").text)
    assert {"/jobs/alpha/6000", "/jobs/beta/6000"} <= set(page.links)
    assert "plain-on-alpha ada physics completed" in page.text
    assert "array-on-beta ada physics array" in page.text
    assert ["alpha", "beta"] == [choice["cluster"] for choice in ada.get("/api/v2/jobs/6000").json()["choices"]]
    assert "/jobs/6000" == ada.get("/search?q=6000").headers["location"]
    assert "plain-on-alpha" in ada.get("/jobs/alpha/6000").text
    assert "/arrays/beta/6000" == ada.get("/jobs/beta/6000").headers["location"]


@pytest.mark.parametrize("is_array_pending", [False, True])
def test_pending_job_and_array_of_one_id_are_told_apart(is_array_pending: bool) -> None:
    _, *tasks = make_job_and_array()
    backend = make_backend([*make_two_clusters(), *(() if is_array_pending else tasks)])
    backend.waiting = make_queue(make_waiting(6000, user="ada"), cluster="alpha")
    pending = make_waiting(6000, user="ada", array_job_id=6000, tasks=(range(2),))
    waiting = make_queue(*((pending,) if is_array_pending else ()), cluster="beta")
    backend.others = {"beta": OtherCluster(waiting=waiting)}
    ada = PortalClient(backend.make_app(), "ada")
    assert 300 == ada.get("/jobs/6000").status_code
    assert 200 == ada.get("/jobs/alpha/6000").status_code
    assert "/arrays/beta/6000" == ada.get("/jobs/beta/6000").headers["location"]


def test_nodes_are_told_apart(portal: ArchiveBackend) -> None:
    ada = sign_in(portal)
    assert 300 == ada.get("/nodes/n1").status_code
    page = Page(ada.get("/nodes/beta/n1").text)
    assert "/jobs/beta/4711" in page.links
    assert "/jobs/alpha/4711" not in page.links
    assert 200 == ada.get("/nodes/beta/n1/charts.json").status_code
    assert 404 == ada.get("/nodes/beta/n7").status_code
    assert 404 == ada.get("/nodes/n7").status_code
    assert 200 == sign_in(portal, "sue").get("/nodes/n7").status_code


def test_history_of_a_node_is_that_of_the_own_cluster(portal: ArchiveBackend) -> None:
    portal.fake.waiting, portal.fake.events = make_queue(cluster="alpha"), ()
    sue = sign_in(portal, "sue")
    assert "The node was always available." in sue.get("/nodes/alpha/n1").text
    assert "The history is currently unknown." in sue.get("/nodes/beta/n1").text
    one = make_backend([report for report in make_two_clusters() if report.record.cluster == "alpha"])
    one.waiting, one.events = make_queue(cluster="alpha"), ()
    for path in ("/nodes/n1", "/nodes/alpha/n1"):
        assert "The node was always available." in PortalClient(one.make_app(), "sue").get(path).text
    assert 404 == PortalClient(one.make_app(), "sue").get("/nodes/beta/n1").status_code


def test_api_of_nodes_savings_and_waiting_times_names_the_cluster(portal: ArchiveBackend) -> None:
    ada = sign_in(portal)
    assert 300 == ada.get("/api/v2/nodes/n1").status_code
    assert ("n1", "beta") == tuple(ada.get("/api/v2/nodes/beta/n1").json()[key] for key in ("name", "cluster"))
    assert 404 == ada.get("/api/v2/nodes/beta/n7").status_code
    assert "beta" == ada.get("/api/v2/waiting-times?cluster=beta").json()["cluster"]
    assert [] == ada.get("/api/v2/savings?cluster=gamma").json()["totals"]


def test_pending_job_and_ended_job_of_another_cluster_are_told_apart(portal: ArchiveBackend) -> None:
    portal.fake.waiting = make_queue(make_waiting(4713, user="ada"), cluster="alpha")
    ada = sign_in(portal)
    assert 300 == ada.get("/jobs/4713").status_code
    assert "Position" in ada.get("/jobs/alpha/4713").text or "pending" in ada.get("/jobs/alpha/4713").text
    assert "only" in ada.get("/jobs/beta/4713").text
    assert "/jobs/alpha/4713" in Page(ada.get("/").text).links
    # To others the pending job does not exist.
    portal.fake.waiting = make_queue(make_waiting(4713, user="bob", account="x"), cluster="alpha")
    assert 200 == sign_in(portal).get("/jobs/4713").status_code


def test_search_leads_to_the_choice_or_the_named_cluster(portal: ArchiveBackend) -> None:
    ada = sign_in(portal)
    assert "/jobs/4711" == ada.get("/search?q=4711").headers["location"]
    assert "/jobs/beta/4711" == ada.get("/search?q=beta/4711").headers["location"]
    assert "/arrays/beta/4800" == ada.get("/search?q=beta/4800").headers["location"]
    assert "/jobs?name=beta%2F4712" == ada.get("/search?q=beta/4712").headers["location"]
    assert "/nodes/n1" == ada.get("/search?q=n1").headers["location"]


def test_jobs_of_two_clusters_are_compared(portal: ArchiveBackend) -> None:
    page = Page(sign_in(portal).get("/compare?job=alpha/4711&job=beta/4711").text)
    assert "Job alpha/4711" in page.text
    assert "Job beta/4711" in page.text
    assert 300 == sign_in(portal).get("/compare?job=4711").status_code
    assert 404 == sign_in(portal).get("/compare?job=beta/4712").status_code
    labels = [
        line["label"]
        for line in sign_in(portal)
        .get("/compare/charts.json?job=alpha/4711&job=beta/4711")
        .json()["charts"][0]["lines"]
    ]
    assert ["job alpha/4711", "job beta/4711"] == labels


def test_notes_are_of_one_cluster(portal: ArchiveBackend) -> None:
    sue, app = sign_in(portal, "sue"), portal.make_app()
    token = find_token(sue.get("/jobs/beta/4711").text)
    fields = {
        "kind": "job",
        "name": "4711",
        "cluster": "beta",
        "change": "add-note",
        "text": "seen",
        "csrf_token": token,
    }
    answer = post(app, "/staff/notes", fields, "sue")
    assert (303, "/jobs/beta/4711#staff") == (answer.status_code, answer.headers["location"])
    assert "seen" in Page(sue.get("/jobs/beta/4711").text).text
    assert "seen" not in Page(sue.get("/jobs/alpha/4711").text).text
    assert 300 == post(app, "/staff/notes", {**fields, "cluster": ""}, "sue").status_code


def test_choice_of_staff_is_audited_and_that_of_users_is_not(portal: ArchiveBackend) -> None:
    assert 300 == sign_in(portal).get("/jobs/4711").status_code
    assert 300 == sign_in(portal, "sue").get("/jobs/4712").status_code
    assert [("sue", "/jobs/{shown_id}", "job 4712")] == portal.fake.audited


def test_access_is_audited_with_the_cluster(portal: ArchiveBackend) -> None:
    sue = sign_in(portal, "sue")
    for path in ("/jobs/alpha/4711", "/jobs/beta/4711", "/arrays/beta/4800", "/nodes/beta/n1"):
        sue.get(path)
    subjects = [subject for _, _, subject in portal.fake.audited]
    assert ["job alpha/4711", "job beta/4711", "array beta/4800", "node beta/n1"] == subjects


def test_addresses_work_under_a_base_path() -> None:
    backend = make_backend(make_two_clusters())
    backend.settings = PortalSettings(base_path="/jobs")
    ada = PortalClient(backend.make_app(), "ada")
    assert 200 == ada.get("/jobs/jobs/beta/4711").status_code
    answer = ada.get("/jobs/jobs/4711")
    assert 300 == answer.status_code
    assert {"/jobs/jobs/alpha/4711", "/jobs/jobs/beta/4711"} <= set(Page(answer.text).links)


def test_files_are_named_by_the_cluster(portal: ArchiveBackend) -> None:
    answer = sign_in(portal).get("/jobs/beta/4711/report.html")
    assert 'attachment; filename="job-beta-4711.html"' == answer.headers["content-disposition"]


def test_addresses_of_the_older_portal_name_the_cluster(portal: ArchiveBackend) -> None:
    ada = sign_in(portal)
    assert "http://portal.test/pdf/beta/4713" in ada.get("/mail/4713").text
    assert "Allocated CPUS: 8" in ada.get("/mail/beta/4711").text
    assert [300, 300, 300] == [ada.get(path).status_code for path in ("/mail/4711", "/pie/4711", "/pdf/4711")]
    assert 300 == ada.get("/api/v1/jobs/4711/usage").status_code
    assert 200 == ada.get("/api/v1/jobs/beta/4711/usage").status_code


def test_page_of_one_position_is_not_cut_between_clusters(portal: ArchiveBackend) -> None:
    ada = sign_in(portal)
    first = ada.get("/api/v2/jobs?limit=1&ids=4711").json()
    assert ["alpha", "beta"] == sorted(job["cluster"] for job in first["jobs"])
    assert first["next"] is None


def rows_of(portal: ArchiveBackend, path: str, name: str = "sue") -> list[dict[str, object]]:
    rows: list[dict[str, object]] = sign_in(portal, name).get(path).json()["rows"]
    return rows


def test_lists_show_and_filter_the_cluster(portal: ArchiveBackend) -> None:
    ada = sign_in(portal)
    page = Page(ada.get("/jobs").text)
    assert "Job Cluster Name" in page.text
    assert ["alpha", "beta"] == [each["value"] for each in page.all("option") if each["value"] in {"alpha", "beta"}]
    links = Page(ada.get("/jobs?cluster=beta").text).links
    assert "/jobs/beta/4711" in links
    assert "/jobs/alpha/4711" not in links
    assert "cluster=beta" in next(link for link in links if "format=csv" in link)
    assert {"beta"} == {row["cluster"] for row in rows_of(portal, "/jobs?cluster=beta&format=json")}
    assert {"beta"} == {job["cluster"] for job in ada.get("/api/v2/jobs?cluster=beta").json()["jobs"]}
    assert [] == ada.get("/api/v2/jobs?cluster=gamma").json()["jobs"]
    on_node = {job["cluster"] for job in ada.get("/api/v2/jobs?cluster=beta&node=n1").json()["jobs"]}
    assert {"beta"} == on_node


def test_tables_have_no_cluster_column_while_there_is_one() -> None:
    one = [report for report in make_two_clusters() if report.record.cluster == "beta"]
    page = Page(PortalClient(make_backend(one).make_app(), "ada").get("/jobs").text)
    assert "Job Name" in page.text
    assert "choose-cluster" not in page.html


def test_waste_is_shown_by_cluster_and_of_one(portal: ArchiveBackend) -> None:
    jobs = {row["key"]: row["jobs"] for row in rows_of(portal, "/waste?format=json&table=cluster")}
    assert {"alpha": 4, "beta": 6} == jobs
    assert {"ada": 4} == {row["key"]: row["jobs"] for row in rows_of(portal, "/waste?format=json&cluster=alpha")}
    page = Page(sign_in(portal, "sue").get("/waste?cluster=beta").text)
    assert "/users/bob?cluster=beta" in page.links
    assert "/jobs?cluster=beta&partition=batch" in page.links
    assert all("cluster=beta" in link for link in page.links if link.startswith("/waste?"))
    assert "/jobs?cluster=alpha" in Page(sign_in(portal, "sue").get("/waste").text).links


def test_usage_of_a_person_is_shown_for_one_cluster(portal: ArchiveBackend) -> None:
    rows = rows_of(portal, "/users/ada?format=json&cluster=beta", "ada")
    assert [4] == [row["jobs"] for row in rows]
    links = Page(sign_in(portal).get("/users/ada?cluster=beta").text).links
    assert "/jobs/alpha/4711" not in links
    assert all("cluster=beta" in link for link in links if link.startswith("/users/ada?"))


def test_histogram_and_totals_are_of_one_cluster(portal: ArchiveBackend) -> None:
    assert 6 == sum(int(str(row["jobs"])) for row in rows_of(portal, "/histogram?format=json&metric=run&cluster=beta"))
    links = Page(sign_in(portal).get("/histogram?metric=run").text).links
    assert "/histogram?cluster=alpha&metric=run" in links
    totals = sign_in(portal).get("/api/v2/totals?by=cluster").json()["totals"]
    assert {"alpha": 4, "beta": 4} == {total["key"]: total["jobs"] for total in totals}
    totals = sign_in(portal).get("/api/v2/totals?by=user&cluster=beta").json()["totals"]
    assert {"ada": 4} == {total["key"]: total["jobs"] for total in totals}


def test_savings_are_of_one_cluster(portal: ArchiveBackend) -> None:
    answer = sign_in(portal).get("/savings?cluster=beta")
    assert 200 == answer.status_code
    assert all("cluster=beta" in link for link in Page(answer.text).links if link.startswith("/savings?"))


@pytest.mark.parametrize(
    ("path", "linked"),
    [
        ("/users/ada", "/accounts/physics"),
        ("/users/sue", "/savings"),
        ("/accounts/physics", "/users/bob"),
        ("/jobs", "/users/bob"),
        ("/waste", "/savings"),
    ],
)
def test_page_of_one_cluster_links_to_sums_of_the_same(portal: ArchiveBackend, path: str, linked: str) -> None:
    sue = sign_in(portal, "sue")

    def find_links(page: str) -> set[str]:
        return {link for link in Page(sue.get(page).text).links if link.startswith(linked)}

    assert {linked} == find_links(path)
    assert {f"{linked}?cluster=beta"} == find_links(f"{path}?cluster=beta")


def test_waiting_times_are_those_of_the_chosen_cluster(portal: ArchiveBackend) -> None:
    portal.fake.waiting = make_queue(cluster="alpha")
    page = Page(sign_in(portal).get("/cluster?cluster=beta").text)
    assert "Cluster beta" in page.text
    assert "Waiting times" in page.text
    rows = rows_of(portal, "/cluster?table=waiting&cluster=beta&format=json")
    assert {"beta"} >= {row["cluster"] for row in rows}


def test_tagged_jobs_are_listed_by_cluster(portal: ArchiveBackend) -> None:
    app, sue = portal.make_app(), sign_in(portal, "sue")
    token = find_token(sue.get("/jobs/beta/4711").text)
    for cluster in ("alpha", "beta"):
        fields = {"kind": "job", "name": "4711", "cluster": cluster, "change": "add-tag", "text": "slow"}
        assert 303 == post(app, "/staff/notes", {**fields, "csrf_token": token}, "sue").status_code
    page = Page(sue.get("/tags").text)
    assert "1 job on alpha , 1 job on beta" in page.text
    assert {"/jobs?cluster=alpha&ids=4711", "/jobs?cluster=beta&ids=4711"} <= set(page.links)
