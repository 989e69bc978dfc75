# SPDX-License-Identifier: Apache-2.0
"""Replay many pushes, one after the other, to our inbox and to Debian's Pushgateway: status and page are the same.

Each request is sent to both. What differs on purpose is in ``DIFFERENT``, with our status and the reason.
"""

from __future__ import annotations

import gzip
import http.client
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab.prometheus import run_pushgateway
from lab.waiting import wait_until
from tests.fakes import protobuf_metrics as pb
from tests.processes import serving

TIMES = {"push_time_seconds", "push_failure_time_seconds"}
PROTOBUF = {"Content-Type": pb.CONTENT_TYPE}
GZIP = {"Content-Encoding": "gzip"}
GAUGE = pb.family("g", pb.GAUGE, pb.simple(pb.GAUGE, 1.5, a="b"), help="Some \\ help\nof two lines.")


@dataclass(frozen=True, slots=True)
class Push:
    """One request; ``name`` says what it tries."""

    name: str
    body: bytes
    path: str = "/metrics/job/x"
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "PUT"


def text(name: str, body: str, path: str = "/metrics/job/x", method: str = "PUT") -> Push:
    return Push(name, body.encode(), path, {}, method)


def proto(name: str, *families: bytes, method: str = "PUT") -> Push:
    return Push(name, b"".join(families), "/metrics/job/x", PROTOBUF, method)


H = "# TYPE h histogram\n"
END = "h_sum 3\nh_count 2\n"
S = "# TYPE s summary\n"
NUMBERS = (math.inf, -math.inf, math.nan, 1e300)
ONE = pb.block(2, pb.double(1, 1))


def label(name: bytes, value: bytes) -> bytes:
    return pb.block(1, pb.block(1, name) + pb.block(2, value))


