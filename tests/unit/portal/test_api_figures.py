# SPDX-License-Identifier: Apache-2.0
"""The API returns the figures of the pages: the same groups, classes and rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.cluster.events import NodeEvent
from slurmscope.cluster.sinfo import Node, Nodes
from slurmscope.jobs.pending.blockers import QueueFacts
from slurmscope.jobs.wait_times import WaitingTime
from tests.fakes.archive_backend import ArchiveBackend, open_archive_backend
from tests.fakes.browser import PortalClient
from tests.fakes.portal_backend import FakeBackend
from tests.fakes.reports import make_record, make_report
from tests.unit.portal.test_savings import make_run


@pytest.fixture
def archived(tmp_path: Path) -> Iterator[ArchiveBackend]:
    runs = [make_run(1, 0, 16), make_run(2, 1, 4), make_run(3, 0, 16, user="bob"), make_run(4, 1, 16, user="bob")]
    with open_archive_backend(tmp_path, runs) as backend:
        yield backend


def test_savings_are_those_of_the_page(archived: ArchiveBackend) -> None:
    def read(name: str, by: str) -> list[dict[str, object]]:
        totals = PortalClient(archived.make_app(), name).get(f"/api/v2/savings?by={by}").json()["totals"]
        return [{key: total[key] for key in ("key", "followed", "ignored", "saved_core_seconds")} for total in totals]

    # 12 cores fewer for two hours.
    ada = {"key": "ada", "followed": 1, "ignored": 0, "saved_core_seconds": 86400.0}
    bob = {"key": "bob", "followed": 0, "ignored": 1, "saved_core_seconds": 0.0}
    assert [ada, bob] == read("sue", "user")
    assert [bob] == read("bob", "user")
    assert ["2026-09"] == [total["key"] for total in read("sue", "month")]


def test_histogram_counts_each_job_once_and_takes_the_filters_of_the_list(ada: PortalClient) -> None:
    found = ada.get("/api/v2/histogram?metric=cpu&name=re").json()
    listed = ada.get("/api/v2/jobs?name=re").json()["jobs"]

    (job,) = [row for row in listed if row["cpu_ratio"] is not None]
    (filled,) = [each for each in found["classes"] if each["jobs"]]
    assert ("cpu", "ratio", False) == (found["metric"], found["unit"], found["is_cut"])
    assert [None, 0.1, 0.2] == [each["min"] for each in found["classes"][:3]]
    assert filled["min"] <= job["cpu_ratio"] < filled["max"]
    assert len(listed) == filled["jobs"] + found["unknown"]


def test_ranges_and_nodes_filter_lists_and_histograms(ada: PortalClient) -> None:
    ratios = [job["cpu_ratio"] for job in ada.get("/api/v2/jobs?limit=500").json()["jobs"]]
    known = sorted(ratio for ratio in ratios if ratio is not None)
    bound = (known[0] + known[-1]) / 2 if known[0] < known[-1] else known[0]
    low = ada.get(f"/api/v2/jobs?limit=500&since=2026-01-01&cpu_max={100 * bound:.6f}").json()["jobs"]
    nowhere = ada.get("/api/v2/jobs?node=n99").json()["jobs"]

    assert [] == nowhere
    assert sum(ratio < bound for ratio in known) == len(low)
    assert 400 == ada.get("/api/v2/histogram?cpu_max=sixty").status_code
    assert 422 == ada.get("/api/v2/histogram?metric=user").status_code


def test_waiting_times_are_by_shape(backend: FakeBackend, ada: PortalClient) -> None:
    backend.waits[1, 0] = WaitingTime(
        partition="gpu", cores_class=1, limit_class=0, jobs=7, median_seconds=100 / 3, p90_seconds=90.0
    )

    assert {
        "cluster": "",
        "partition": "gpu",
        "shapes": [
            {"cores": "2-4", "time_limit": "up to 1 h", "jobs": 7, "median_seconds": 33.333, "p90_seconds": 90.0}
        ],
    } == ada.get("/api/v2/waiting-times?partition=gpu").json()
    assert {"cluster": "", "partition": "batch", "shapes": []} == ada.get("/api/v2/waiting-times").json()


def test_filesystems_are_for_staff(backend: FakeBackend, ada: PortalClient) -> None:
    sue = PortalClient(backend.make_app(), "sue")
    first = sue.get("/api/v2/filesystems").json()["clients"][0]

    assert ("work", "now", "job", "read", "4711", 2e9) == tuple(
        first[key] for key in ("filesystem", "period", "kind", "quantity", "name", "amount")
    )
    assert "" == first["cluster"]
    assert 403 == ada.get("/api/v2/filesystems").status_code
    backend.top_clients = None
    without = PortalClient(backend.make_app(), "sue")
    assert {"is_known": False, "clients": [], "problems": []} == without.get("/api/v2/filesystems").json()


def test_node_has_its_reason_for_staff_only(backend: FakeBackend, ada: PortalClient) -> None:
    backend.archive.save([make_report(make_record(5001, nodes=("n17",)))])
    node = Node(
        name="n17", base_state="IDLE", flags=frozenset(), state_text="drained", partitions=("batch",), cpus_total=64,
        cpus_allocated=0, cpus_idle=64, memory_bytes=1 << 30, allocated_memory_bytes=0, weight=1, reason="bad DIMM",
    )  # fmt: skip
    backend.facts = QueueFacts(nodes=Nodes(nodes=(node,)))
    backend.events = (NodeEvent(100, None, "DRAINED", "root", "bad DIMM"),)
    own, staff = (PortalClient(backend.make_app(), who).get("/api/v2/nodes/n17").json() for who in ("ada", "sue"))

    assert ("drained", 64, None, None) == (own["state"], own["cpus"], own["reason"], own["events"])
    assert ("bad DIMM", [100, None, "DRAINED", "root", "bad DIMM"]) == (staff["reason"], staff["events"][0])
    assert 404 == ada.get("/api/v2/nodes/n99").status_code
    backend.facts = QueueFacts()
    unknown = ada.get("/api/v2/nodes/n17").json()
    assert {"name": "n17", "cluster": "lab"} == {key: value for key, value in unknown.items() if value is not None}


def test_findings_are_a_list_in_lists_and_files(ada: PortalClient) -> None:
    api = ada.get("/api/v2/jobs?ids=4711").json()["jobs"][0]["rules"]
    file = ada.get("/jobs?ids=4711&format=json").json()["rows"][0]["rules"]

    assert ["cpu_idle", "memory_over_requested"] == api == file


def test_list_and_file_have_the_same_numbers(ada: PortalClient) -> None:
    api = ada.get("/api/v2/jobs?limit=500").json()["jobs"]
    file = ada.get("/jobs?format=json").json()["rows"]

    assert api == file
