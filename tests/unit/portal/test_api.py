# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from slurmscope import __version__
from tests.fakes.browser import PortalClient
from tests.fakes.portal_backend import FakeBackend


def test_list_is_paged_by_position(ada: PortalClient) -> None:
    first = ada.get("/api/v2/jobs?limit=10").json()
    second = ada.get(f"/api/v2/jobs?limit=10&after={first['next']}").json()
    numbers = [job["job_id"] for page in (first, second) for job in page["jobs"]]
    assert (15, 15, None) == (len(numbers), len(set(numbers)), second["next"])


def test_list_accepts_the_filters_of_the_page(ada: PortalClient) -> None:
    answer = ada.get("/api/v2/jobs?name=re&state=completed&worst=critical&since=2026-09-21&until=2026-09-21").json()
    assert ["4711"] == [job["shown_id"] for job in answer["jobs"]]


@pytest.mark.parametrize("query", ["limit=501", "worst=bad", "since=x", "after=x", "since=2026-13-45"])
def test_invalid_parameter_is_an_error_message(ada: PortalClient, query: str) -> None:
    answer = ada.get(f"/api/v2/jobs?{query}")
    assert answer.status_code in {400, 422}
    assert ["error"] == list(answer.json())


def test_jobs_are_selected_by_id_and_array(ada: PortalClient) -> None:
    answer = ada.get("/api/v2/jobs?ids=4711,4712,4800,99").json()
    shown = {job["shown_id"] for job in answer["jobs"]}
    # 4712 is bob's; 4800 is an array.
    assert {"4711"} == {shown_id for shown_id in shown if "_" not in shown_id}
    assert {"4800"} == {shown_id.partition("_")[0] for shown_id in shown if "_" in shown_id}
    assert 400 == ada.get("/api/v2/jobs?ids=4711,x").status_code


def test_viewer_is_named_with_the_release(ada: PortalClient) -> None:
    assert {"name": "ada", "role": "user", "version": __version__} == ada.get("/api/v2/me").json()


def test_job_has_its_findings(ada: PortalClient) -> None:
    job = ada.get("/api/v2/jobs/4711").json()
    assert ["cpu_idle", "memory_over_requested"] == [finding["rule"] for finding in job["findings"]]


def test_inaccessible_job_is_absent(ada: PortalClient) -> None:
    for path in ("/api/v2/jobs/{}", "/api/v2/jobs/{}/charts"):
        inaccessible, absent = ada.get(path.format(4712)), ada.get(path.format(99))
        assert (404, absent.content) == (inaccessible.status_code, inaccessible.content)


def test_charts_have_units(ada: PortalClient) -> None:
    assert ["cores", "bytes"] == [chart["unit"] for chart in ada.get("/api/v2/jobs/4711/charts").json()["charts"]]


def test_totals_cover_what_the_viewer_has_access_to(ada: PortalClient, backend: FakeBackend) -> None:
    own = ada.get("/api/v2/totals?by=user").json()["totals"]
    all_users = PortalClient(backend.make_app(), "sue").get("/api/v2/totals?by=user").json()["totals"]
    assert ["ada"] == [total["key"] for total in own]
    assert {"ada", "bob"} == {total["key"] for total in all_users}


def test_cluster_has_no_reasons_for_users(ada: PortalClient, backend: FakeBackend) -> None:
    assert [] == ada.get("/api/v2/cluster").json()["troubles"]
    assert "n17" == PortalClient(backend.make_app(), "sue").get("/api/v2/cluster").json()["troubles"][0]["node"]


def test_staff_access_is_audited(backend: FakeBackend) -> None:
    sue = PortalClient(backend.make_app(), "sue")
    sue.get("/api/v2/jobs")
    sue.get("/api/v2/totals?user=ada")
    assert [
        ("sue", "/api/v2/jobs", "jobs of all users"),
        ("sue", "/api/v2/totals", "totals of user ada"),
    ] == backend.audited


def test_document_describes_both_versions_and_no_page(ada: PortalClient) -> None:
    paths = set(ada.get("/api/openapi.json").json()["paths"])
    expected = {
        "/api/v1/jobs/{job_id}/usage", "/api/v1/users/{name}", "/api/v2/me", "/api/v2/jobs", "/api/v2/jobs/{shown_id}",
        "/api/v2/jobs/{shown_id}/waiting", "/api/v2/jobs/{shown_id}/charts", "/api/v2/jobs/{shown_id}/script",
        "/api/v2/jobs/{shown_id}/what-if", "/api/v2/totals", "/api/v2/cluster", "/api/v2/savings",
        "/api/v2/histogram", "/api/v2/waiting-times", "/api/v2/filesystems", "/api/v2/nodes/{name}",
    }  # fmt: skip
    of_cluster = {path for path in paths if "{cluster}" in path}
    assert expected == paths - of_cluster
    assert {path for path in expected if "/jobs/{" in path or "/nodes/{" in path} == {
        path.replace("/{cluster}", "") for path in of_cluster
    }


def test_every_error_has_the_same_shape_in_the_document(ada: PortalClient) -> None:
    document = ada.get("/api/openapi.json").json()
    # Requests that are too large are refused before it is known whether they are for the API.
    shapes = {
        answer["content"]["application/json"]["schema"].get("$ref")
        for path in document["paths"].values()
        for status, answer in path["get"]["responses"].items()
        if status >= "400" and status not in {"414", "431"}
    }
    assert {"#/components/schemas/ApiError"} == shapes
