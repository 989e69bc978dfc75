# SPDX-License-Identifier: Apache-2.0
"""The dashboards are those that are generated, can be provisioned, and lead only to pages and series that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.routing import APIRoute

from deploy.grafana.generate import DASHBOARDS, FOLDER, PORTAL_URL, files
from scripts.grafana_types import lost
from slurmscope.portal import cluster, filesystems, hours, job, nodes, users
from tests.queried_metrics import declared_names, queried_names

ROOT = Path(__file__).parents[2]
PROVISIONING = FOLDER.parent / "provisioning"
Json = dict[str, Any]
MADE: dict[str, Json] = {file.stem: json.loads(text) for file, text in files().items()}
PORTAL_ROUTES = [
    route.path
    for page in (cluster, filesystems, hours, job, nodes, users)
    for route in page.router.routes
    if isinstance(route, APIRoute)
]


def panels(within: list[Json]) -> Iterator[Json]:
    """Yield all panels, also those of folded rows."""
    for panel in within:
        yield panel
        yield from panels(panel.get("panels", []))


def of(dashboard: Json) -> list[Json]:
    """Return the panels of a dashboard that are no rows."""
    return [panel for panel in panels(dashboard["panels"]) if panel["type"] != "row"]


def expressions() -> list[str]:
    targets = [target["expr"] for dashboard in MADE.values() for panel in of(dashboard) for target in panel["targets"]]
    variables = [
        variable["query"]["query"].removeprefix("label_values(").rpartition(",")[0]
        for dashboard in MADE.values()
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    ]
    return targets + variables


def addresses(value: object) -> Iterator[str]:
    """Yield every address that a link anywhere in a document leads to."""
    if isinstance(value, dict):
        yield from (url for key, url in value.items() if key == "url" and url)
        for below in value.values():
            yield from addresses(below)
    elif isinstance(value, list):
        for below in value:
            yield from addresses(below)


def test_files_are_the_generated_ones_and_no_others() -> None:
    assert {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()} == {
        file.name: text for file, text in files().items()
    }, "run: make docs"


def test_files_say_what_the_documents_say_in_one_line_for_each_panel() -> None:
    for text in files().values():
        assert sum(line.startswith('  {"id":') for line in text.splitlines()) == len(json.loads(text)["panels"])


@pytest.mark.parametrize("name", MADE)
def test_dashboard_can_be_provisioned(name: str) -> None:
    sources = {json.dumps(panel["datasource"]) for panel in of(MADE[name])}

    assert f"slurmscope-{name}" == MADE[name]["uid"]
    assert {'{"type": "prometheus", "uid": "${datasource}"}'} == sources
    assert not {"__inputs", "__requires", "id"} & set(MADE[name])


@pytest.mark.parametrize("name", MADE)
def test_panels_have_numbers_of_their_own_and_do_not_overlap(name: str) -> None:
    every = list(panels(MADE[name]["panels"]))
    spots = [(position["x"], position["y"], position["w"], position["h"]) for p in every if (position := p["gridPos"])]

    assert len(every) == len({panel["id"] for panel in every})
    assert all(x + width <= 24 for x, _, width, _ in spots)
    for (x, y, width, height), (x2, y2, width2, height2) in combinations(spots, 2):
        assert x + width <= x2 or x2 + width2 <= x or y + height <= y2 or y2 + height2 <= y


@pytest.mark.parametrize("name", MADE)
def test_every_panel_says_what_it_shows_under_a_title_of_its_own(name: str) -> None:
    titles = [panel["title"] for panel in of(MADE[name])]

    assert sorted(titles) == sorted(set(titles))
    assert [] == [panel["title"] for panel in of(MADE[name]) if not re.fullmatch(r".+\.", panel["description"])]


def test_queries_are_of_metrics_and_records_that_exist_and_have_no_older_names() -> None:
    rules = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in (ROOT / "deploy/rules").glob("*.yml")]
    recorded = {rule.get("record") for file in rules for group in file["groups"] for rule in group["rules"]}
    queried = queried_names(expressions())
    records = set(re.findall(r"\b[a-z_]+:\w+:\w+", " ".join(expressions())))

    assert {"slurm_up", "slurm_job_wait_seconds_bucket", "scrape_samples_scraped"} <= queried
    assert "slurm_job:jobs_nodes:count" in records
    assert set() == queried - declared_names()
    assert set() == records - recorded


def test_words_for_matchers_are_replaced() -> None:
    assert [] == [text for text in expressions() if re.search(r"\b(?:CLUSTER|NODE|PORTAL)\b", text)]


def test_links_lead_to_dashboards_with_the_variables_that_they_set() -> None:
    variables = {
        dashboard["uid"]: {variable["name"] for variable in dashboard["templating"]["list"]}
        for dashboard in MADE.values()
    }
    links = [url for url in addresses(list(MADE.values())) if url.startswith("/d/")]

    assert {"/d/slurmscope-job", "/d/slurmscope-node", "/d/slurmscope-users", "/d/slurmscope-partition"} == {
        url.partition("?")[0] for url in links
    }
    for url in links:
        uid, _, query = url.removeprefix("/d/").partition("?")
        names = set(re.findall(r"var-(\w+)=", query)) | set(re.findall(r"\$\{(\w+):queryparam\}", query))
        assert {"datasource", "cluster"} < names - {"__url_time_range"}
        assert names <= variables[uid], url


def test_links_to_the_portal_are_pages_that_it_has() -> None:
    paths = {url.removeprefix("${portal}") for url in addresses(list(MADE.values())) if url.startswith("${portal}")}
    # The name of a cluster may stand before that of a job.
    shown = {
        re.sub(r"\$\{[^}]*\}|\$\w+", "X", path.replace("${cluster}/", "").replace("$cluster/", "")) for path in paths
    }
    known = {re.sub(r"\{.*?\}", "X", path) for path in PORTAL_ROUTES} | {""}

    assert {"/jobs/X", "/nodes/X", "/users/X", "/accounts/X"} <= shown
    assert shown <= known


def test_every_state_has_one_colour() -> None:
    overrides = {
        json.dumps(override)
        for dashboard in MADE.values()
        for panel in of(dashboard)
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["id"] == "byRegexp"
    }
    patterns = [json.loads(override)["matcher"]["options"] for override in overrides]
    names = sorted(name for pattern in patterns for name in re.findall(r"\w+", pattern))

    assert "PENDING" in names
    assert all(one != other for one, other in pairwise(names))


def test_provisioning_names_the_folder_of_the_documentation() -> None:
    page = (ROOT / "docs/dashboards.md").read_text(encoding="utf-8")
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards.yml").read_text(encoding="utf-8"))["providers"]
    (source,) = yaml.safe_load((PROVISIONING / "datasources.yml").read_text(encoding="utf-8"))["datasources"]

    assert f"-t {provider['options']['path']} " in page
    assert "prometheus" == source["type"]
    assert f"s#{PORTAL_URL}#" in page
    assert [declared.name for declared in DASHBOARDS] == re.findall(r"(?m)^\| `([a-z]+)\.json` \|", page)


def test_check_by_types_finds_what_does_not_come_back() -> None:
    ours = {"panels": [{"unit": "s", "fillOpacty": 5}], "tags": ["a", "b"], "title": "x", "hide": None}

    assert [] == list(lost(ours, ours | {"id": 7}, "a.json"))
    assert ["a.json/panels/0/fillOpacty: 5", "a.json/tags: ['a', 'b']", "a.json/title: 'x'"] == list(
        lost(ours, {"panels": [{"unit": "s"}], "tags": ["a"], "title": "y"}, "a.json")
    )
