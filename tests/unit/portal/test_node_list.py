# SPDX-License-Identifier: Apache-2.0
"""The list of nodes shows state, use and jobs to all whom Slurm shows nodes, and reasons to staff."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from slurmscope.cluster.sinfo import Node, NodeGres, Nodes
from slurmscope.jobs.pending.blockers import QueueFacts
from slurmscope.portal.node_list import Condition, find_condition, make_node_rows, parse_node_query, sort_nodes
from slurmscope.portal.queries import BadQuery
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import CLUSTER, FakeBackend
from tests.fakes.reports import START


def make_node(name: str, state: str = "idle", *flags: str, allocated: int = 0, **more: object) -> Node:
    node = Node(
        name=name, base_state=state, flags=frozenset(flags), state_text="".join(flags[:1]) or state,
        partitions=("batch",), cpus_total=8, cpus_allocated=allocated, cpus_idle=8 - allocated, memory_bytes=64 << 30,
        allocated_memory_bytes=allocated << 30, weight=1, load=float(allocated),
    )  # fmt: skip
    return node._replace(**more)  # type: ignore[arg-type]


NODES = Nodes(
    nodes=(
        make_node("n10", "mixed", allocated=3, load=None),
        make_node("n2", "allocated", allocated=8),
        make_node("n1", "mixed", allocated=4),
        make_node("n3", "idle", "drain", reason="bad DIMM", reason_user="root", reason_since_seconds=START),
        make_node("gpu1", "idle", partitions=("gpu",), gres=(NodeGres(name="gpu", model="h200", total=4, used=1),)),
    )
)


@pytest.fixture
def listed(backend: FakeBackend) -> FakeBackend:
    backend.facts = QueueFacts(nodes=NODES)
    return backend


def read(backend: FakeBackend, who: str, query: str = "") -> list[dict[str, str]]:
    answer = PortalClient(backend.make_app(), who).get(f"/nodes?format=csv{query}")
    assert 200 == answer.status_code
    return list(csv.DictReader(io.StringIO(answer.text)))


@pytest.mark.parametrize(
    ("node", "condition"),
    [
        (make_node("n", "idle"), Condition.IDLE),
        (make_node("n", "mixed"), Condition.MIXED),
        (make_node("n", "allocated", "planned"), Condition.ALLOCATED),
        (make_node("n", "allocated", "drain"), Condition.DRAINED),
        (make_node("n", "idle", "fail"), Condition.DRAINED),
        (make_node("n", "down", "drain"), Condition.DOWN),
        (make_node("n", "idle", "not_responding"), Condition.DOWN),
        (make_node("n", "idle", "maintenance"), Condition.DOWN),
        (make_node("n", "unknown"), Condition.DOWN),
        (make_node("n", "idle", "powered_down"), Condition.IDLE),
    ],
)
def test_node_is_drained_or_down_or_takes_jobs(node: Node, condition: Condition) -> None:
    assert condition is find_condition(node)


def test_nodes_are_in_the_order_of_their_numbers(listed: FakeBackend) -> None:
    assert ["gpu1", "n1", "n2", "n3", "n10"] == [row["name"] for row in read(listed, "sue")]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("sort=idle&dir=desc", ["gpu1", "n3", "n10", "n1", "n2"]),
        ("sort=cores", ["gpu1", "n3", "n10", "n1", "n2"]),
        # n10 did not report its load.
        ("sort=load&dir=desc", ["n2", "n1", "gpu1", "n3", "n10"]),
        ("sort=gpus&dir=desc", ["gpu1", "n1", "n2", "n3", "n10"]),
        ("sort=since", ["n3", "gpu1", "n1", "n2", "n10"]),
        ("sort=jobs&dir=desc", ["n1", "gpu1", "n2", "n3", "n10"]),
        ("sort=state", ["n2", "n3", "gpu1", "n1", "n10"]),
        ("sort=name&dir=desc", ["n10", "n3", "n2", "n1", "gpu1"]),
        ("sort=memory&dir=desc", ["n2", "n1", "n10", "gpu1", "n3"]),
    ],
)
def test_nodes_are_sorted_and_unknown_numbers_come_last(listed: FakeBackend, query: str, names: list[str]) -> None:
    assert names == [row["name"] for row in read(listed, "sue", f"&{query}")]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("name=N1", ["n1", "n10"]),
        ("state=mixed", ["n1", "n10"]),
        # A state of Slurm, and what it means for jobs.
        ("state=drain", ["n3"]),
        ("state=drained", ["n3"]),
        ("partition=gpu", ["gpu1"]),
        ("partition=gp", []),
    ],
)
def test_nodes_are_filtered(listed: FakeBackend, query: str, names: list[str]) -> None:
    assert names == [row["name"] for row in read(listed, "sue", f"&{query}")]
    page = Page(PortalClient(listed.make_app(), "sue").get(f"/nodes?{query}").text)
    assert ("No nodes." in page.text) == (not names)


def test_invalid_order_is_refused(listed: FakeBackend) -> None:
    client = PortalClient(listed.make_app(), "sue")
    assert {400} == {client.get(f"/nodes?{query}").status_code for query in ("sort=x", "dir=up", "name=" + 201 * "x")}
    with pytest.raises(BadQuery, match="sorted by name, state, cores"):
        parse_node_query({"sort": "color"})


def test_heading_turns_its_order_and_numbers_begin_with_the_highest() -> None:
    wanted = parse_node_query({"partition": "gpu"})
    assert "?partition=gpu&sort=load&dir=desc" == wanted.sort_query("load")
    by_load = parse_node_query({"partition": "gpu", "sort": "load", "dir": "desc"})
    assert "?partition=gpu&sort=load" == by_load.sort_query("load")
    assert "?partition=gpu" == by_load.sort_query("name")
    assert "?sort=name&dir=desc" == parse_node_query({}).sort_query("name")


def test_staff_see_since_when_and_by_whom_a_node_is_drained(listed: FakeBackend) -> None:
    client = PortalClient(listed.make_app(), "sue")
    page = Page(client.get("/nodes").text)
    assert "bad DIMM" in page.text
    assert "root" in page.text
    assert "h200" in page.text
    assert [] == page.open
    assert {"/nodes/n10", "/jobs?node=n1&running=yes", "/nodes?state=mixed"} <= set(page.links)
    assert ("sue", "/nodes", "nodes and the number of jobs of all users on them") in listed.audited


def test_users_see_no_reasons_and_count_only_their_jobs(listed: FakeBackend) -> None:
    rows = {row["name"]: row for row in read(listed, "ada")}
    assert ("", "", "") == tuple(rows["n3"][name] for name in ("reason", "reason_user", "reason_since_seconds"))
    assert ("1", "0") == (rows["n1"]["jobs"], rows["n2"]["jobs"])
    assert {"0"} == {row["jobs"] for row in read(listed, "bob")}
    page = Page(PortalClient(listed.make_app(), "ada").get("/nodes").text)
    assert "/nodes/n1" in page.links
    # The page of a node on which none of their jobs ran does not exist for them.
    assert "/nodes/n2" not in page.links
    assert "bad DIMM" not in page.text


def test_nodes_that_private_data_hides_are_for_staff(listed: FakeBackend) -> None:
    listed.shows_nodes = False
    app = listed.make_app()
    assert 403 == PortalClient(app, "ada").get("/nodes").status_code
    assert 200 == PortalClient(app, "sue").get("/nodes").status_code
    assert not [link for link in Page(PortalClient(app, "ada").get("/cluster").text).links if "/nodes" in link]


def test_unknown_nodes_are_not_shown_as_none(backend: FakeBackend) -> None:
    page = Page(PortalClient(backend.make_app(), "sue").get("/nodes").text)
    assert "The state of the nodes is currently unknown." in page.text
    assert "No nodes." not in page.text


def test_a_node_without_cores_has_no_share() -> None:
    empty = make_node("n1", cpus_total=0, cpus_idle=0, memory_bytes=0, gres=None)
    (row,) = make_node_rows(Nodes(nodes=(empty,)), {}, is_staff=True)
    assert (None, None, 0) == (row.allocated_ratio, row.load_ratio, row.gpus)
    assert (row,) == sort_nodes([row], parse_node_query({"sort": "memory"}))


def test_every_number_of_the_cluster_page_leads_to_what_it_counts(listed: FakeBackend) -> None:
    listed.cluster = replace(CLUSTER, queue=())
    page = Page(PortalClient(listed.make_app(), "sue").get("/cluster").text)
    assert {
        "/jobs?state=PENDING", "/jobs?state=PENDING&reason=Dependency", "/nodes?state=drained", "/nodes?partition=gpu",
        "/nodes?partition=batch&sort=idle&dir=desc", "/jobs?state=RUNNING&partition=gpu&gpus_min=1",
        "/jobs?state=RUNNING&partition=batch", "/jobs?state=PENDING&partition=batch", "/nodes",
    } <= set(page.links)  # fmt: skip
    # A user's list has own jobs only, so it would not be what the number counts.
    own = Page(PortalClient(listed.make_app(), "ada").get("/cluster").text)
    assert {"/nodes?state=drained", "/nodes"} <= set(own.links)
    assert not [link for link in own.links if link.startswith("/jobs?state=")]
