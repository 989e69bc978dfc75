# SPDX-License-Identifier: Apache-2.0
"""The page: one failing part costs only itself, and many scrapes cost one run."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from slurmscope.core.errors import CommandTimedOut
from slurmscope.core.log import RepeatFilter
from slurmscope.exporter.collector import Collector, NoOptions, Role
from slurmscope.exporter.feature import OpenFeatures, Running
from slurmscope.exporter.page import Busy, EnabledCollector, PageService
from slurmscope.exporter.reading import SharedReading
from slurmscope.exporter.self_metrics import SelfMetrics, adapt_to_textfile, process_families
from slurmscope.http.server.app import ScrapeRequest, UnknownCollector
from slurmscope.metrics.family import Family, gauge
from slurmscope.metrics.guard import Guard
from slurmscope.metrics.write import Format
from tests.fakes.exporters import open_readings
from tests.processes import until

APPLES = gauge("apples", "Apples.", "kind")
PEARS = gauge("pears", "Pears.")
STRAY = gauge("stray", "Not declared.")


def enabled(name: str, needs: str, collect: Callable[..., Iterable[Family]]) -> EnabledCollector:
    collector = Collector(
        name=name, role=Role.CLUSTER, help="Fruit.", needs=(needs,), metrics=(APPLES, PEARS), collect=collect
    )
    return EnabledCollector(collector=collector, options=NoOptions())


def collect_apples(options: NoOptions, *, apples: dict[str, int]) -> Iterator[Family]:
    yield Family(APPLES, {(kind,): count for kind, count in apples.items()})


def collect_pears(options: NoOptions, *, pears: int) -> Iterator[Family]:
    yield Family(PEARS, {(): pears})


def make_service(collectors: Iterable[EnabledCollector], **sources: Callable[[], object]) -> PageService:
    readings = open_readings(*(SharedReading(name, read, interval_seconds=3600) for name, read in sources.items()))
    guard = Guard()
    metrics = SelfMetrics(features=readings, guard=guard)
    return PageService(collectors, readings, guard=guard, self_families=metrics.families)


def scrape(
    service: PageService,
    *,
    deadline_seconds: float | None = 60,
    is_gzip: bool = False,
    include: frozenset[str] | None = None,
    exclude: frozenset[str] = frozenset(),
    format: Format = Format.TEXT,
) -> str:
    request = ScrapeRequest(
        format=format, is_gzip=is_gzip, include=include, exclude=exclude, deadline_seconds=deadline_seconds
    )
    page = b"".join(service.scrape(request))
    return (gzip.decompress(page) if is_gzip else page).decode()


def values(page: str, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in parse_text(page)
        for sample in family.samples
        if sample.name == name
    }


def fail() -> object:
    raise CommandTimedOut(["squeue"], "squeue was killed after 8 s")


def test_page_holds_collectors_and_slurmscope_itself() -> None:
    service = make_service([enabled("apples", "apples", collect_apples)], apples=lambda: {"red": 3, "green": 1})

    page = scrape(service)

    assert {("red",): 3, ("green",): 1} == values(page, "apples")
    assert {("apples",): 1} == values(page, "slurmscope_collector_success")
    assert {("apples",)} == values(page, "slurmscope_collector_duration_seconds").keys()
    assert {("apples",)} == values(page, "slurmscope_reading_age_seconds").keys()
    assert [1] == list(values(page, "slurmscope_build_info").values())
    assert values(page, "process_resident_memory_bytes")[()] > 1e6


def test_openmetrics_and_gzip_hold_the_same() -> None:
    service = make_service([enabled("apples", "apples", collect_apples)], apples=lambda: {"red": 3})

    page = scrape(service, format=Format.OPENMETRICS, is_gzip=True)

    served = {family.name: family for family in parse_openmetrics(page)}
    assert [("apples", {"kind": "red"}, 3)] == [tuple(s)[:3] for s in served["apples"].samples]
    assert "slurmscope_build" in served


def test_failing_collector_costs_only_its_own_families() -> None:
    def explode(options: NoOptions, *, apples: object) -> Iterator[Family]:
        raise ZeroDivisionError

    service = make_service(
        [enabled("apples", "apples", explode), enabled("pears", "pears", collect_pears)],
        apples=dict,
        pears=lambda: 4,
    )

    page = scrape(service)

    assert {(): 4} == values(page, "pears")
    assert {("apples",): 0, ("pears",): 1} == values(page, "slurmscope_collector_success")


def test_undeclared_metric_is_not_served() -> None:
    def stray(options: NoOptions, *, apples: object) -> Iterator[Family]:
        yield Family(STRAY, {(): 1})

    page = scrape(make_service([enabled("apples", "apples", stray)], apples=dict))

    assert {} == values(page, "stray")
    assert {("apples",): 0} == values(page, "slurmscope_collector_success")


def test_failures_of_a_collector_are_logged_once_for_each_type_of_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caplog.handler, "filters", [RepeatFilter().is_wanted])
    errors = iter((KeyError("red"), KeyError("green"), ValueError("blue"), KeyError("red")))

    def raise_next(options: NoOptions, *, apples: int) -> Iterator[Family]:
        raise next(errors)

    service = make_service([enabled("apples", "apples", raise_next)], apples=lambda: 1)
    for _ in range(4):
        _, is_success = service.expose_once(Format.TEXT)
        assert {"apples": False} == is_success

    assert [KeyError, ValueError] == [record.exc_info[0] for record in caplog.records if record.exc_info]


def test_failing_source_shows_no_zero_and_is_counted() -> None:
    service = make_service(
        [enabled("apples", "apples", collect_apples), enabled("pears", "pears", collect_pears)],
        apples=fail,
        pears=lambda: 4,
    )

    page = scrape(service)

    assert {} == values(page, "apples")
    assert {(): 4} == values(page, "pears")
    assert {("apples",): 0, ("pears",): 1} == values(page, "slurmscope_collector_success")
    assert {("apples", "timeout"): 1} == values(page, "slurmscope_reading_errors_total")


def test_fifty_parallel_scrapes_run_the_collector_once() -> None:
    runs = []

    def count_runs(options: NoOptions, *, apples: object) -> Iterator[Family]:
        runs.append(1)
        time.sleep(0.05)
        yield Family(APPLES, {("red",): 1})

    service = make_service([enabled("apples", "apples", count_runs)], apples=dict)
    pages: list[str] = []
    threads = [threading.Thread(target=lambda: pages.append(scrape(service))) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert 1 == len(runs)
    assert [{("red",): 1}] * 50 == [values(page, "apples") for page in pages]


def test_scrape_answers_at_its_deadline_while_a_source_hangs() -> None:
    gate = threading.Event()
    service = make_service(
        [enabled("apples", "apples", collect_apples), enabled("pears", "pears", collect_pears)],
        apples=lambda: gate.wait(60),
        pears=lambda: 4,
    )

    page = scrape(service, deadline_seconds=0.2)
    gate.set()

    assert {(): 4} == values(page, "pears")
    assert {("apples",): 0, ("pears",): 1} == values(page, "slurmscope_collector_success")


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(scrape, id="scrape"),
        pytest.param(lambda service: list(service.expose_once(Format.TEXT)[0]), id="textfile"),
        pytest.param(lambda service: service.collect_once(60), id="remote-write"),
    ],
)
def test_caller_that_cannot_wait_for_the_page_gets_busy(build: Callable[[PageService], object]) -> None:
    gate = threading.Event()
    started = threading.Event()

    def slow(options: NoOptions, *, apples: object) -> Iterator[Family]:
        started.set()
        gate.wait(20)
        yield Family(APPLES, {})

    service = make_service([enabled("apples", "apples", slow)], apples=dict)
    first = threading.Thread(target=build, args=(service,))
    first.start()
    started.wait(60)
    with pytest.raises(Busy):
        scrape(service, deadline_seconds=0.01)
    gate.set()
    first.join(60)


def test_collectors_can_be_chosen() -> None:
    service = make_service(
        [enabled("apples", "apples", collect_apples), enabled("pears", "pears", collect_pears)],
        apples=lambda: {"red": 1},
        pears=lambda: 4,
    )

    assert {} == values(scrape(service, include=frozenset({"pears"})), "apples")
    assert {(): 4} == values(scrape(service, include=frozenset({"pears"})), "pears")
    assert {("red",): 1} == values(scrape(service, exclude=frozenset({"pears"})), "apples")
    assert {} == values(scrape(service, exclude=frozenset({"pears"})), "pears")
    with pytest.raises(UnknownCollector):
        scrape(service, include=frozenset({"plums"}))


def test_changed_reading_gives_a_new_page() -> None:
    counts = iter([1, 2])
    service = PageService(
        [enabled("pears", "pears", collect_pears)],
        open_readings(SharedReading("pears", lambda: next(counts), interval_seconds=0)),
        guard=Guard(),
        self_families=lambda _: (),
    )

    assert ["pears 1", "pears 2"] == [scrape(service).splitlines()[2] for _ in range(2)]


def test_hidden_labels_hide_their_metrics_at_once() -> None:
    hidden: set[str] = set()

    reading = SharedReading("apples", lambda: {"red": 1}, interval_seconds=3600)
    readings = OpenFeatures(Running(readings=(reading,), hidden_labels=lambda _, __: frozenset(hidden)))
    service = PageService(
        [enabled("apples", "apples", collect_apples)], readings, guard=Guard(), self_families=lambda _: ()
    )

    assert {("red",): 1} == values(scrape(service), "apples")
    hidden.add("kind")
    assert {} == values(scrape(service), "apples")


def test_collector_that_needs_an_unknown_reading_fails_at_start() -> None:
    with pytest.raises(LookupError, match="collector apples needs the reading 'aples', which is not one of apples"):
        make_service([enabled("apples", "aples", collect_apples)], apples=dict)


def test_few_pages_are_cached() -> None:
    names = [f"c{number}" for number in range(8)]
    service = make_service([enabled(name, "pears", collect_pears) for name in names], pears=lambda: 4)

    for name in names:
        scrape(service, include=frozenset({name}))

    assert len(service._pages) <= 4


def test_families_about_slurmscope_fit_the_folder_of_a_node_exporter() -> None:
    service = make_service([enabled("pears", "pears", collect_pears)], pears=lambda: 4)

    blocks, _ = service.expose_once(Format.TEXT, lambda families: adapt_to_textfile(families, Role.NODE))
    page = b"".join(blocks).decode()

    assert {(): 4} == values(page, "pears")
    assert {("pears", "node"): 1} == values(page, "slurmscope_collector_success")
    assert "process_" not in page


def test_text_file_adds_the_role_to_all_names_that_both_exporters_have() -> None:
    families = [Family(gauge("slurmscope_trace_processes", "Processes.", "a"), [(("x",), 2.0)]), *process_families()]

    (only,) = adapt_to_textfile(families, Role.CLUSTER)

    assert (("a", "role"), {("x", "cluster"): 2.0}) == (only.metric.labels, only.samples)


def test_once_returns_which_collectors_succeeded() -> None:
    service = make_service(
        [enabled("apples", "apples", collect_apples), enabled("pears", "pears", collect_pears)],
        apples=fail,
        pears=lambda: 4,
    )

    blocks, is_success = service.expose_once(Format.TEXT)
    page = b"".join(blocks).decode()

    assert {(): 4} == values(page, "pears")
    assert {"apples": False, "pears": True} == is_success


def test_client_that_wants_ever_other_pages_delays_no_other_client() -> None:
    built: list[str] = []

    def collect_slowly(options: NoOptions, *, apples: dict[str, int]) -> Iterator[Family]:
        built.append(threading.current_thread().name)
        time.sleep(0.05)
        yield from collect_apples(options, apples=apples)

    names = [f"c{number}" for number in range(30)]
    service = make_service([enabled(name, "apples", collect_slowly) for name in names], apples=lambda: {"red": 1})

    def get(group: str, *include: str) -> None:
        b"".join(service.scrape(ScrapeRequest(include=frozenset(include), group=group, deadline_seconds=60)))

    hostile = [threading.Thread(target=get, args=("hostile", name), name="hostile") for name in names[1:]]
    for thread in hostile:
        thread.start()
    until(lambda: built)
    prometheus = threading.Thread(target=get, args=("prometheus", names[0]), name="prometheus")
    prometheus.start()
    for thread in (*hostile, prometheus):
        thread.join(60)

    # The one that is being built, and one that may begin before the thread waits; not all twenty-nine.
    assert built.index("prometheus") <= 4
