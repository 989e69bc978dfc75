# SPDX-License-Identifier: Apache-2.0
"""Open OnDemand gets the chart of a panel by the address that it builds, and only that may be framed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from slurmscope.portal.compat import PANELS
from slurmscope.portal.settings import parse_origins
from slurmscope.portal.web.middleware import FRAMED, Framing, protect
from tests.fakes.asgi import call
from tests.fakes.browser import PortalClient
from tests.fakes.portal_backend import USER_HEADER, make_backend
from tests.fakes.sign_in import make_scope

CLUSTER_FILE = Path(__file__).parents[3] / "deploy/ondemand/cluster.yml"
PARENT = "https://ondemand.example.org"
# As ActiveJobsHelper of Open OnDemand 4 builds it, with the settings of cluster.yml.
ADDRESS = (
    "/d-solo/slurmscope/job?orgId=1&theme=light&from=1790000000000&to=now"
    "&var-cluster={cluster}&var-host=n1&panelId={panel}&var-jobid={job}"
)


def test_shipped_file_has_the_panels_that_open_ondemand_asks_for() -> None:
    dashboard = yaml.safe_load(CLUSTER_FILE.read_text())["custom"]["grafana"]["dashboard"]

    assert {"cpu", "memory", "gpu-util", "gpu-memory"} == dashboard["panels"].keys()
    assert set(PANELS) == {str(number) for number in dashboard["panels"].values()}


@pytest.mark.parametrize(("panel", "title"), [(1, "cores|CPU"), (2, "[Mm]emory")])
def test_panel_is_one_chart_as_svg(ada: PortalClient, panel: int, title: str) -> None:
    answer = ada.get(ADDRESS.format(cluster="lab", panel=panel, job=4711))

    assert (200, "image/svg+xml") == (answer.status_code, answer.headers["content-type"])
    assert re.search(title, answer.text)
    assert "<script" not in answer.text


@pytest.mark.parametrize(
    ("cluster", "panel", "job"), [("lab", 9, 4711), ("lab", 1, 1), ("other", 1, 4711), ("lab", 1, "x")]
)
def test_what_does_not_exist_is_not_found(ada: PortalClient, cluster: str, panel: int, job: object) -> None:
    assert 404 == ada.get(ADDRESS.format(cluster=cluster, panel=panel, job=job)).status_code


def test_detailed_metrics_lead_to_the_job_page(ada: PortalClient) -> None:
    answer = ada.get("/d/slurmscope/job?var-jobid=4711&var-host=n1")

    assert (303, "/jobs/4711") == (answer.status_code, answer.headers["location"])


@pytest.mark.parametrize(
    ("path", "parents", "expected"),
    [
        ("/d-solo/slurmscope/job", (PARENT,), f"frame-ancestors {PARENT}"),
        ("/d-solo/slurmscope/job", (), "frame-ancestors 'none'"),
        ("/jobs/4711", (PARENT,), "frame-ancestors 'none'"),
        ("/jobs/d-solo/x/y", (PARENT,), "frame-ancestors 'none'"),
    ],
)
def test_only_charts_are_framed_and_only_where_it_is_allowed(
    path: str, parents: tuple[str, ...], expected: str
) -> None:
    framing = Framing(paths=FRAMED, parents=parents)
    app = protect(make_backend().make_app(), identity_header="X-Remote-User", framing=framing)
    headers = dict(call(app, make_scope((USER_HEADER, "ada"), path=path)).headers)

    assert expected in headers["content-security-policy"].split("; ")
    assert (PARENT in expected) == ("x-frame-options" not in headers)


@pytest.mark.parametrize(
    "text", ["*", "https://a.example.org/", "https://a b", "'self'", "ondemand.example.org", "https://a;"]
)
def test_origin_cannot_be_anything_else(text: str) -> None:
    with pytest.raises(ValueError, match="not an origin"):
        parse_origins([text])
