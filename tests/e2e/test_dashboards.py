# SPDX-License-Identifier: Apache-2.0
"""Every query of every panel returns numbers at a busy site, and what the panels show is true."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import ALICE, SlurmLab
from lab.config import CLUSTER_NAME
from lab.prometheus import Sample
from tests.e2e.busy_lab import PATIENCE_SECONDS, RESERVATION
from tests.e2e.watched_site import GPU_JOB, GPU_NODE, Site, watch_site
from tests.processes import until

VARIABLE = re.compile(r"\$(\w+)")
FOLDER = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards"
DASHBOARDS: dict[str, dict[str, Any]] = {
    file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))
}
WITHOUT_NUMBERS: dict[tuple[str, str], str] = {
    ("cluster", "Suspect nodes"): "needs jobs of 30 days that failed on one node only; unit-tested",
}
"""Panels without a number here, and why."""


def panels(within: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield all panels, also those of folded rows."""
    for panel in within:
        yield panel
        yield from panels(panel.get("panels", []))


QUERIES = {
    (name, panel["title"], target["refId"]): target["expr"]
    for name, dashboard in DASHBOARDS.items()
    for panel in panels(dashboard["panels"])
    for target in panel.get("targets", [])
}
VARIABLES = {
    (name, variable["name"]): variable["query"]["query"]
    for name, dashboard in DASHBOARDS.items()
    for variable in dashboard["templating"]["list"]
    if variable["type"] == "query"
}


@pytest.fixture(scope="module")
def site(slurm_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with watch_site(slurm_lab, tmp_path_factory.mktemp("site")) as site:
        yield site


def filled_in(site: Site, lab: SlurmLab, expression: str) -> list[str]:
    """Return the expression with every choice of the variables in it, as Grafana fills them in."""
    choices = {
        "instance": [site.exporter],
        "cluster": [CLUSTER_NAME],
        "__rate_interval": ["1m"],
        "__range": ["5m"],
        "partition": ["debug", "gpus"] if 'partition="' in expression else ["(debug|gpus)"],
        "account": ["(physics|chemistry)"],
        "user": [ALICE],
        "job": [str(site.job), str(GPU_JOB)],
        "node": [*lab.nodes[:2], GPU_NODE],
        "filesystem": [".*"],
    }
    names = sorted(set(VARIABLE.findall(expression)), key=len, reverse=True)
    filled = [expression]
    for name in names:
        filled = [text.replace(f"${name}", value) for text in filled for value in choices[name]]
    return filled


def evaluate(site: Site, lab: SlurmLab, expression: str) -> list[Sample]:
    """Query until there are numbers for one of the choices: a rate needs two scrapes, a rule its turn."""
    found: list[Sample] = []

    def has_numbers() -> bool:
        for choice in filled_in(site, lab, expression):
            found[:] = [sample for sample in site.prometheus.query(choice) if not math.isnan(sample.value)]
            if found:
                return True
        return False

    until(has_numbers, PATIENCE_SECONDS)
    return found


def panel_values(site: Site, lab: SlurmLab, dashboard: str, title: str) -> dict[tuple[str, ...], float]:
    """Return what the first query of a panel gives, by the labels that are not of the scrape."""
    return {
        tuple(value for name, value in sorted(sample.labels.items()) if name not in ("instance", "job", "__name__")):
        sample.value
        for sample in evaluate(site, lab, QUERIES[dashboard, title, "A"])
    }  # fmt: skip


@pytest.mark.parametrize("query", [key for key in QUERIES if key[:2] not in WITHOUT_NUMBERS], ids=": ".join)
def test_query_gives_numbers(site: Site, slurm_lab: SlurmLab, query: tuple[str, str, str]) -> None:
    assert evaluate(site, slurm_lab, QUERIES[query])


@pytest.mark.parametrize("query", [key for key in QUERIES if key[:2] in WITHOUT_NUMBERS], ids=": ".join)
def test_query_without_numbers_is_valid(site: Site, slurm_lab: SlurmLab, query: tuple[str, str, str]) -> None:
    assert [] == [
        sample for choice in filled_in(site, slurm_lab, QUERIES[query]) for sample in site.prometheus.query(choice)
    ]


@pytest.mark.parametrize("variable", VARIABLES, ids=": ".join)
def test_variable_offers_what_there_is(site: Site, slurm_lab: SlurmLab, variable: tuple[str, str]) -> None:
    users = set(slurm_lab.run("squeue", "--noheader", "--states=all", "--format=%u").split())
    expected = {
        "cluster": {CLUSTER_NAME},
        "instance": {site.exporter},
        "partition": set(slurm_lab.run("sinfo", "--noheader", "--format=%R").split()),
        "account": set(slurm_lab.run("squeue", "--noheader", "--states=all", "--format=%a").split()),
        "node": set(slurm_lab.nodes),
        "filesystem": {"work"},
    }
    selector, label = VARIABLES[variable].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)

    offered = {sample.labels[label] for sample in evaluate(site, slurm_lab, f"group by ({label}) ({selector})")}

    if variable[1] == "job":
        assert {str(site.job)} <= offered
    elif variable[1] == "user":
        assert {ALICE} <= offered <= users | {"root"}
    else:
        assert expected[variable[1]] == offered