PUSHES = (
    text("bucket bounds are numbers", H + 'h_bucket{le="1.0"} 1\nh_bucket{le="1e6"} 2\nh_bucket{le="+Inf"} 2\n' + END),
    text("long bounds", H + 'h_bucket{le="1234567"} 1\nh_bucket{le="0.00001"} 1\nh_bucket{le="inf"} 2\n' + END),
    text("bounds that are the same number twice", H + 'h_bucket{le="1"} 1\nh_bucket{le="1.0"} 1\n' + END),
    text("no infinite bucket", H + 'h_bucket{le="1"} 1\n' + END),
    text("buckets only", H + 'h_bucket{le="1"} 1\n'),
    text("sum only", H + "h_sum 3\n"),
    text("count only, with labels", H + 'h_count{a="1"} 3\nh_count{a="2"} 4\n'),
    text("bound that is no number", H + 'h_bucket{le="x"} 1\nh_count 1\nh_sum 1\n'),
    text("bucket without a bound", H + "h_bucket 1\nh_count 1\nh_sum 1\n"),
    text("bound that is empty", H + 'h_bucket{le=""} 1\nh_count 1\nh_sum 1\n'),
    text("le of a gauge is a label", '# TYPE g gauge\ng{le="x"} 1\ng{le="1.0"} 2\n'),
    text("quantiles are numbers", S + 's{quantile="0.50"} 1\ns{quantile="1"} 2\ns_sum 3\ns_count 2\n'),
    text("quantile that is no number", S + 's{quantile="x"} 1\ns_sum 3\ns_count 2\n'),
    text("summary without a quantile", S + "s 1\ns_sum 3\ns_count 2\n"),
    text("summary of a sum only", S + "s_sum 3\n"),
    text("quantile of a gauge is a label", '# TYPE g gauge\ng{quantile="x"} 1\n'),
    text("name of a recording rule", 'slurm_job:jobs_cores:sum{slurm_job="1"} 1\n'),
    text("metric of another exporter", 'lustre_job_read_bytes_total{jobid="1"} 1\n'),
    text("escapes", 'g{a="\\\\ \\n \\""} 1\n'),
    text("bad escape in a label", 'g{a="\\x"} 1\n'),
    text("bad escape in a help text", "# HELP g A \\x.\ng 1\n"),
    text("bad escape in a comment", "# A \\x.\ng 1\n"),
    text("bad escape after an escaped backslash", 'g{a="\\\\\\x"} 1\n'),
    text("time of a push in the body", "push_time_seconds 5\ng 1\n"),
    text("time of a failure", "# TYPE push_failure_time_seconds counter\npush_failure_time_seconds 5\ng 1\n"),
    text("time of a push only", "# TYPE push_time_seconds gauge\npush_time_seconds 5\n"),
    text("le as a label of the group", "g 1\n", "/metrics/job/x/le/5"),
    text("quantile as a label of the group", "g 1\n", "/metrics/job/x/quantile/0.5"),
    text("le as a label of a group with a histogram", H + "h_count 1\nh_sum 1\n", "/metrics/job/x/le/5"),
    text("quantile as a label of a group with a summary", S + "s_count 1\ns_sum 1\n", "/metrics/job/x/quantile/0.5"),
    text("one label of the group twice", "g 1\n", "/metrics/job/x/a/1/a/2"),
    text("label of the group that the body has, too", 'g{a="1"} 1\n', "/metrics/job/x/a/2"),
    text("reserved label of the group", "g 1\n", "/metrics/job/x/__a/2"),
    text("label of the group with a dash", "g 1\n", "/metrics/job/x/a-b/2"),
    text("empty label", 'g{a=""} 1\n'),
    text("no job", "g 1\n", "/metrics/job/"),
    Push("gzip", gzip.compress(b"g 1\n"), headers=GZIP),
    Push("gzip of two members", gzip.compress(b"g 1\n") + gzip.compress(b"k 2\n"), headers=GZIP),
    Push("gzip of three members, cut inside a line", b"".join(map(gzip.compress, (b"g ", b"1", b"\n"))), headers=GZIP),
    Push("gzip that is cut", gzip.compress(b"g 1\n")[:-1], headers=GZIP),
    Push("gzip with garbage behind it", gzip.compress(b"g 1\n") + b"xyz", headers=GZIP),
    Push("gzip with zeros behind it", gzip.compress(b"g 1\n") + bytes(20), headers=GZIP),
    Push("no gzip", b"g 1\n", headers=GZIP),
    Push("nothing instead of gzip", b"", headers=GZIP),
    Push("gzip of nothing", gzip.compress(b""), headers=GZIP),
    Push("gzip of protobuf", gzip.compress(GAUGE), headers={**GZIP, **PROTOBUF}),
    proto("gauge", GAUGE),
    proto("all simple types", *(pb.family(f"t{n}", n, pb.simple(n, n)) for n in (pb.COUNTER, pb.GAUGE, pb.UNTYPED))),
    proto("type that is left out", pb.family("c", None, pb.simple(pb.COUNTER, 3))),
    proto("special numbers", pb.family("g", pb.GAUGE, *(pb.simple(pb.GAUGE, one, n=str(one)) for one in NUMBERS))),
    proto("histogram", pb.family("h", pb.HISTOGRAM, pb.histogram(3, 4.5, [(1, 1), (2.5, 2), (math.inf, 3)], a="b"))),
    proto("histogram without an infinite bucket", pb.family("h", pb.HISTOGRAM, pb.histogram(3, 4.5, [(1e6, 1)]))),
    proto("histogram without buckets", pb.family("h", pb.HISTOGRAM, pb.histogram(3, 4.5, []))),
    proto("summary", pb.family("s", pb.SUMMARY, pb.summary(3, 4.5, [(0.5, 1), (0.99, 2)], a="b"))),
    proto("summary without quantiles", pb.family("s", pb.SUMMARY, pb.summary(3, 4.5, []))),
    proto("family of another type than its metrics", pb.family("g", pb.GAUGE, pb.simple(pb.COUNTER, 1))),
    proto("timestamp", pb.family("g", pb.GAUGE, pb.metric(pb.GAUGE, pb.double(1, 1), timestamp_ms=5))),
    proto("family without metrics", pb.family("g", pb.GAUGE)),
    proto("one series twice", pb.family("g", pb.GAUGE, pb.simple(pb.GAUGE, 1), pb.simple(pb.GAUGE, 2))),
    proto("one family twice", GAUGE, pb.family("g", pb.GAUGE, pb.simple(pb.GAUGE, 2))),
    proto("label that is given twice", pb.family("g", pb.GAUGE, label(b"a", b"b") * 2 + ONE)),
    proto("unknown fields", pb.family("g", pb.GAUGE, ONE + pb.block(99, b"x") + pb.number(98, 300) + pb.double(97, 1))),
    proto("name that is not valid", pb.family("g-1", pb.GAUGE, pb.simple(pb.GAUGE, 1))),
    proto("label that is not valid", pb.family("g", pb.GAUGE, pb.simple(pb.GAUGE, 1, **{"a-b": "c"}))),
    proto("label that is not UTF-8", pb.family("g", pb.GAUGE, label(b"a", b"\xff") + ONE)),
    proto("message that is cut", GAUGE[:-1]),
    proto("length beyond the body", b"\x7f" + GAUGE),
    proto("nothing"),
    proto("garbage", b"this is not protobuf"),
    proto("added family", pb.family("k", pb.GAUGE, pb.simple(pb.GAUGE, 2)), method="POST"),
    Push("protobuf without its parameters", GAUGE, headers={"Content-Type": "application/vnd.google.protobuf"}),
    Push("text of an unknown type", b"g 1\n", headers={"Content-Type": "application/json"}),
    text("last line without its end", "g 1"),
    text("two types of one family", "# TYPE g gauge\n# TYPE g counter\ng 1\n"),
    text("type after a sample", "g 1\n# TYPE g gauge\n"),
    text("numbers", "a 1e3\nb 0x10\nc 1_0\nd +5\ne .5\nf 5.\n"),
    text("hexadecimal number", "b 0x10p-2\n"),
    text("commas", 'g{a="1",} 1\n'),
    text("comma only", "g{,} 1\n"),
    text("deletion", "", method="DELETE"),
    text("deletion of a group that is not there", "", "/metrics/job/none", method="DELETE"),
)  # fmt: skip
DIFFERENT = {
    "bounds that are the same number twice": (400, "the page of the original has the series twice"),
    "le as a label of a group with a histogram": (400, "the page of the original has the label twice"),
    "name that is not valid": (400, "the page of the original cannot be parsed any more"),
    "no job": (400, "the original redirects to /metrics/job"),
    "name of a recording rule": (400, "with honor_labels it would pass for what Prometheus computed"),
    "metric of another exporter": (400, "with honor_labels it would pass for the use of another job"),
    "gzip that is cut": (400, "the original takes what it got"),
    "gzip with garbage behind it": (400, "the original takes what comes before"),
}
WITHOUT_TIME = {
    "family of another type than its metrics",
    "label that is given twice",
    "label that is not valid",
    "label that is not UTF-8",
}
"""What we refuse while it is parsed, so that no time of a failure is kept, and the original later."""


