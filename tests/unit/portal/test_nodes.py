# SPDX-License-Identifier: Apache-2.0
"""The page of a node shows its state, and of its jobs only those that the viewer may see."""

from __future__ import annotations

from dataclasses import replace

from slurmscope.cluster.events import NodeEvent
from slurmscope.cluster.sinfo import Node, NodeGres, Nodes
from slurmscope.jobs.pending.blockers import QueueFacts
from slurmscope.jobs.summary import GpuWork
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import FakeBackend
from tests.fakes.reports import START, make_gpu_report, make_record, make_report

NODE = Node(
    name="n1", base_state="mixed", flags=frozenset({"drain"}), state_text="draining", partitions=("batch", "long"),
    cpus_total=64, cpus_allocated=48, cpus_idle=16, memory_bytes=256 << 30, allocated_memory_bytes=64 << 30, weight=1,
    load=47.5, gres=(NodeGres(name="gpu", model="h200", total=4, used=3),), reason="bad DIMM", reason_user="root",
)  # fmt: skip
EVENTS = (
    NodeEvent(START, None, "DRAIN", "root(0)", "bad DIMM"),
    NodeEvent(START - 7200, START - 3600, "DOWN", "s", "fan"),
)


def open_page(backend: FakeBackend, who: str, path: str = "/nodes/n1") -> Page:
    return Page(PortalClient(backend.make_app(), who).get(path).text)


def test_staff_see_state_reason_jobs_and_history(backend: FakeBackend) -> None:
    backend.facts = QueueFacts(nodes=Nodes(nodes=(NODE,)))
    backend.events = EVENTS
    page = open_page(backend, "sue")
    for text in ("draining", "bad DIMM (root)", "48 of 64 allocated, 16 idle", "64 GiB of 256 GiB", "3 of 4 allocated"):
        assert text in page.text
    assert "/jobs/4711" in page.links
    assert "fan" in page.text
    assert "1 h" in page.text
    assert ("sue", "/nodes/{name}", "node n1") in backend.audited
    assert [] == page.open


def test_user_sees_own_jobs_and_no_reasons(backend: FakeBackend) -> None:
    backend.facts = QueueFacts(nodes=Nodes(nodes=(NODE,)))
    backend.events = EVENTS
    page = open_page(backend, "ada")
    assert "draining" in page.text
    assert "bad DIMM" not in page.text
    assert "fan" not in page.text
    assert "/jobs/4711" in page.links
    assert "/jobs/4712" not in page.links


def test_node_without_accessible_jobs_is_absent_for_users_but_not_for_staff(backend: FakeBackend) -> None:
    backend.facts = QueueFacts(nodes=Nodes(nodes=(replace_name("empty"),)))
    app = backend.make_app()
    assert 404 == PortalClient(app, "ada").get("/nodes/empty").status_code
    assert 200 == PortalClient(app, "sue").get("/nodes/empty").status_code
    assert 404 == PortalClient(app, "sue").get("/nodes/absent").status_code


def replace_name(name: str) -> Node:
    return NODE._replace(name=name, reason=None, reason_user=None)


def test_unknown_state_and_history_are_not_shown_as_fine(backend: FakeBackend) -> None:
    page = open_page(backend, "sue")
    assert "The state of this node is currently unknown." in page.text
    assert "The history is currently unknown." in page.text
    backend.events = ()
    assert "The node was always available." in open_page(backend, "sue").text


def test_charts_have_a_line_for_each_running_job_and_the_size_of_the_node(backend: FakeBackend) -> None:
    backend.facts = QueueFacts(nodes=Nodes(nodes=(NODE,)))
    second = make_report(make_record(4999, state="RUNNING", end_seconds=None))
    backend.archive.save([second])
    client = PortalClient(backend.make_app(), "ada")
    charts = {chart["name"]: chart for chart in client.get("/nodes/n1/charts.json").json()["charts"]}
    assert {"job 4720", "job 4999"} == {line["label"] for line in charts["cpu"]["lines"]}
    assert (64.0, "whole node") == (charts["cpu"]["reference"], charts["cpu"]["reference_label"])
    assert 200 == client.get("/nodes/n1/charts/memory.svg").status_code
    assert 404 == client.get("/nodes/n1/charts/nothing.svg").status_code


def test_node_is_found_by_search_and_linked_from_jobs(backend: FakeBackend) -> None:
    client = PortalClient(backend.make_app(), "ada")
    assert "/nodes/n1" == client.get("/search?q=n1").headers["location"]
    assert "/jobs?name=n99" == client.get("/search?q=n99").headers["location"]
    assert "/nodes/n1" in Page(client.get("/jobs/4711").text).links


def test_node_has_a_row_for_each_gpu_of_jobs_that_the_viewer_may_see(backend: FakeBackend) -> None:
    running = replace(make_gpu_report(4998).record, user="ada", state="RUNNING", end_seconds=None)
    report = make_gpu_report(4998)
    work = GpuWork(sm_ratio=0.29, energy_joules=3.6e6)
    first, second = report.summary.gpu.devices
    elsewhere = replace(first, node="n2", gpu="7")
    gpu = replace(report.summary.gpu, devices=(second, replace(first, work=work), elsewhere))
    backend.archive.save([replace(report, summary=replace(report.summary, record=running, gpu=gpu))])

    rows = "0 NVIDIA H200 4998 0 % 29 % – 0 B 141 GiB 1 kWh 1 NVIDIA H200 4998 2.0 % – – 0 B 141 GiB – Since each job"
    assert rows in open_page(backend, "ada").text
    assert "GPUs of running jobs" not in open_page(backend, "bob").text
