# SPDX-License-Identifier: Apache-2.0
"""Check that queries keep their limits, are retried where that helps, and carry the credentials."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurmscope.core.errors import ConfigError, MalformedAnswer, ServerBusy, ServerError, ServerRefused, ServerTimedOut
from slurmscope.http.client.address import parse_address
from slurmscope.http.client.credentials import parse_headers
from slurmscope.prometheus.client import Prometheus
from slurmscope.prometheus.responses import AccessDenied, PartialAnswer, QueryTooLarge, Reply
from slurmscope.prometheus.settings import PrometheusSettings
from tests.fakes.prometheus_server import FakePrometheus, failure, matrix, read_form, vector
from tests.fakes.scripted_server import GENEROUS_SECONDS, http_answer, scripted_server, scripted_tls_server

ONE = vector(({"slurm_job": "7"}, (15.0, "1")))
BUSY = http_answer(503, b"busy")


@dataclass(slots=True)
class FakeServer:
    """Query a fake server, without pauses between attempts."""

    fake: FakePrometheus
    url: str
    pauses: list[float] = field(default_factory=list)

    def client(self, **changed: object) -> Prometheus:
        settings = PrometheusSettings(url=parse_address(self.url), **changed)  # type: ignore[arg-type]
        return Prometheus(settings, sleep=self.pauses.append)

    def query(self, *answers: bytes, seconds: float = GENEROUS_SECONDS, **changed: object) -> Reply:
        self.fake.answers = list(answers)
        return send_query(self.client(**changed), seconds)


def send_query(client: Prometheus, seconds: float = GENEROUS_SECONDS) -> Reply:
    return client.query_instant("up", 15.0, kind="totals", until=time.monotonic() + seconds)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    fake = FakePrometheus()
    with scripted_server(fake.handle) as url:
        yield FakeServer(fake, f"{url}/prefix")


def test_instant_query_is_sent_as_a_form(server: FakeServer) -> None:
    reply = server.query(ONE, timeout=10.0)

    (query,) = server.fake.queries
    assert (1.0,) == reply.series[0].values
    assert "POST /prefix/api/v1/query HTTP/1.1" == query.line
    assert {"query": "up", "time": "15.000"} == {name: query.form[name] for name in ("query", "time")}
    assert "Authorization" not in query.headers


def test_server_gets_a_shorter_timeout_than_ours(server: FakeServer) -> None:
    server.query(ONE, timeout=10.0)

    assert pytest.approx(9.0) == float(server.fake.queries[0].form["timeout"])


def test_range_query_has_start_end_and_step(server: FakeServer) -> None:
    server.fake.answers = [matrix()]
    until = time.monotonic() + GENEROUS_SECONDS
    server.client().query_range("up", (15.0, 45.5), 15.0, kind="curves", until=until)

    (query,) = server.fake.queries
    assert "POST /prefix/api/v1/query_range HTTP/1.1" == query.line
    assert ("15.000", "45.500", "15.000") == (query.form["start"], query.form["end"], query.form["step"])


def test_temporary_failure_is_retried_after_growing_pauses(server: FakeServer) -> None:
    server.query(BUSY, BUSY, ONE, retries=2)

    first, second = server.pauses
    assert 0.25 <= first <= 0.5 <= second <= 1.0


def test_retries_are_limited_and_counted(server: FakeServer) -> None:
    client = server.client(retries=2)
    server.fake.answers = [BUSY]
    with pytest.raises(ServerBusy, match=r"http://127.0.0.1:\d+/prefix: it answered 503: busy"):
        send_query(client)

    counts = client.counters.snapshot()
    totals = counts.by_kind["totals"]
    assert (3, 2, {"failed": 3}) == (totals.queries, totals.retries, totals.failures)
    assert counts.is_up is False


def test_no_pause_beyond_the_deadline(server: FakeServer) -> None:
    def clock() -> float:
        # The first answer takes nearly all of the time.
        return time.monotonic() + (GENEROUS_SECONDS - 0.1 if server.fake.queries else 0.0)

    settings = PrometheusSettings(url=parse_address(server.url), retries=2)
    server.fake.answers = [BUSY]
    with pytest.raises(ServerBusy):
        send_query(Prometheus(settings, clock=clock, sleep=server.pauses.append))

    assert ([], 1) == (server.pauses, len(server.fake.queries))


def test_unreachable_server_is_retried() -> None:
    pauses: list[float] = []
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        settings = PrometheusSettings(url=parse_address(f"http://127.0.0.1:{held.getsockname()[1]}"), retries=1)
        with pytest.raises(ServerRefused, match="is unreachable"):
            send_query(Prometheus(settings, sleep=pauses.append))

    assert 1 == len(pauses)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (http_answer(401, b"who are you?"), AccessDenied),
        (http_answer(302, b"", "Location: http://127.0.0.1:1/"), ServerError),
        (http_answer(200, b"<html>Sign in</html>"), MalformedAnswer),
        (ONE[:-10], MalformedAnswer),
        (failure(400, "bad_data", "parse error"), ServerError),
        (failure(200, "execution", "broken"), ServerError),
        (failure(422, "execution", "too many samples"), QueryTooLarge),
    ],
)
def test_permanent_failure_is_not_retried(server: FakeServer, answer: bytes, expected: type[Exception]) -> None:
    with pytest.raises(expected, match=r"^http://127.0.0.1:\d+/prefix: "):
        server.query(answer, retries=2)

    assert 1 == len(server.fake.queries)


def test_server_that_rejects_a_large_query_is_up(server: FakeServer) -> None:
    client = server.client()
    server.fake.answers = [failure(422, "execution", "too many samples")]
    with pytest.raises(QueryTooLarge):
        send_query(client)

    counts = client.counters.snapshot()
    assert (True, {"too_much": 1}) == (counts.is_up, counts.by_kind["totals"].failures)


def test_overlong_answer_means_a_query_too_large(server: FakeServer) -> None:
    with pytest.raises(QueryTooLarge, match="longer than 1024 bytes"):
        server.query(http_answer(200, b" " * 2000), max_answer_bytes=1024)


def test_silent_server_times_out() -> None:
    is_over = threading.Event()

    def handle(connection: socket.socket) -> None:
        read_form(connection)
        is_over.wait(GENEROUS_SECONDS)

    with scripted_server(handle) as url:
        client = Prometheus(PrometheusSettings(url=parse_address(url), timeout=0.2))
        with pytest.raises(ServerTimedOut, match="timed out"):
            send_query(client)
        is_over.set()

    assert {"timeout": 1} == client.counters.snapshot().by_kind["totals"].failures


def test_number_of_queries_at_the_same_time_is_limited() -> None:
    is_over, is_asked = threading.Event(), threading.Event()

    def handle(connection: socket.socket) -> None:
        read_form(connection)
        is_asked.set()
        is_over.wait(GENEROUS_SECONDS)
        connection.sendall(ONE)

    with scripted_server(handle) as url:
        client = Prometheus(PrometheusSettings(url=parse_address(url), max_queries=1))
        first = threading.Thread(target=send_query, args=(client,))
        first.start()
        assert is_asked.wait(GENEROUS_SECONDS)
        with pytest.raises(ServerTimedOut, match="other queries were still running"):
            send_query(client, seconds=0.05)
        is_over.set()
        first.join(GENEROUS_SECONDS)
        assert 1 == send_query(client).points


def test_points_and_bytes_are_counted(server: FakeServer) -> None:
    client = server.client()
    server.fake.answers = [ONE]
    send_query(client)
    send_query(client)

    totals = client.counters.snapshot().by_kind["totals"]
    assert (2, 2, 2 * len(ONE.partition(b"\r\n\r\n")[2])) == (totals.queries, totals.points, totals.received_bytes)
    assert totals.seconds > 0


def test_current_token_is_sent(server: FakeServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    server.query(ONE, bearer_token_file=token)
    token.write_text("second")
    server.query(ONE, bearer_token_file=token)

    assert ["Bearer first", "Bearer second"] == [query.headers["Authorization"] for query in server.fake.queries]


def test_user_and_password_are_sent(server: FakeServer, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("pass: wörd\n", encoding="utf-8")
    server.query(ONE, user="ada", password_file=password)

    kind, _, sent = server.fake.queries[0].headers["Authorization"].partition(" ")
    assert ("Basic", "ada:pass: wörd") == (kind, base64.b64decode(sent).decode("utf-8"))


def test_whole_answers_are_requested(server: FakeServer) -> None:
    server.query(ONE)

    form = server.fake.queries[0].form
    assert ("1", "false") == (form["deny_partial_response"], form["partial_response"])


def test_answers_of_caches_are_declined(server: FakeServer) -> None:
    server.query(ONE)

    query = server.fake.queries[0]
    assert ("no-store", "1") == (query.headers["Cache-Control"], query.form["nocache"])


def test_partial_answer_is_retried_and_then_a_failure(server: FakeServer) -> None:
    part = vector(({"slurm_job": "7"}, (15.0, "1")), isPartial=True)
    assert 1 == server.query(part, ONE, retries=1).points
    client = server.client(retries=1)
    server.fake.answers = [part]
    with pytest.raises(PartialAnswer, match="only a part of the series"):
        send_query(client)

    counts = client.counters.snapshot()
    assert (False, {"partial": 2}) == (counts.is_up, counts.by_kind["totals"].failures)


def test_headers_are_sent_with_current_values(server: FakeServer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("first\n")
    headers = parse_headers(["X-Scope-OrgID=hpc|lab", f"X-Api-Key=@{key}"])
    server.query(ONE, headers=headers)
    key.write_text("second")
    server.query(ONE, headers=headers)

    sent = [(query.headers["X-Scope-OrgID"], query.headers["X-Api-Key"]) for query in server.fake.queries]
    assert [("hpc|lab", "first"), ("hpc|lab", "second")] == sent


def test_header_that_a_server_repeats_is_removed(server: FakeServer) -> None:
    headers = parse_headers(["X-Api-Key=hidden-word", "X-Scope-OrgID=a"])
    with pytest.raises(AccessDenied, match="SECRET may not read tenant a") as caught:
        server.query(http_answer(401, b"hidden-word may not read tenant a"), headers=headers)

    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"a\r\nHost: b", b" a", b"\xff", "gehéim".encode()])
def test_invalid_file_of_a_header_is_reported_without_its_content(
    server: FakeServer, tmp_path: Path, content: bytes
) -> None:
    key = tmp_path / "key"
    key.write_bytes(content)
    with pytest.raises(AccessDenied, match=r"(does not contain|must contain)"):
        server.query(ONE, headers=parse_headers([f"X-Api-Key=@{key}"]))

    assert [] == server.fake.queries


def test_secret_that_a_server_repeats_is_removed(server: FakeServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hidden-word")
    with pytest.raises(AccessDenied, match="SECRET is not welcome") as caught:
        server.query(http_answer(403, b"hidden-word is not welcome"), bearer_token_file=token)

    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(("status", "shown_bytes"), [(200, 80), (403, 300), (422, 300)])
def test_no_part_of_a_secret_remains_where_an_answer_is_truncated(
    server: FakeServer, tmp_path: Path, status: int, shown_bytes: int
) -> None:
    secret = "abcdefghijklmnopqrstuvwxyz"
    token = tmp_path / "token"
    token.write_text(secret)
    for cut in (5, 13, len(secret) - 1, len(secret)):
        body = b"-" * (shown_bytes - cut) + secret.encode() + b"-" * 100
        with pytest.raises((ServerError, MalformedAnswer)) as caught:
            server.query(http_answer(status, body), bearer_token_file=token)
        assert ("SECRET" in str(caught.value), False) == (True, secret[:4] in str(caught.value))


@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb", b"\xff", "gehéim".encode(), b"x" * 20_000, None])
def test_invalid_secret_file_is_reported_without_its_content(
    server: FakeServer, tmp_path: Path, content: bytes | None
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    client = server.client(bearer_token_file=token)
    with pytest.raises(AccessDenied, match=r"(cannot read|does not contain|must contain)"):
        send_query(client)

    assert [] == server.fake.queries
    assert client.counters.snapshot().is_up is False


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"url": None}, "set --prometheus.url"),
        ({"user": "ada"}, "--prometheus.password-file"),
        ({"password_file": Path("p")}, "--prometheus.user"),
        ({"user": "ada", "password_file": Path("p"), "bearer_token_file": Path("t")}, "or a bearer token"),
        ({"headers": parse_headers("authorization=x"), "bearer_token_file": Path("t")}, "--prometheus.headers"),
        ({"key_file": Path("k")}, "--prometheus.key-file needs --prometheus.cert-file"),
        ({"url": parse_address("https://prom"), "ca_file": Path("/nonexistent/ca.pem")}, "--prometheus.ca-file"),
    ],
)
def test_inconsistent_settings_are_rejected(changed: dict[str, object], message: str) -> None:
    known: dict[str, object] = {"url": parse_address("http://prom")}
    with pytest.raises(ConfigError, match=message):
        Prometheus(PrometheusSettings(**(known | changed)))  # type: ignore[arg-type]


def test_tls_certificate_is_verified_with_the_ca_file(tmp_path: Path) -> None:
    def handle(connection: socket.socket) -> None:
        read_form(connection)
        connection.sendall(ONE)

    with scripted_tls_server(handle, tmp_path) as (url, authority):
        address = parse_address(url)
        trusting = Prometheus(PrometheusSettings(url=address, ca_file=authority))
        doubting = Prometheus(PrometheusSettings(url=address, retries=0))
        assert 1 == send_query(trusting).points
        with pytest.raises(ServerRefused, match="is not trusted: unable to get local issuer"):
            send_query(doubting)
