# SPDX-License-Identifier: Apache-2.0
"""Check the Pushgateway client against gateways that answer, reject, stall and disconnect."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

import psutil
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import delete_from_gateway, push_to_gateway

from slurmscope.core.errors import ConfigError, OutputError
from slurmscope.exporter.outputs import PushGateway, _group_path
from tests.fakes.scripted_server import read_whole_request, scripted_server

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
LABELS = st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda n: n != "job"), st.text())


class Seen(NamedTuple):
    """Hold one request to a gateway."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class FakeGateway:
    """Return the next of ``answers``, or else a successful one."""

    answers: list[tuple[int, bytes]] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    further_header: bytes = b""
    url: str = ""

    def handle(self, connection: socket.socket) -> None:
        request = read_whole_request(connection)
        method, path, _ = request.line.split()
        self.seen.append(Seen(method, path, request.headers, request.body))
        status, text = self.answers.pop(0) if self.answers else (200, b"")
        head = b"HTTP/1.1 %d Words\r\nContent-Length: %d\r\n" % (status, len(text))
        connection.sendall(head + self.further_header + b"\r\n" + text)

    @contextlib.contextmanager
    def serving(self) -> Iterator[FakeGateway]:
        with scripted_server(self.handle) as self.url:
            yield self


@pytest.fixture
def fake() -> Iterator[FakeGateway]:
    with FakeGateway().serving() as gateway:
        yield gateway


def gateway(url: str, **settings: object) -> PushGateway:
    """Return a client that does not sleep."""
    defaults: dict[str, object] = {"job": "slurmscope", "sleep": lambda _: None}
    return PushGateway(url=url, **{**defaults, **settings})  # type: ignore[arg-type]


def refused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def read_path(path: str) -> list[tuple[str, str]]:
    """Read a path by the rule of the gateway's manual: pairs of name and value, base64 where the name says so."""
    parts = path.removeprefix("/metrics/").split("/")
    pairs = []
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        plain = name.removesuffix("@base64")
        decoded = base64.urlsafe_b64decode("" if value == "=" else value).decode() if plain != name else unquote(value)
        pairs.append((plain, decoded))
    return pairs


class TestPath:
    @given(job=st.text(min_size=1), grouping=LABELS)
    def test_path_decodes_to_the_labels(self, job: str, grouping: dict[str, str]) -> None:
        assert [("job", job), *sorted(grouping.items())] == read_path(_group_path({**grouping, "job": job}))

    @example(job=".", grouping={"x": "..", "y": "", "z": "../.."})
    @given(job=st.text(min_size=1), grouping=LABELS)
    def test_no_value_adds_or_removes_path_segments(self, job: str, grouping: dict[str, str]) -> None:
        parts = _group_path({**grouping, "job": job}).split("/")
        assert 4 + 2 * len(grouping) == len(parts)
        assert not {"", ".", ".."} & set(parts[1:])
        assert all(part.isascii() and part.isprintable() and " " not in part for part in parts)

    @pytest.mark.parametrize(
        "value", ["n1", "a/b", "", "/", "ünï", "a+b&c?d#e%2F", '"\n\0', "n1.cluster-2_x~y", "日本", "a" * 300]
    )
    def test_path_is_that_of_the_reference_client(self, fake: FakeGateway, value: str) -> None:
        # It writes a space as +, which the gateway takes for a plus, and leaves . and .. in the path;
        # both are left out here.
        grouping = {"b": value, "instance": value or "x"}
        push_to_gateway(fake.url, value or "job", CollectorRegistry(), grouping)
        delete_from_gateway(fake.url, value or "job", grouping)
        ours = PushGateway(url=fake.url, job=value or "job", grouping=grouping)
        ours.put([])
        ours.delete()
        expected, actual = [(seen.method, seen.path) for seen in fake.seen[:2]], fake.seen[2:]
        assert expected == [(seen.method, seen.path) for seen in actual]

    @given(ANY_TEXT.filter(bool))
    def test_invalid_utf_8_is_replaced(self, value: str) -> None:
        labels = gateway("http://localhost:1", job=value, grouping={"x": value})._labels
        expected = value.encode("utf-8", "replace").decode()
        assert {"job": expected, "x": expected} == dict(read_path(_group_path(labels)))


