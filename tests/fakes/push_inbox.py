# SPDX-License-Identifier: Apache-2.0
"""Run a real push inbox over a store that the test holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from slurmscope.exporter.feature import OpenFeatures, Running
from slurmscope.exporter.page import PageService
from slurmscope.exporter.self_metrics import PROCESS_METRICS, SELF_METRICS, SelfMetrics
from slurmscope.http.server.address import ListenHost
from slurmscope.http.server.app import ExporterApp
from slurmscope.http.server.server import Server
from slurmscope.inbox.inbox import InboxPage, PushEndpoint
from slurmscope.inbox.pushed import OwnMetrics
from slurmscope.inbox.store import GroupStore, InboxSettings
from slurmscope.metrics.family import gauge
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.parse import parse
from slurmscope.metrics.write import Format
from tests.fakes.raw_http import Answer, connect, read_answer

OWN = OwnMetrics((gauge("slurm_nodes", "Nodes."), *SELF_METRICS), shared=PROCESS_METRICS)


@dataclass(slots=True)
class WallClock:
    """Hold a clock that the test moves."""

    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def open_store(
    clock: Callable[[], float] | None = None, *, settings: InboxSettings | None = None, own: OwnMetrics = OWN
) -> GroupStore:
    """Open a store of groups."""
    return GroupStore(settings or InboxSettings(), own, label_length_limit=100, clock=clock or WallClock())


def push(store: GroupStore, text: str, *, is_whole: bool = True, ttl: float | None = None, **labels: str) -> None:
    """Push a page into a store."""
    store.push(labels, tuple(parse(text, Format.TEXT)), is_whole=is_whole, ttl_seconds=ttl)


def page_of(store: GroupStore) -> str:
    """Return what the store would add to the page."""
    return "".join(family.header + family.lines for group in store.groups() for family in group.families.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningInbox:
    """Hold an inbox that answers."""

    address: ListenHost
    store: GroupStore
    clock: WallClock

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send one request on a connection of its own."""
        given = {"Content-Length": str(len(body))} if body is not None else {}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", "Host: test", *(f"{name}: {value}" for name, value in given.items())]
        with connect(self.address) as sock:
            sock.sendall("\r\n".join((*lines, "", "")).encode() + (body or b""))
            return read_answer(sock, method=method)

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Return the samples with the label ``job``, by a parser that is not ours."""
        families = text_string_to_metric_families(self.send("GET", "/metrics").body.decode())
        return {
            (sample.name, frozenset((name, value) for name, value in sample.labels.items() if value)): sample.value
            for family in families
            for sample in family.samples
            if "job" in sample.labels
        }


@contextmanager
def open_inbox(settings: InboxSettings | None = None, *, web_config: Path | None = None) -> Iterator[RunningInbox]:
    """Run an inbox on a free port of the loopback, with a page as the exporter's."""
    clock = WallClock()
    store = open_store(clock, settings=settings)
    readings = OpenFeatures(Running(pushed=InboxPage(store, OWN.shared).get))
    guard = Guard()
    own = SelfMetrics(features=readings, guard=guard)
    service = PageService((), readings, guard=guard, self_families=own.families)
    endpoint = PushEndpoint(store)

    app = ExporterApp(service.scrape, find_routes=lambda: endpoint.routes, is_text_only=lambda: True)
    server = Server(app, addresses=("127.0.0.1:0",), find_upload=app.find_upload, config_file=web_config)
    server.start()
    try:
        yield RunningInbox(address=server.addresses[0], store=store, clock=clock)
    finally:
        server.close(1)
        store.close()
