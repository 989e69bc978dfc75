# SPDX-License-Identifier: Apache-2.0
"""Check the Pushgateway client against gateways that behave in every way a network allows."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

import psutil
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import delete_from_gateway, push_to_gateway

from slurmscope.errors import ConfigError, OutputError
from slurmscope.outputs.push import PushGateway, _group_path

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
LABELS = st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(lambda n: n != "job"), st.text())


class Seen(NamedTuple):
    """What a gateway was asked."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class FakeGateway:
    """Answer with the next of ``answers``, or well."""

    answers: list[tuple[int, bytes]] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    further_header: bytes = b""
    url: str = ""

    def talk(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as incoming:
            method, path, _ = incoming.readline().decode().split()
            lines = iter(lambda: incoming.readline().decode().strip(), "")
            headers = dict(line.split(": ", 1) for line in lines)
            body = incoming.read(int(headers.get("Content-Length", 0)))
        self.seen.append(Seen(method, path, headers, body))
        status, text = self.answers.pop(0) if self.answers else (200, b"")
        head = b"HTTP/1.1 %d Words\r\nContent-Length: %d\r\n" % (status, len(text))
        connection.sendall(head + self.further_header + b"\r\n" + text)

    @contextlib.contextmanager
    def serving(self) -> Iterator[FakeGateway]:
        with raw_server(self.talk) as self.url:
            yield self


@contextlib.contextmanager
def raw_server(talk: Callable[[socket.socket], None], host: str = "127.0.0.1") -> Iterator[str]:
    """Let ``talk`` answer every connection byte by byte, as no HTTP library would."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        talk(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(30)


@pytest.fixture
def fake() -> Iterator[FakeGateway]:
    with FakeGateway().serving() as gateway:
        yield gateway


def gateway(url: str, **settings: object) -> PushGateway:
    """Make a client that does not really sleep."""
    defaults: dict[str, object] = {"job": "slurmscope", "sleep": lambda _: None, "random": lambda: 0.5}
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
    def test_path_reads_back(self, job: str, grouping: dict[str, str]) -> None:
        assert [("job", job), *sorted(grouping.items())] == read_path(_group_path({**grouping, "job": job}))

    @example(job=".", grouping={"x": "..", "y": "", "z": "../.."})
    @given(job=st.text(min_size=1), grouping=LABELS)
    def test_no_value_can_leave_its_place(self, job: str, grouping: dict[str, str]) -> None:
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
    def test_what_is_no_utf_8_is_replaced(self, value: str) -> None:
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
    def test_wrong_address_is_refused_and_not_repeated(self, url: str) -> None:
        with pytest.raises(ConfigError, match=r"http://\[USER:PASSWORD@\]HOST:PORT") as caught:
            gateway(url)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("name", ["job", "", "0x", "a-b", "a/b", "__name__", "ä", "a\n"])
    def test_wrong_label_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match="is not a label that a pushed group can have"):
            gateway("http://localhost:1", grouping={name: "x"})

    def test_empty_job_is_refused(self) -> None:
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
    def test_page_is_put_whole(self, fake: FakeGateway) -> None:
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

    def test_address_of_ipv6_is_reached(self) -> None:
        fake = FakeGateway()
        try:
            with raw_server(fake.talk, "::1") as url:
                gateway(url).delete()
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
        assert [url] == [f"http://{seen.headers['Host']}" for seen in fake.seen]

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429])
    def test_refusal_is_told_and_not_tried_again(self, fake: FakeGateway, status: int) -> None:
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

    def test_huge_refusal_is_cut(self, fake: FakeGateway) -> None:
        fake.answers = [(400, b"x" * 10_000_000)]
        with pytest.raises(OutputError) as caught:
            gateway(fake.url).put([b"a 1\n"])
        assert len(str(caught.value)) < 1000

    def test_early_refusal_of_a_large_page_is_read(self) -> None:
        def refuse(connection: socket.socket) -> None:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large")
            time.sleep(0.2)  # then the connection breaks, with most of the page unsent

        with raw_server(refuse) as url, pytest.raises(OutputError, match="answered 413: too large"):
            gateway(url, attempts=1).put([b"x" * 65536] * 300)

    @pytest.mark.parametrize(
        "answer",
        [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000, b"\0" * 100],
    )
    def test_what_speaks_no_http_is_told(self, answer: bytes) -> None:
        def talk(connection: socket.socket) -> None:
            connection.recv(4096)
            connection.sendall(answer)

        with (
            raw_server(talk) as url,
            pytest.raises(OutputError, match=r"^PUT to http.* failed after 2 attempts: .") as c,
        ):
            gateway(url, attempts=2).put([b"a 1\n"])
        assert str(c.value).isprintable()


class TestPatience:
    def test_passing_trouble_is_tried_again(self, fake: FakeGateway) -> None:
        fake.answers = [(503, b"busy"), (500, b""), (200, b"")]
        gateway(fake.url).put([b"a 1\n"])
        assert [b"a 1\n"] * 3 == [seen.body for seen in fake.seen]

    def test_attempts_are_counted_and_the_last_word_is_told(self, fake: FakeGateway) -> None:
        fake.answers = [(503, b"busy")] * 9
        with pytest.raises(OutputError) as caught:
            gateway(fake.url, attempts=3).put([b"a 1\n"])
        assert f"PUT to {fake.url} failed after 3 attempts: answered 503: busy" == str(caught.value)
        assert 3 == len(fake.seen)

    def test_pauses_double_and_are_scattered(self) -> None:
        pauses: list[float] = []
        scatter = iter([0.0, 0.5, 1.0])
        client = gateway(refused_url(), attempts=4, sleep=pauses.append, random=lambda: next(scatter, 0.0))
        with pytest.raises(OutputError):
            client.delete()
        assert [0.25, 1.0, 3.0] == pauses

    def test_scatter_is_a_part_of_one(self) -> None:
        scatter = PushGateway(url="http://localhost:1", job="x").random
        drawn = {scatter() for _ in range(100)}
        assert len(drawn) > 50
        assert all(0 <= value < 1 for value in drawn)

    def test_deadline_ends_the_trying(self) -> None:
        now = [100.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        client = gateway(refused_url(), attempts=99, deadline_seconds=10.0, sleep=sleep, clock=lambda: now[0])
        with pytest.raises(OutputError, match="after 5 attempts"):  # pauses 0.5, 1, 2, 4; the next, of 8, is too long
            client.delete()
        assert now[0] < 110

    def test_end_of_the_service_ends_the_trying(self) -> None:
        is_stopping = threading.Event()
        is_stopping.set()
        with pytest.raises(OutputError, match="after 1 attempt:"):
            gateway(refused_url(), attempts=99, sleep=is_stopping.wait).delete()

    def test_gateway_that_dribbles_is_given_up(self) -> None:
        # Each byte comes within the socket's own limit, so only a limit for the whole can end this.
        def dribble(connection: socket.socket) -> None:
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            for _ in range(600):
                connection.sendall(b"x")
                time.sleep(0.05)

        with raw_server(dribble) as url:
            started = time.monotonic()
            with pytest.raises(OutputError, match="timed out"):
                gateway(url, attempts=1, timeout_seconds=0.3).put([b"a 1\n"])
            assert time.monotonic() - started < 20

    def test_nothing_stays_open(self, fake: FakeGateway) -> None:
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


class TestLeftOver:
    def test_groups_are_those_under_our_labels(self, fake: FakeGateway) -> None:
        fake.answers = [(200, PAGE)]
        own = {"instance": "n1", "job": "slurmscope"}
        assert (own, {**own, "slurm_job": "7"}, {**own, "x": 'a\\nb"}, job="other\nc'}) == gateway(
            fake.url, grouping={"instance": "n1"}
        ).groups()

    def test_empty_instance_that_the_gateway_adds_is_no_label(self, fake: FakeGateway) -> None:
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

    def test_line_without_end_is_given_up(self, fake: FakeGateway) -> None:
        fake.answers = [(200, b"x" * 2_000_000)]
        with pytest.raises(OutputError, match="is too long"):
            gateway(fake.url).groups()

    def test_page_cut_off_in_the_middle_is_no_list(self) -> None:
        def cut(connection: socket.socket) -> None:
            connection.recv(4096)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(PAGE) + PAGE + b"\r\n"
            )

        with raw_server(cut) as url, pytest.raises(OutputError, match="failed after 1 attempt: IncompleteRead"):
            gateway(url, attempts=1).groups()

    @given(value=st.text(), more=st.binary(max_size=200))
    def test_any_page_is_read_without_a_crash(self, value: str, more: bytes) -> None:
        with FakeGateway().serving() as fake:
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            line = f'push_time_seconds{{instance="",job="slurmscope",x="{escaped}"}} 1\n'.encode()
            fake.answers = [(200, line + more)]
            assert {"job": "slurmscope", "x": value} == gateway(fake.url).groups()[0]