class TestSettings:
    @pytest.mark.parametrize(
        "url",
        [
            "", "localhost:9091", "ftp://localhost:9091", "http://", "http://:9091", "http://host:port", "http://h:0",
            "http://host:99999", "http://[::1", "http://ho st:1", "http://höst:1", "http://h:1/a b", "http://h:1/?q=1",
            "http://h:1/#f", "http://user:secret@h:port",
        ],
    )  # fmt: skip
    def test_invalid_url_is_rejected_and_not_repeated(self, url: str) -> None:
        with pytest.raises(ConfigError, match=r"http://\[USER:PASSWORD@\]HOST:PORT") as caught:
            gateway(url)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("name", ["job", "", "0x", "a-b", "a/b", "__name__", "ä", "a\n"])
    def test_invalid_label_is_rejected(self, name: str) -> None:
        with pytest.raises(ConfigError, match="is not a valid grouping label for a push"):
            gateway("http://localhost:1", grouping={name: "x"})

    def test_empty_job_is_rejected(self) -> None:
        with pytest.raises(ConfigError, match="job name"):
            gateway("http://localhost:1", job="")

    def test_password_is_never_shown(self) -> None:
        client = gateway(refused_url().replace("//", "//alice:geheim@"), attempts=1)
        assert "geheim" not in repr(client)
        with pytest.raises(OutputError) as caught:
            client.put([b"a 1\n"])
        assert "geheim" not in str(caught.value)
        assert "alice" not in str(caught.value)


class TestExchange:
    def test_whole_page_is_sent(self, fake: FakeGateway) -> None:
        gateway(fake.url, grouping={"instance": "n1"}).put([b"a 1\n", b"b 2\n"])
        (seen,) = fake.seen
        assert ("PUT", "/metrics/job/slurmscope/instance/n1", b"a 1\nb 2\n") == (seen.method, seen.path, seen.body)
        assert "text/plain; version=0.0.4; charset=utf-8" == seen.headers["Content-Type"]
        assert fake.url == f"http://{seen.headers['Host']}"

    def test_prefix_and_credentials_are_used(self, fake: FakeGateway) -> None:
        url = fake.url.replace("//", "//al%20ice:p%40ss%3Aw%C3%B6rd@") + "/gate/"
        gateway(url).delete()
        (seen,) = fake.seen
        assert ("DELETE", "/gate/metrics/job/slurmscope") == (seen.method, seen.path)
        scheme, _, credentials = seen.headers["Authorization"].partition(" ")
        assert ("Basic", "al ice:p@ss:wörd") == (scheme, base64.b64decode(credentials).decode())

    def test_ipv6_address_is_supported(self) -> None:
        fake = FakeGateway()
        try:
            with scripted_server(fake.handle, host="::1") as url:
                gateway(url).delete()
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
        assert [url] == [f"http://{seen.headers['Host']}" for seen in fake.seen]

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429])
    def test_rejection_is_reported_and_not_retried(self, fake: FakeGateway, status: int) -> None:
        fake.answers = [(status, b"pushed metrics are \x1b[31minvalid\nsecond line\n")]
        with pytest.raises(OutputError) as caught:
            gateway(fake.url).put([b"a 1\n"])
        sentence = f"{fake.url} answered {status}: pushed metrics are \\u001b[31minvalid\\nsecond line"
        assert sentence == str(caught.value)
        assert 1 == len(fake.seen)

    def test_redirect_is_not_followed(self, fake: FakeGateway) -> None:
        fake.answers = [(307, b"")]
        fake.further_header = f"Location: {fake.url}/elsewhere\r\n".encode()
        with pytest.raises(OutputError, match="answered 307: Words"):
            gateway(fake.url.replace("//", "//alice:secret@")).put([b"a 1\n"])
        assert ["/metrics/job/slurmscope"] == [seen.path for seen in fake.seen]

    def test_long_error_text_is_truncated(self, fake: FakeGateway) -> None:
        fake.answers = [(400, b"x" * 10_000_000)]
        with pytest.raises(OutputError) as caught:
            gateway(fake.url).put([b"a 1\n"])
        assert len(str(caught.value)) < 1000

    def test_early_rejection_of_a_large_page_is_reported(self) -> None:
        def refuse(connection: socket.socket) -> None:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large")
            time.sleep(0.2)  # then the connection breaks, with most of the page unsent

        with scripted_server(refuse) as url, pytest.raises(OutputError, match="answered 413: too large"):
            gateway(url, attempts=1).put([b"x" * 65536] * 300)

    @pytest.mark.parametrize(
        "answer",
        [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000, b"\0" * 100],
    )
    def test_invalid_http_is_reported(self, answer: bytes) -> None:
        def handle(connection: socket.socket) -> None:
            connection.recv(4096)
            connection.sendall(answer)

        with (
            scripted_server(handle) as url,
            pytest.raises(OutputError, match=r"^PUT failed after 2 attempts: http.") as c,
        ):
            gateway(url, attempts=2).put([b"a 1\n"])
        assert str(c.value).isprintable()