def test_numbers_are_those_of_slurm(site: Site, slurm_lab: SlurmLab) -> None:
    rows = slurm_lab.run("squeue", "--noheader", "--array", "--states=all", "--format=%T").split()
    cpus = slurm_lab.run("sinfo", "--noheader", "--format=%C").strip().split("/")
    allocated, total = int(cpus[0]), int(cpus[3])

    def values(title: str) -> dict[tuple[str, ...], float]:
        return panel_values(site, slurm_lab, "cluster", title)

    assert {(): rows.count("RUNNING")} == values("Running jobs")
    assert {(): rows.count("PENDING")} == values("Pending jobs")
    assert {(): allocated / total} == values("CPUs allocated")
    # One of four GPUs is held, two of ten licenses, and one of four nodes is drained.
    assert {(): 0.25} == values("GPUs allocated")
    assert {("matlab",): 0.2} == values("Licenses in use")
    assert {(): 1} == values("Unavailable nodes")


def test_tables_tell_what_and_why(site: Site, slurm_lab: SlurmLab) -> None:
    drained = panel_values(site, slurm_lab, "cluster", "Nodes that are down or drained")
    reserved = panel_values(site, slurm_lab, "cluster", "Reservations")

    assert [(slurm_lab.nodes[1], "bad memory", "root")] == list(drained)
    assert [("SPEC_NODES", RESERVATION)] == list(reserved)


def test_numbers_are_those_of_the_simulated_machine(site: Site, slurm_lab: SlurmLab) -> None:
    # Its job holds GPU 1 of eight, which is busy for a tenth of the time and had Xid 79; its meter counts 1 J/s.
    def values(dashboard: str, title: str, target: str = "A") -> dict[tuple[str, ...], float]:
        found = evaluate(site, slurm_lab, QUERIES[dashboard, title, target])
        return {
            tuple(
                value for name, value in sorted(sample.labels.items()) if name in ("class", "gpu", "slurm_node", "xid")
            ): sample.value
            for sample in found
        }

    assert {(): 1} == values("gpus", "Held and busy GPUs", "A")
    assert {(): pytest.approx(0.1, rel=0.1)} == values("gpus", "Held and busy GPUs", "B")
    assert {("1", "79"): 1} == values("gpus", "Errors (Xid) in the chosen time")
    assert {("7",): 1} == values("gpus", "Unreadable GPUs")
    # Whole joules are counted, so two scrapes in quick succession may see none or one of them.
    until(lambda: pytest.approx(1, abs=0.5) == values("energy", "Nodes with most power")[GPU_NODE,])
    assert {("open",): pytest.approx(300, rel=0.1)} == values("filesystems", "Metadata operations, by class")


def test_all_rules_can_be_evaluated(site: Site) -> None:
    groups = json.loads(site.prometheus.get("/api/v1/rules"))["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]

    assert len(rules) > 50
    assert [] == [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"]


def test_other_clusters_are_left_out(site: Site, slurm_lab: SlurmLab) -> None:
    assert [0, 0] == [sample.value for sample in site.prometheus.query('up{instance=~"g2|g3"}')]
    assert {(): 1} == panel_values(site, slurm_lab, "slurmscope", "Agents down")
