# SPDX-License-Identifier: Apache-2.0
"""Paths name a cluster only before a job ID or a node; none can be taken for a word of another path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.reports.page_paths import (
    PagePath,
    account_path,
    add_cluster,
    array_path,
    is_cluster,
    job_path,
    name_job,
    node_path,
    parse_job,
    parse_path,
    shown_cluster,
    user_path,
)

WORDS = ("live", "charts", "charts.json", "jobs", "api", "nodes", "12", "12_3", "heat", "waiting", "script", "v2")


@pytest.mark.parametrize(
    ("path", "cluster", "short"),
    [
        ("/jobs/alpha/12", "alpha", "/jobs/12"),
        ("/jobs/alpha/12_3/report.pdf", "alpha", "/jobs/12_3/report.pdf"),
        ("/jobs/alpha/12+1/charts/cpu.svg", "alpha", "/jobs/12+1/charts/cpu.svg"),
        ("/jobs/live/12/live", "live", "/jobs/12/live"),
        ("/jobs/12/13", "12", "/jobs/13"),
        ("/api/v2/jobs/alpha/12/what-if", "alpha", "/api/v2/jobs/12/what-if"),
        ("/api/v1/jobs/alpha/12/usage", "alpha", "/api/v1/jobs/12/usage"),
        ("/arrays/alpha/12", "alpha", "/arrays/12"),
        ("/pdf/alpha/12", "alpha", "/pdf/12"),
        ("/plot/alpha/12/jobs_rss", "alpha", "/plot/12/jobs_rss"),
        ("/nodes/alpha/n1", "alpha", "/nodes/n1"),
        ("/nodes/charts/n1/charts.json", "charts", "/nodes/n1/charts.json"),
        ("/nodes/alpha/charts/charts.json", "alpha", "/nodes/charts/charts.json"),
        ("/nodes/alpha/n1/charts/cpu.svg", "alpha", "/nodes/n1/charts/cpu.svg"),
    ],
)
def test_cluster_is_split_from_a_path(path: str, cluster: str, short: str) -> None:
    assert PagePath(cluster, short) == parse_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "/jobs", "/jobs/12", "/jobs/12/live", "/jobs/12/charts/12.svg", "/jobs/12/report.pdf", "/jobs/alpha/x",
        "/jobs/../12", "/jobs/a%2Fb/12", "/jobs/a b/12", "/jobs/-x/12", "/jobs//12", "/jobs/alpha/12x",
        "/jobs/alpha/12345678901", "/jobs/\u00e4/12", "/jobs/alpha/\u0661\u0662", f"/jobs/{'a' * 65}/12",
        "/nodes/n1", "/nodes/n1/charts.json", "/nodes/n1/charts/cpu.svg", "/users/alpha/12", "/static/jobs/alpha/12",
    ],
)  # fmt: skip
def test_other_paths_stay_as_they_are(path: str) -> None:
    assert PagePath("", path) == parse_path(path)


@pytest.mark.parametrize("cluster", WORDS)
@pytest.mark.parametrize(
    "short",
    ["/jobs/12", "/jobs/12/live", "/jobs/12_3/charts/cpu.svg", "/arrays/12", "/nodes/n1", "/nodes/n1/charts.json"],
)
def test_cluster_named_like_a_word_of_a_path_does_not_clash(cluster: str, short: str) -> None:
    assert PagePath(cluster, short) == parse_path(add_cluster(short, cluster))


@given(
    cluster=st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}\Z"),
    job=st.integers(1, 2**31),
    task=st.none() | st.integers(0, 99),
)
def test_written_path_is_parsed_again(cluster: str, job: int, task: int | None) -> None:
    shown_id = str(job) if task is None else f"{job}_{task}"
    assert PagePath(cluster, f"/jobs/{shown_id}") == parse_path(job_path(shown_id, cluster))
    assert (cluster, shown_id) == parse_job(name_job(shown_id, cluster))


@given(st.text(max_size=40))
def test_no_text_is_a_cluster_that_a_path_cannot_have(text: str) -> None:
    path = parse_path(f"/jobs/{text}/12")
    assert path in {PagePath(text, "/jobs/12"), PagePath("", f"/jobs/{text}/12")} or "/" in text
    assert is_cluster(text) == (path.cluster == text != "")


def test_links_are_short_while_there_is_one_cluster() -> None:
    assert "" == shown_cluster("alpha", ["alpha"])
    assert "" == shown_cluster("alpha", [])
    assert "alpha" == shown_cluster("alpha", ["alpha", "beta"])
    assert "" == shown_cluster("a/../b", ["a/../b", "beta"])


def test_paths_of_jobs_arrays_and_nodes() -> None:
    assert "/jobs/12+1" == job_path("12+1")
    assert "/jobs/beta/12_3" == job_path("12_3", "beta")
    assert "/arrays/beta/12" == job_path("12_[3-5]", "beta")
    assert "/arrays/12" == array_path(12)
    assert "/nodes/beta/a%2Fb" == node_path("a/b", "beta")
    assert "" == add_cluster("/compare", "beta")
    assert "" == add_cluster("/jobs/12", "../x")
    assert ("", "x/12/3") == parse_job("x/12/3") or ("x", "12/3") == parse_job("x/12/3")
    assert ("", "-/12") == parse_job("-/12")


def test_page_of_a_user_or_account_may_be_of_one_cluster() -> None:
    assert ("/users/ada", "/users/a%2Fb%3F?cluster=x+%26") == (user_path("ada"), user_path("a/b?", "x &"))
    assert ("/accounts/physics", "/accounts/c%23?cluster=beta") == (account_path("physics"), account_path("c#", "beta"))
