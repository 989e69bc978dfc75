# SPDX-License-Identifier: Apache-2.0
"""Targets are offered by HTTP and in a file, and stay while Slurm does not answer."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import cast
from urllib.parse import parse_qsl

import pytest

from slurmscope.cluster.discovery import (
    PATH,
    REQUESTS_LIMIT,
    DiscoveredNode,
    DiscoveredNodes,
    Discovery,
    DiscoverySettings,
)
from slurmscope.core.errors import CommandTimedOut, ConfigError
from slurmscope.exporter.reading import SharedReading
from slurmscope.http.server.request import HttpRequest
from slurmscope.http.server.response import Response
from slurmscope.http.server.wire import ClientTooSlow
from tests.fakes.exporters import load_role, open_role
from tests.processes import until


class Slurm:
    """Hold the nodes of a cluster, and fail while it is down."""

    def __init__(self) -> None:
        self.names = ["n1", "n2"]
        self.is_down = False

    def read(self) -> DiscoveredNodes:
        """Return the nodes."""
        if self.is_down:
            raise CommandTimedOut(("sinfo",), "no answer within 10 s")
        return DiscoveredNodes(nodes=tuple(DiscoveredNode(name, name, name, (name[0],)) for name in self.names))


def make(slurm: Slurm, **settings: object) -> Discovery:
    """Set up service discovery."""
    reading = SharedReading("node_targets", slurm.read, interval_seconds=0.0, keep_seconds=float("inf"))
    return Discovery(DiscoverySettings(**settings), reading, file_seconds=0.05)  # type: ignore[arg-type]


def get(discovery: Discovery, query: str = "") -> Response:
    """Request the targets."""
    pairs = tuple(parse_qsl(query))
    return discovery.routes[PATH].answer(HttpRequest(method="GET", path=PATH, query=pairs, headers={}))


def targets(body: object) -> list[str]:
    """Return the addresses in a list of targets."""
    text = body if isinstance(body, bytes) else b"".join(cast("Iterable[bytes]", body))
    return [target for group in json.loads(text) for target in group["targets"]]


def test_list_is_that_of_now_and_json() -> None:
    discovery = make(slurm := Slurm())
    response = get(discovery)
    assert (200, "application/json") == (response.status, dict(response.headers)["Content-Type"])
    assert ["n1:9798", "n2:9798"] == targets(response.body)
    slurm.names = ["n2", "x3"]
    assert ["n2:9798", "x3:9798"] == targets(get(discovery).body)
    assert ["x3:80"] == targets(get(discovery, "partition=x&port=80").body)


def test_last_good_list_is_offered_while_slurm_does_not_answer() -> None:
    discovery = make(slurm := Slurm())
    slurm.is_down = True
    assert 503 == get(discovery).status
    slurm.is_down = False
    get(discovery)
    slurm.is_down = True
    for _ in range(3):
        assert ["n1:9798", "n2:9798"] == targets(get(discovery).body)


def test_list_without_nodes_is_no_answer_and_ends_no_targets(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    discovery = make(slurm := Slurm(), file=path)
    with discovery.open():
        until(path.exists)
        slurm.names = []
        assert 503 == get(discovery).status
        slurm.names = ["n2"]
        until(lambda: ["n2:9798"] == targets(path.read_bytes()))


def test_hundred_huge_lists_are_answered_few_at_a_time_without_expanding_any() -> None:
    discovery = make(Slurm())
    tracemalloc.start()
    try:
        pages = [get(discovery, "node=n[1-100000]") for _ in range(20)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 2_000_000
    # They were not read: each new request took the place of the page that had waited longest.
    share = REQUESTS_LIMIT - REQUESTS_LIMIT // 4
    for page in pages[:-share]:
        with pytest.raises(ClientTooSlow):
            targets(page.body)
    for page in pages[-share:]:
        assert ["n1:9798", "n2:9798"] == targets(page.body)
        page.close()


def test_unknown_filter_is_refused() -> None:
    response = get(make(Slurm()), "partitions=x")
    assert 400 == response.status
    assert b"partition" in bytes(response.body) if isinstance(response.body, bytes) else False


def test_file_follows_the_cluster_and_stays_while_slurm_does_not_answer(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    discovery = make(slurm := Slurm(), file=path, file_filter="partition=n&port=9100")
    slurm.is_down = True
    with discovery.open():
        slurm.is_down = False
        until(path.exists)
        assert ["n1:9100", "n2:9100"] == targets(path.read_bytes())
        slurm.names = ["n2", "x3"]
        until(lambda: ["n2:9100"] == targets(path.read_bytes()))
        slurm.is_down = True
        slurm.names = []
    assert ["n2:9100"] == targets(path.read_bytes())
    assert ["nodes.json"] == [file.name for file in tmp_path.iterdir()]


def test_without_a_file_none_is_written(tmp_path: Path) -> None:
    with make(Slurm()).open():
        assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "flags",
    [
        {"sd.file-filter": "port=0"},
        {"sd.file-filter": "port=70000"},
        {"sd.file": "/tmp/nodes"},
        {"sd.file-filter": "x=1"},
        {"sd.file-filter": "x"},
    ],
)
def test_settings_that_cannot_work_are_refused(flags: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"sd|filter|port"):
        open_role("cluster", load_role("cluster", flags))


def test_exporter_offers_the_path() -> None:
    readings = open_role("cluster")
    assert "http_sd_configs" in readings.routes()[PATH].link_text
    readings.close()
