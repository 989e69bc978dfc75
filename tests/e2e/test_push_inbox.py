# SPDX-License-Identifier: Apache-2.0
"""Push the same to our inbox and to Prometheus' own Pushgateway: responses and pages must be the same.

The page is read by a parser that is not ours. Neither side needs Slurm.
"""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Summary,
    delete_from_gateway,
    push_to_gateway,
    pushadd_to_gateway,
)
from prometheus_client.parser import text_string_to_metric_families

from lab.prometheus import Server, run_prometheus, run_pushgateway
from lab.requirements import find_program
from lab.waiting import wait_until
from slurmscope.exporter.outputs import PushGateway
from tests.processes import Exporter, serving, until

TIMES = {"push_time_seconds", "push_failure_time_seconds"}
HOSTILE = ("a b", "a+b", "a/b", "", "%2F", "?x=1#y", '"\\\n\t', "ünï日本", "@base64", "=", "~")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Hold what was pushed: types and help by family, values by series, without empty labels."""

    families: dict[str, tuple[str, str]]
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]


def read_page(text: str) -> Page:
    families: dict[str, tuple[str, str]] = {}
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in (sample for sample in family.samples if "job" in sample.labels):
            is_time = family.name in TIMES
            families[family.name] = (family.type, "" if is_time else family.documentation)
            key = (sample.name, frozenset(normal(name, value) for name, value in sample.labels.items() if value))
            assert key not in samples
            samples[key] = float(sample.value > 0) if is_time else sample.value
    return Page(families=families, samples=samples)


def normal(name: str, value: str) -> tuple[str, str]:
    """Bounds of buckets are numbers, which Go and Python write differently."""
    return name, repr(float(value)) if name == "le" else value


@dataclass(frozen=True, slots=True)
class Gateway:
    """Reach one of the two."""

    url: str
    get: Callable[[], str]

    def curl(self, method: str, path: str, body: bytes = b"", *flags: str) -> int:
        argv = [find_program("curl", "curl"), "--silent", "--noproxy", "*", "--output", "/dev/null", "--write-out"]
        argv += [
            "%{http_code}",
            "--max-time",
            "60",
            "--request",
            method,
            *flags,
            "--data-binary",
            "@-",
            self.url + path,
        ]
        return int(subprocess.run(argv, input=body, capture_output=True, check=True).stdout)

    def page(self) -> Page:
        return read_page(self.get())


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[tuple[Gateway, Gateway]]:
    with run_pushgateway(tmp_path) as original, serve_inbox(tmp_path) as ours:
        yield (
            Gateway(original.url, lambda: original.get("/metrics").decode()),
            Gateway(f"http://{ours.addresses[0]}", lambda: ours.get()[1]),
        )


def serve_inbox(folder: Path, *flags: str) -> AbstractContextManager[Exporter]:
    return serving("cluster", "--slurm.bin-path", str(folder), "--push-inbox.enabled", *flags)


def registry(value: float) -> CollectorRegistry:
    made = CollectorRegistry()
    Gauge("backup_size_bytes", 'Size\nof "it" \\.', ["disk"], registry=made).labels('a"\\\n').set(value)
    Counter("backup_files", "Files.", registry=made).inc(value)
    Histogram("backup_seconds", "Duration.", buckets=(1, 1e6), registry=made).observe(value)
    Summary("backup_wait", "Wait.", ["step"], registry=made).labels("one").observe(value)
    Gauge("backup_rest", "Rest.", registry=made).set(float("-inf"))
    return made


def compare(gateways: tuple[Gateway, Gateway], act: Callable[[Gateway], object]) -> object:
    """Do the same to both, and return what came back; the pages must be equal."""
    results = [act(gateway) for gateway in gateways]
    assert results[0] == results[1]
    # The original accepts a deletion first and does it a moment later.
    wait_until(lambda: gateways[0].page() == gateways[1].page(), "the same page on both sides", timeout_seconds=30)
    return results[0]


def test_client_library_leaves_the_same_page(gateways: tuple[Gateway, Gateway]) -> None:
    first, second = registry(2.5), registry(7)
    other = CollectorRegistry()
    Gauge("backup_last_success", "Last.", registry=other).set(5)

    compare(gateways, lambda g: push_to_gateway(g.url, job="backup", registry=first))
    assert 15 == len(gateways[1].page().samples)
    compare(gateways, lambda g: pushadd_to_gateway(g.url, job="backup", registry=other))
    compare(gateways, lambda g: push_to_gateway(g.url, job="backup", registry=second, grouping_key={"instance": "n1"}))
    compare(gateways, lambda g: push_to_gateway(g.url, job="a/b", registry=second, compression="gzip"))
    compare(gateways, lambda g: push_to_gateway(g.url, job="backup", registry=other))
    compare(gateways, lambda g: delete_from_gateway(g.url, job="backup", grouping_key={"instance": "n1"}))
    compare(gateways, lambda g: delete_from_gateway(g.url, job="nothing"))
    for job in ("backup", "a/b"):
        compare(gateways, lambda g, job=job: delete_from_gateway(g.url, job=job))  # type: ignore[misc]
    assert {} == gateways[1].page().samples


def test_hostile_labels_name_the_same_groups(gateways: tuple[Gateway, Gateway]) -> None:
    one = CollectorRegistry()
    Gauge("one", "One.", registry=one).set(1)
    for value in HOSTILE:
        compare(gateways, lambda g, v=value: push_to_gateway(g.url, job="x", registry=one, grouping_key={"y": v}))  # type: ignore[misc]
    assert {value for value in HOSTILE if value} <= {
        value for name, labels in gateways[1].page().samples if name == "one" for key, value in labels
    } | {"a+b"}


def test_default_registry_of_a_program_stands_beside_our_own_metrics(gateways: tuple[Gateway, Gateway]) -> None:
    push_to_gateway(gateways[1].url, job="program", registry=REGISTRY)
    pushed = gateways[1].page()
    assert ("process_open_fds", frozenset({("job", "program")})) in pushed.samples
    assert 1 == gateways[1].get().count("\nprocess_open_fds ")


def test_curl_gets_the_same_responses_and_leaves_the_same_page(gateways: tuple[Gateway, Gateway]) -> None:
    zipped = ("--header", "Content-Encoding: gzip")
    calls: list[tuple[int, str, str, bytes, tuple[str, ...]]] = [
        (200, "POST", "/metrics/job/one", b'a{job="zz",x="1"} 1\n', ()),
        (200, "PUT", "/metrics/job/two/job/b", b"a 1\n", ()),
        (200, "PUT", "/metrics/job/two/x/1/x/2", b"a 1\n", ()),
        (200, "PUT", "/metrics/job@base64/YWI=", b"a 1\n", ()),
        (200, "PUT", "/metrics/job/slash/", b"a 1\n", ()),
        (200, "PUT", "/metrics/job/gzip", gzip.compress(b"g 1\n"), zipped),
        (200, "PUT", "/metrics/job/empty", b"", ()),
        (200, "PUT", "/metrics/job/only-a-header", b"# TYPE a counter\n", ()),
        (200, "PUT", "/metrics/job/help", b"# HELP a Other.\na 1\n# TYPE s summary\ns_sum 1\ns_count 1\n", ()),
        (400, "PUT", "/metrics/job/type", b"# TYPE a gauge\na 1\n", ()),
        (400, "PUT", "/metrics/job/twice", b"a 1\na 2\n", ()),
        (400, "PUT", "/metrics/job/timestamp", b"t 1 1000\n", ()),
        (400, "PUT", "/metrics/job/suffix", b"s_count 1\n", ()),
        (400, "PUT", "/metrics/job/own-type", b"process_open_fds 1\n", ()),
        (400, "PUT", "/metrics/job/cut", b"a 1", ()),
        (400, "PUT", "/metrics/job/odd/x", b"a 1\n", ()),
        (400, "PUT", "/metrics/job/name/__x/1", b"a 1\n", ()),
        (400, "PUT", "/metrics/job@base64/=", b"a 1\n", ()),
        (400, "PUT", "/metrics/job@base64/a+b", b"a 1\n", ()),
        (200, "PUT", "/metrics/job/m", b'm{instance="i"} 1\n', ()),
        (400, "PUT", "/metrics/job/m/instance/i", b"m 1\n", ()),
        (200, "POST", "/metrics/job/two/x/2", b"b 1\n", ()),
        (400, "POST", "/metrics/job/two/x/2", b"# TYPE b gauge\nb 1\n# TYPE a gauge\na 2\n", ()),
        (202, "DELETE", "/metrics/job/one", b"", ()),
        (202, "DELETE", "/metrics/job/nothing", b"", ()),
        (400, "DELETE", "/metrics/job/nothing/x", b"", ()),
        (405, "GET", "/metrics/job/two", b"", ()),
    ]
    for status, method, path, body, flags in calls:
        act: Callable[[Gateway], int] = lambda g, c=(method, path, body, flags): g.curl(c[0], c[1], c[2], *c[3])  # type: ignore[misc]  # noqa: E731
        assert status == compare(gateways, act), (method, path, body)


def test_client_of_our_own_node_agent_can_use_the_inbox(gateways: tuple[Gateway, Gateway]) -> None:
    client = PushGateway(url=gateways[1].url, job="slurmscope")
    client.put([b"# TYPE RSS gauge\nRSS 1\n"])
    assert 1 == len([key for key in gateways[1].page().samples if key[0] == "RSS"])
    client.delete_left_over()
    assert {} == gateways[1].page().samples


def test_group_that_breaks_the_page_of_the_original_costs_only_itself(gateways: tuple[Gateway, Gateway]) -> None:
    ours = gateways[1]
    assert 200 == ours.curl("PUT", "/metrics/job/x", b"a 1\n")
    assert 200 == ours.curl("PUT", "/metrics/job/x/instance/", b"a 2\n")
    assert 400 == ours.curl("PUT", "/metrics/job/x/y/%ff", b"a 3\n")
    assert 2.0 == ours.page().samples["a", frozenset({("job", "x")})]


def test_accepted_pushes_survive_a_kill(tmp_path: Path) -> None:
    flags = ("--push-inbox.directory", str(tmp_path / "inbox"))
    with serve_inbox(tmp_path, *flags) as first:
        reach = reached(first)
        for number in range(20):
            assert 200 == reach.curl("PUT", f"/metrics/job/x/n/{number}", f"a {number}\n".encode())
        assert 202 == reach.curl("DELETE", "/metrics/job/x/n/7")
        assert 400 == reach.curl("PUT", "/metrics/job/bad", b"slurm_up 1\n")
        before = reach.page()
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait(60)
    # 19 numbers, and two times of each group, of which one was only refused.
    assert 19 + 2 * 20 == len(before.samples)

    with serve_inbox(tmp_path, *flags) as second:
        assert before == reached(second).page()
        assert 200 == reached(second).curl("POST", "/metrics/job/x/n/3", b"b 1\n")


def test_reload_keeps_what_was_pushed(tmp_path: Path) -> None:
    with serve_inbox(tmp_path) as running:
        assert 200 == reached(running).curl("PUT", "/metrics/job/x", b"a 1\n")
        before = reached(running).page()
        running.process.send_signal(signal.SIGHUP)
        until(lambda: any("configuration reloaded" in line for line in running.log))
        assert before == reached(running).page()
        assert 200 == reached(running).curl("POST", "/metrics/job/x", b"b 1\n")


def test_remote_write_sends_what_a_scrape_with_honor_labels_finds(tmp_path: Path) -> None:
    def stored(server: Server) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        found = {}
        for sample in server.query('{job=~"backup|x"}'):
            name = sample.labels["__name__"]
            labels = frozenset(normal(*item) for item in sample.labels.items() if item[0] != "__name__")
            found[name, labels] = float(sample.value > 0) if name in TIMES else sample.value
        return found

    with run_prometheus(tmp_path / "prometheus", "", "--web.enable-remote-write-receiver") as server:
        flags = ("--output.remote-write", f"{server.url}/api/v1/write", "--interval", "200ms")
        with serve_inbox(tmp_path, *flags) as exporter:
            gateway = reached(exporter)
            push_to_gateway(gateway.url, "backup", registry(3), {"instance": "db1"})
            assert 200 == gateway.curl("PUT", "/metrics/job/x", b"# TYPE process_open_fds gauge\nprocess_open_fds 3\n")
            assert len(gateway.page().samples) > 10
            until(lambda: gateway.page().samples == stored(server))
            assert {1.0} == {sample.value for sample in server.query('up{job="slurm"}')}
            gateway.curl("DELETE", "/metrics/job/backup/instance/db1")
            # At once, and not after five minutes.
            until(lambda: gateway.page().samples == stored(server))


def test_push_that_is_cut_off_by_a_kill_leaves_the_old_group_or_the_new_one(tmp_path: Path) -> None:
    flags = ("--push-inbox.directory", str(tmp_path / "inbox"))
    old = 1.0
    for new in (2.0, 3.0, 4.0):
        with serve_inbox(tmp_path, *flags) as running:
            reach = reached(running)
            assert 200 == reach.curl("PUT", "/metrics/job/x", page_of(old))
            argv = [
                find_program("curl", "curl"),
                "--silent",
                "--noproxy",
                "*",
                "--request",
                "PUT",
                "--data-binary",
                "@-",
            ]
            with subprocess.Popen([*argv, f"{reach.url}/metrics/job/x"], stdin=subprocess.PIPE) as pushing:
                assert pushing.stdin is not None
                pushing.stdin.write(page_of(new))
                pushing.stdin.close()
                os.kill(running.process.pid, signal.SIGKILL)
                pushing.wait(60)
            running.process.wait(60)
        with serve_inbox(tmp_path, *flags) as again:
            values = [value for (name, _), value in reached(again).page().samples.items() if name == "a"]
        assert values in ([old] * 1000, [new] * 1000)
        old = new


def page_of(value: float) -> bytes:
    return "".join(f'a{{n="{number}"}} {value}\n' for number in range(1000)).encode()


def reached(exporter: Exporter) -> Gateway:
    return Gateway(f"http://{exporter.addresses[0]}", lambda: exporter.get()[1])
