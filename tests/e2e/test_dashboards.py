# SPDX-License-Identifier: Apache-2.0
"""Every panel of our dashboard shows something on a busy cluster, and what it shows is true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import SlurmLab
from lab.config import CLUSTER_NAME
from lab.prometheus import Sample, Server
from tests.e2e.busy_lab import RESERVATION, numbers, watch_busy_lab

FILE = Path(__file__).parents[2] / "deploy" / "grafana" / "cluster.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
# Grafana puts allValue in the place of a variable, or what was chosen as a regular expression.
CHOICES = {
    "all": {"partition": ".*", "account": ".*"},
    "some": {"partition": "(debug|gpus)", "account": "(physics|chemistry)"},
}
RATE_INTERVAL = "1m"


def panels(within: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield all panels, also those of folded rows."""
    for panel in within:
        yield panel
        yield from panels(panel.get("panels", []))


QUERIES = [
    pytest.param(target["expr"], id=f"{panel['title']}: {target['refId']}")
    for panel in panels(DASHBOARD["panels"])
    for target in panel.get("targets", [])
]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}


@pytest.fixture(scope="module")
def prometheus(slurm_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with watch_busy_lab(slurm_lab, tmp_path_factory.mktemp("watched")) as server:
        yield server


def evaluate(prometheus: Server, expression: str, choice: str = "all") -> list[Sample]:
    """Ask as Grafana does, with the variables filled in."""
    instance = prometheus.targets()[0].url.split("/")[2]
    values = {"instance": instance, "cluster": CLUSTER_NAME, "__rate_interval": RATE_INTERVAL, **CHOICES[choice]}
    for name, value in values.items():
        expression = expression.replace(f"${name}", value)
    assert "$" not in expression
    return numbers(prometheus, expression)


def panel_values(prometheus: Server, title: str) -> dict[tuple[str, ...], float]:
    """Return what the first query of a panel gives, by the labels that are not of the scrape."""
    target = next(panel for panel in panels(DASHBOARD["panels"]) if panel["title"] == title)["targets"][0]
    return {
        tuple(value for name, value in sorted(sample.labels.items()) if name not in ("instance", "job", "__name__")):
        sample.value
        for sample in evaluate(prometheus, target["expr"])
    }  # fmt: skip


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("expression", QUERIES)
def test_query_gives_numbers(prometheus: Server, expression: str, choice: str) -> None:
    assert evaluate(prometheus, expression, choice)


@pytest.mark.parametrize("name", ["cluster", "instance", "partition", "account"])
def test_variable_offers_what_there_is(prometheus: Server, slurm_lab: SlurmLab, name: str) -> None:
    expected = {
        "cluster": {CLUSTER_NAME},
        "instance": {prometheus.query("up")[0].labels["instance"]},
        "partition": set(slurm_lab.run("sinfo", "--noheader", "--format=%R").split()),
        "account": set(slurm_lab.run("squeue", "--noheader", "--states=all", "--format=%a").split()),
    }
    selector, label = VARIABLES[name]["query"]["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)

    offered = {sample.labels[label] for sample in evaluate(prometheus, f"group by ({label}) ({selector})")}

    assert expected[name] == offered


def test_numbers_are_those_of_slurm(prometheus: Server, slurm_lab: SlurmLab) -> None:
    rows = slurm_lab.run("squeue", "--noheader", "--array", "--states=all", "--format=%T").split()
    cpus = slurm_lab.run("sinfo", "--noheader", "--format=%C").strip().split("/")
    allocated, total = int(cpus[0]), int(cpus[3])

    assert {(): rows.count("RUNNING")} == panel_values(prometheus, "Running jobs")
    assert {(): rows.count("PENDING")} == panel_values(prometheus, "Pending jobs")
    assert {(): allocated / total} == panel_values(prometheus, "CPUs allocated")
    # One of four GPUs is held, two of ten licences, and one of four nodes is drained.
    assert {(): 0.25} == panel_values(prometheus, "GPUs allocated")
    assert {("matlab",): 0.2} == panel_values(prometheus, "Licences in use")
    assert {(): 1} == panel_values(prometheus, "Unavailable nodes")


def test_tables_tell_what_and_why(prometheus: Server, slurm_lab: SlurmLab) -> None:
    drained = panel_values(prometheus, "Nodes that are down or drained")
    reserved = panel_values(prometheus, "Reservations")

    assert [(slurm_lab.nodes[1], "bad memory", "root")] == list(drained)
    assert [("SPEC_NODES", RESERVATION)] == list(reserved)