class TestRetries:
    def test_temporary_failure_is_retried(self, fake: FakeGateway) -> None:
        fake.answers = [(503, b"busy"), (500, b""), (200, b"")]
        gateway(fake.url).put([b"a 1\n"])
        assert [b"a 1\n"] * 3 == [seen.body for seen in fake.seen]

    def test_number_of_attempts_and_last_failure_are_reported(self, fake: FakeGateway) -> None:
        fake.answers = [(503, b"busy")] * 9
        with pytest.raises(OutputError) as caught:
            gateway(fake.url, attempts=3).put([b"a 1\n"])
        assert f"PUT failed after 3 attempts: {fake.url} answered 503: busy" == str(caught.value)
        assert 3 == len(fake.seen)

    def test_pauses_grow(self) -> None:
        pauses: list[float] = []
        with pytest.raises(OutputError):
            gateway(refused_url(), attempts=4, sleep=pauses.append).delete()
        assert [True] * 3 == [
            longest / 2 <= pause <= longest for pause, longest in zip(pauses, (0.5, 1, 2), strict=True)
        ]

    def test_deadline_ends_the_retries(self) -> None:
        now = [100.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        client = gateway(refused_url(), attempts=99, deadline_seconds=10.0, sleep=sleep, clock=lambda: now[0])
        with pytest.raises(OutputError, match=r"after [5-9] attempts"):  # pauses of up to 0.5, 1, 2, 4, 5, 5 …
            client.delete()
        assert now[0] < 110

    def test_shutdown_ends_the_retries(self) -> None:
        is_stopping = threading.Event()
        is_stopping.set()
        with pytest.raises(OutputError, match="after 1 attempt:"):
            gateway(refused_url(), attempts=99, sleep=is_stopping.wait).delete()

    def test_gateway_that_sends_byte_by_byte_times_out(self) -> None:
        # Each byte comes within the socket's own limit, so only a limit for the whole can end this.
        def send_slowly(connection: socket.socket) -> None:
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            for _ in range(600):
                connection.sendall(b"x")
                time.sleep(0.05)

        with scripted_server(send_slowly) as url:
            started = time.monotonic()
            with pytest.raises(OutputError, match="timed out"):
                gateway(url, attempts=1, timeout_seconds=0.3).put([b"a 1\n"])
            assert time.monotonic() - started < 20

    def test_connections_are_closed(self, fake: FakeGateway) -> None:
        own, down = psutil.Process(), gateway(refused_url(), attempts=1)

        def ours() -> int:
            ports = [
                connection.raddr.port for connection in own.net_connections("tcp") if connection.status != "LISTEN"
            ]
            return sum(fake.url.endswith(f":{port}") for port in ports)

        gateway(fake.url).delete()
        for status in (200, 400, 500) * 10:
            fake.answers = [(status, b"words")]
            for client in (gateway(fake.url, attempts=1), down):
                with contextlib.suppress(OutputError):
                    client.put([b"a 1\n"])
        assert 0 == ours()


PAGE = b"""# HELP push_time_seconds Last Unix time when changing this group succeeded.
# TYPE push_time_seconds gauge
push_time_seconds{instance="",job="slurmscope"} 1.7e+09
push_time_seconds{instance="n1",job="slurmscope"} 1.7e+09
push_time_seconds{instance="n1",job="slurmscope",slurm_job="7"} 1.7e+09
push_time_seconds{instance="n1",job="slurmscope",x="a\\\\nb\\"}, job=\\"other\\nc"} 1.7e+09
push_time_seconds{instance="n1",job="other"} 1.7e+09
push_time_seconds{instance="n10",job="slurmscope"} 1.7e+09
push_failure_time_seconds{instance="n1",job="slurmscope",slurm_job="8"} 0
"""


class TestLeftOverGroups:
    def test_groups_are_those_under_our_labels(self, fake: FakeGateway) -> None:
        fake.answers = [(200, PAGE)]
        own = {"instance": "n1", "job": "slurmscope"}
        assert (own, {**own, "slurm_job": "7"}, {**own, "x": 'a\\nb"}, job="other\nc'}) == gateway(
            fake.url, grouping={"instance": "n1"}
        ).groups()

    def test_empty_instance_added_by_the_gateway_is_ignored(self, fake: FakeGateway) -> None:
        fake.answers = [(200, PAGE), (200, PAGE)]
        assert {"job": "slurmscope"} == gateway(fake.url).groups()[0]
        assert ({"instance": "", "job": "slurmscope"},) == gateway(fake.url, grouping={"instance": ""}).groups()

    def test_left_over_groups_are_deleted_one_by_one(self, fake: FakeGateway) -> None:
        fake.answers = [(200, PAGE)]
        assert 3 == gateway(fake.url, grouping={"instance": "n1"}).delete_left_over()
        start = "/metrics/job/slurmscope/instance/n1"
        assert [
            ("GET", "/metrics"),
            ("DELETE", start),
            ("DELETE", f"{start}/slurm_job/7"),
            ("DELETE", f"{start}/x/a%5Cnb%22%7D%2C%20job%3D%22other%0Ac"),
        ] == [(seen.method, seen.path) for seen in fake.seen]

    def test_overlong_line_is_an_error(self, fake: FakeGateway) -> None:
        fake.answers = [(200, b"x" * 2_000_000)]
        with pytest.raises(OutputError, match="is longer than"):
            gateway(fake.url).groups()

    def test_truncated_page_is_an_error(self) -> None:
        def cut(connection: socket.socket) -> None:
            connection.recv(4096)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(PAGE) + PAGE + b"\r\n"
            )

        with (
            scripted_server(cut) as url,
            pytest.raises(OutputError, match=r"GET failed after 1 attempt: .*IncompleteRead"),
        ):
            gateway(url, attempts=1).groups()

    @given(value=st.text(), more=st.binary(max_size=200))
    def test_any_page_is_parsed(self, value: str, more: bytes) -> None:
        with FakeGateway().serving() as fake:
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            line = f'push_time_seconds{{instance="",job="slurmscope",x="{escaped}"}} 1\n'.encode()
            fake.answers = [(200, line + more)]
            assert {"job": "slurmscope", "x": value} == gateway(fake.url).groups()[0]

    def test_page_shorter_than_its_length_is_an_error(self) -> None:
        def truncate(connection: socket.socket) -> None:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(PAGE) + 1) + PAGE)

        with scripted_server(truncate) as url, pytest.raises(OutputError, match="1 bytes are missing"):
            gateway(url, attempts=1).groups()