class Gateway:
    """One of the two servers."""

    def __init__(self, host: str) -> None:
        self.host = host

    def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def page(self) -> dict[tuple[str, str, frozenset[tuple[str, str]]], object]:
        """Return type and value of every pushed series; empty labels are none, and times only exist."""
        found: dict[tuple[str, str, frozenset[tuple[str, str]]], object] = {}
        for family in text_string_to_metric_families(self.send("GET", "/metrics")[1].decode()):
            for sample in family.samples:
                if "job" in sample.labels:
                    labels = frozenset(item for item in sample.labels.items() if item[1])
                    value = "some time" if family.name in TIMES else repr(float(sample.value))
                    found[family.type, sample.name, labels] = (
                        value,
                        "" if family.name in TIMES else family.documentation,
                    )
        return found


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Gateway]]:
    folder: Path = tmp_path_factory.mktemp("replay")
    with (
        run_pushgateway(folder) as original,
        serving("cluster", "--slurm.bin-path", str(folder), "--push-inbox.enabled") as ours,
    ):
        yield Gateway(original.url.removeprefix("http://")), Gateway(ours.addresses[0])


@pytest.fixture
def both(gateways: tuple[Gateway, Gateway]) -> Iterator[tuple[Gateway, Gateway]]:
    yield gateways
    for gateway in gateways:
        for path in sorted({push.path for push in PUSHES}):
            gateway.send("DELETE", path)
        wait_until(lambda g=gateway: b'job="x"' not in g.send("GET", "/metrics")[1], "no groups", timeout_seconds=30)  # type: ignore[misc]


@pytest.mark.parametrize("push", PUSHES, ids=lambda push: push.name)
def test_response_and_page_are_those_of_the_original(both: tuple[Gateway, Gateway], push: Push) -> None:
    (expected, why), (status, message) = (
        gateway.send(push.method, push.path, push.body, push.headers) for gateway in both
    )
    if push.name in DIFFERENT:
        assert (DIFFERENT[push.name][0], True) == (status, expected != status), message
        return
    assert expected == status, (why, message)
    if push.name not in WITHOUT_TIME:
        wait_until(lambda: both[0].page() == both[1].page(), "the same page", timeout_seconds=30)
