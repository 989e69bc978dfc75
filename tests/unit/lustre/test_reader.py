# SPDX-License-Identifier: Apache-2.0
"""A collection of Lustre statistics costs no more than what failed, and reports that it is incomplete."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from slurmscope.cluster.squeue import JobOwner, Jobs
from slurmscope.core.errors import ConfigError, MalformedAnswer, ServerError, ServerTimedOut
from slurmscope.core.user_names import NameCache
from slurmscope.exporter.reading import SharedReading
from slurmscope.http.client.address import parse_address
from slurmscope.http.client.credentials import parse_headers
from slurmscope.lustre.feature import LustreOptions
from slurmscope.lustre.reader import LustreReader, RecentJobs, look_up_group
from slurmscope.lustre.use import FilesystemUse, Quantity
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.settings import PrometheusSettings
from tests.fakes.prometheus_server import failure, read_form, vector
from tests.fakes.scripted_server import GENEROUS_SECONDS, http_answer, scripted_server

OWNERS = {7: JobOwner("physics", "alice", "debug")}
NOW = (1_794_732_000.0, "1000")
READ = vector(({"jobid": "7", "filesystem": "work"}, NOW), ({"jobid": "cp.1001", "filesystem": "work"}, NOW))
WRITE = vector(({"jobid": "7", "filesystem": "work"}, (1.0, "2000")))
METADATA = vector(({"jobid": "7", "target": "work-MDT0000", "operation": "open"}, (1.0, "30")))
STAGES = {
    "retrieve_running_jobs", "retrieve_user_name_info", "retrieve_group_name_info", "build_read_throughput_metrics",
    "build_write_throughput_metrics", "build_metadata_metrics",
}  # fmt: skip


@dataclass(slots=True)
class FakeServer:
    """Answer by quantity; None never answers."""

    answers: dict[Quantity, bytes | None] = field(
        default_factory=lambda: {Quantity.READ: READ, Quantity.WRITE: WRITE, Quantity.METADATA: METADATA}
    )
    url: str = ""
    tenants: set[str] = field(default_factory=set)
    queries: list[str] = field(default_factory=list)
    cluster_label: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    def handle(self, connection: socket.socket) -> None:
        received = read_form(connection)
        self.tenants.add(received.headers.get("X-Scope-OrgID", ""))
        query = received.form["query"]
        self.queries.append(query)
        words = {"read_bytes": Quantity.READ, "write_bytes": Quantity.WRITE, "stats": Quantity.METADATA}
        answer = next(self.answers[quantity] for word, quantity in words.items() if f"lustre_job_{word}_total" in query)
        if answer is None:
            self.over.wait(GENEROUS_SECONDS)
        else:
            connection.sendall(answer)

    def reader(
        self, read_jobs: Callable[[], object] = lambda: Jobs(groups=(), taken_at_seconds=0.0, owners=OWNERS), *,
        timeout: float = GENEROUS_SECONDS,
    ) -> LustreReader:  # fmt: skip
        headers = parse_headers("X-Scope-OrgID=hpc")
        settings = PrometheusSettings(
            url=parse_address(self.url), headers=headers, timeout=timeout, retries=0, cluster_label=self.cluster_label
        )
        jobs = SharedReading("jobs", read_jobs, interval_seconds=0.0)
        return LustreReader(
            settings,
            LustreOptions(),
            jobs,
            find_cluster=lambda: "alpha",
            client=Prometheus(settings),
            users=NameCache({1001: "alice"}.get, patience_seconds=GENEROUS_SECONDS),
            groups=NameCache({1001: "staff"}.get, patience_seconds=GENEROUS_SECONDS),
        )


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    with scripted_server(fake.handle) as url:
        fake.url = url
        yield fake
        fake.over.set()


def rates_of(use: FilesystemUse) -> dict[Quantity, list[tuple[str, str, float]]]:
    return {
        quantity: [(rate.client.user, rate.client.job or rate.client.program, rate.per_second) for rate in rates]
        for quantity, rates in use.rates.items()
    }


GOOD = {
    Quantity.READ: [("alice", "7", 1000.0), ("alice", "cp", 1000.0)],
    Quantity.WRITE: [("alice", "7", 2000.0)],
    Quantity.METADATA: [("alice", "7", 30.0)],
}


def test_statistics_of_other_clusters_are_not_queried(server: FakeServer) -> None:
    server.reader().read()
    assert not any("alpha" in query for query in server.queries)
    server.queries.clear()
    server.cluster_label = "cluster"
    assert GOOD == rates_of(server.reader().read())
    assert [True] * 3 == ['cluster="alpha"' in query for query in server.queries]


def test_all_quantities_are_queried_and_attributed(server: FakeServer) -> None:
    reader = server.reader()

    use = reader.read()

    assert GOOD == rates_of(use)
    assert () == use.problems
    assert reader.is_complete
    assert STAGES == reader.stage_seconds.keys()
    assert all(seconds >= 0 for seconds in reader.stage_seconds.values())
    assert {"lustre_read": 1, "lustre_write": 1, "lustre_metadata": 1} == {
        kind: count.queries for kind, count in reader.client.counters.snapshot().by_kind.items()
    }


FAULTS = {
    "HTML": http_answer(200, b"<html>login</html>"),
    "422": failure(422, "execution", "query processing would load too many samples into memory"),
    "half a JSON": http_answer(200, READ.partition(b"\r\n\r\n")[2][:80]),
    "an error with status 200": failure(200, "execution", "expanding series: remote read failed"),
    "503": http_answer(503, b"starting"),
    "a redirect": http_answer(302, b"", "Location: /login"),
    "closes": b"",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_failed_query_serves_its_last_good_answer_and_costs_no_other(server: FakeServer, fault: str) -> None:
    reader = server.reader()
    before = reader.read().answered_at
    server.answers[Quantity.READ] = FAULTS[fault]

    use = reader.read()

    assert GOOD == rates_of(use)
    assert not reader.is_complete
    assert len(use.problems) == 1
    assert use.problems[0].startswith("build_read_throughput_metrics: ")
    assert before[Quantity.READ] == use.answered_at[Quantity.READ]
    assert before[Quantity.WRITE] < use.answered_at[Quantity.WRITE]


@pytest.mark.parametrize("fault", FAULTS)
def test_quantity_that_was_never_answered_is_absent(server: FakeServer, fault: str) -> None:
    server.answers[Quantity.METADATA] = FAULTS[fault]
    reader = server.reader()

    use = reader.read()

    assert {Quantity.READ, Quantity.WRITE} == use.rates.keys()
    assert not reader.is_complete


def test_server_without_any_answer_is_a_failed_reading_that_recovers(server: FakeServer) -> None:
    answers = dict(server.answers)
    server.answers = dict.fromkeys(Quantity, FAULTS["HTML"])
    reader = server.reader()

    with pytest.raises(MalformedAnswer):
        reader.read()
    assert not reader.is_complete
    assert STAGES == reader.stage_seconds.keys()
    server.answers = answers
    assert GOOD == rates_of(reader.read())
    assert reader.is_complete


def test_server_that_hangs_ends_at_the_timeout(server: FakeServer) -> None:
    server.answers = dict.fromkeys(Quantity, None)
    started = time.monotonic()

    with pytest.raises(ServerTimedOut):
        server.reader(timeout=0.5).read()
    assert time.monotonic() - started < GENEROUS_SECONDS


def test_query_that_hangs_costs_only_those_after_it(server: FakeServer) -> None:
    server.answers[Quantity.METADATA] = None

    assert {Quantity.READ, Quantity.WRITE} == server.reader(timeout=2.0).read().rates.keys()


def test_values_that_are_not_numbers_cost_their_series_only(server: FakeServer) -> None:
    labels = {"filesystem": "work"}
    server.answers[Quantity.WRITE] = vector(
        ({"jobid": "7", **labels}, (1.0, "NaN")),
        ({"jobid": "cp.1001", **labels}, (1.0, "+Inf")),
        ({"jobid": "mv.1001", **labels}, (1.0, "5")),
    )
    reader = server.reader()

    assert [("alice", "mv", 5.0)] == rates_of(reader.read())[Quantity.WRITE]
    assert reader.is_complete


def test_headers_are_sent(server: FakeServer) -> None:
    server.reader().read()

    assert {"hpc"} == server.tenants


def test_partial_answer_is_reported_and_not_served(server: FakeServer) -> None:
    server.answers[Quantity.READ] = vector(({"jobid": "7", "filesystem": "work"}, NOW), warnings=["one store is down"])
    reader = server.reader()

    assert {Quantity.WRITE, Quantity.METADATA} == reader.read().rates.keys()
    assert not reader.is_complete


def test_empty_queue_and_empty_answers_are_good(server: FakeServer) -> None:
    server.answers = dict.fromkeys(Quantity, vector())
    reader = server.reader(lambda: Jobs(groups=(), taken_at_seconds=0.0))

    assert {quantity: [] for quantity in Quantity} == rates_of(reader.read())
    assert reader.is_complete


def fail() -> object:
    raise ServerError("slurmctld is down")


def test_failed_jobs_leave_programs_and_remembered_jobs(server: FakeServer) -> None:
    snapshots = [Jobs(groups=(), taken_at_seconds=0.0, owners=OWNERS)]
    reader = server.reader(lambda: snapshots.pop() if snapshots else fail())
    reader.read()

    use = reader.read()

    assert GOOD == rates_of(use)
    assert ("retrieve_running_jobs: the jobs are outdated or missing: slurmctld is down",) == use.problems


def test_without_any_jobs_programs_are_known_and_jobs_are_not(server: FakeServer) -> None:
    use = server.reader(fail).read()

    assert [("unknown", "", 1000.0), ("alice", "cp", 1000.0)] == rates_of(use)[Quantity.READ]
    assert 1 == len(use.problems)


def test_ended_job_is_attributed_while_its_rates_are_in_the_range(server: FakeServer) -> None:
    owners = [OWNERS, {}]
    reader = server.reader(lambda: Jobs(groups=(), taken_at_seconds=0.0, owners=owners.pop(0)))
    reader.read()

    assert GOOD == rates_of(reader.read())


def test_recent_jobs_are_forgotten_after_a_while_and_bounded_in_number() -> None:
    recent = RecentJobs(60.0, limit=3)
    one, two = JobOwner("a", "alice", "p"), JobOwner("b", "bob", "p")

    assert {1: one, 2: one} == recent.update({1: one, 2: one}, 0.0)
    assert {1: one, 2: two} == recent.update({2: two}, 60.0)
    assert {2: two} == recent.update({}, 61.0)
    assert {2: two, 3: one, 4: one} == recent.update({3: one, 4: one}, 62.0)
    assert {4: one, 5: one, 6: one} == recent.update({4: one, 5: one, 6: one}, 63.0)
    assert {5: two, 6: one, 7: one} == recent.update({4: two, 5: two, 6: one, 7: one}, 64.0)


def test_group_is_the_primary_group_of_the_user() -> None:
    entry = pwd.getpwuid(os.geteuid())
    assert grp.getgrgid(entry.pw_gid).gr_name == look_up_group(os.geteuid())
    assert look_up_group(2**31 - 5) is None
    assert look_up_group(2**70) is None


def test_settings_without_an_address_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"set --prometheus\.url"):
        LustreReader(PrometheusSettings(), LustreOptions(), SharedReading("jobs", fail, interval_seconds=1.0))
