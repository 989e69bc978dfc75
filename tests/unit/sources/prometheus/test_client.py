# SPDX-License-Identifier: Apache-2.0
"""A Prometheus is asked within its limits, again when that may help, and by the name that it wants to hear."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurmscope.errors import ConfigError, MalformedAnswer, ServerBusy, ServerError, ServerRefused, ServerTimedOut
from slurmscope.http_client.address import parse_address
from slurmscope.sources.prometheus.answers import NotLetIn, Reply, TooMuchAsked
from slurmscope.sources.prometheus.client import Prometheus
from slurmscope.sources.prometheus.settings import PrometheusSettings
from tests.fakes.certificates import make_authority, make_identity
from tests.fakes.prometheus_server import FakePrometheus, failure, matrix, read_form, vector
from tests.fakes.scripted_server import GENEROUS_SECONDS, http_answer, scripted_server

ONE = vector(({"slurm_job": "7"}, (15.0, "1")))
BUSY = http_answer(503, b"busy")


@dataclass(slots=True)
class Asking:
    """Ask a fake server, without waiting between attempts."""

    fake: FakePrometheus
    url: str
    pauses: list[float] = field(default_factory=list)

    def client(self, **changed: object) -> Prometheus:
        settings = PrometheusSettings(url=parse_address(self.url), **changed)  # type: ignore[arg-type]
        return Prometheus(settings, sleep=self.pauses.append, random=lambda: 1.0)

    def ask(self, *answers: bytes, seconds: float = GENEROUS_SECONDS, **changed: object) -> Reply:
        self.fake.answers = list(answers)
        return ask(self.client(**changed), seconds)


def ask(client: Prometheus, seconds: float = GENEROUS_SECONDS) -> Reply:
    return client.ask_instant("up", 15.0, kind="totals", until=time.monotonic() + seconds)


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    fake = FakePrometheus()
    with scripted_server(fake.handle) as url:
        yield Asking(fake, f"{url}/prefix")


def test_instant_question_is_a_form(asking: Asking) -> None:
    reply = asking.ask(ONE, timeout=10.0)

    (asked,) = asking.fake.queries
    assert (1.0,) == reply.series[0].values
    assert "POST /prefix/api/v1/query HTTP/1.1" == asked.line
    assert {"query": "up", "time": "15.000"} == {name: asked.form[name] for name in ("query", "time")}
    assert "Authorization" not in asked.headers


def test_server_is_told_to_give_up_before_we_do(asking: Asking) -> None:
    asking.ask(ONE, timeout=10.0)

    assert pytest.approx(9.0) == float(asking.fake.queries[0].form["timeout"])


def test_range_question_has_its_steps(asking: Asking) -> None:
    asking.fake.answers = [matrix()]
    until = time.monotonic() + GENEROUS_SECONDS
    asking.client().ask_range("up", (15.0, 45.5), 15.0, kind="curves", until=until)

    (asked,) = asking.fake.queries
    assert "POST /prefix/api/v1/query_range HTTP/1.1" == asked.line
    assert ("15.000", "45.500", "15.000") == (asked.form["start"], asked.form["end"], asked.form["step"])


def test_what_may_pass_is_tried_again_after_growing_pauses(asking: Asking) -> None:
    asking.ask(BUSY, BUSY, ONE, retries=2)

    assert [0.5, 1.0] == asking.pauses


def test_pauses_differ_and_have_an_end(asking: Asking) -> None:
    settings = PrometheusSettings(url=parse_address(asking.url), retries=7)
    client = Prometheus(settings, sleep=asking.pauses.append, random=lambda: 0.0)
    asking.fake.answers = [BUSY]
    with pytest.raises(ServerBusy):
        ask(client)

    assert [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0] == asking.pauses


def test_retries_are_counted_and_then_given_up(asking: Asking) -> None:
    client = asking.client(retries=2)
    asking.fake.answers = [BUSY]
    with pytest.raises(ServerBusy, match=r"http://127.0.0.1:\d+/prefix: it answered 503: busy"):
        ask(client)

    counts = client.ledger.snapshot()
    totals = counts.by_kind["totals"]
    assert (3, 2, {"failed": 3}) == (totals.questions, totals.retries, totals.failures)
    assert counts.is_up is False


def test_pause_that_ends_too_late_is_not_begun(asking: Asking) -> None:
    def clock() -> float:
        # The first answer takes nearly all of the time.
        return time.monotonic() + (GENEROUS_SECONDS - 0.1 if asking.fake.queries else 0.0)

    settings = PrometheusSettings(url=parse_address(asking.url), retries=2)
    asking.fake.answers = [BUSY]
    with pytest.raises(ServerBusy):
        ask(Prometheus(settings, clock=clock, sleep=asking.pauses.append, random=lambda: 1.0))

    assert ([], 1) == (asking.pauses, len(asking.fake.queries))


def test_closed_port_is_tried_again() -> None:
    pauses: list[float] = []
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        settings = PrometheusSettings(url=parse_address(f"http://127.0.0.1:{held.getsockname()[1]}"), retries=1)
        with pytest.raises(ServerRefused, match="is unreachable"):
            ask(Prometheus(settings, sleep=pauses.append, random=lambda: 1.0))

    assert [0.5] == pauses


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (http_answer(401, b"who are you?"), NotLetIn),
        (http_answer(302, b"", "Location: http://127.0.0.1:1/"), ServerError),
        (http_answer(200, b"<html>Sign in</html>"), MalformedAnswer),
        (ONE[:-10], MalformedAnswer),
        (failure(400, "bad_data", "parse error"), ServerError),
        (failure(200, "execution", "broken"), ServerError),
        (failure(422, "execution", "too many samples"), TooMuchAsked),
    ],
)
def test_what_does_not_pass_is_not_tried_again(asking: Asking, answer: bytes, expected: type[Exception]) -> None:
    with pytest.raises(expected, match=r"^http://127.0.0.1:\d+/prefix: "):
        asking.ask(answer, retries=2)

    assert 1 == len(asking.fake.queries)


def test_server_that_finds_it_too_much_is_up(asking: Asking) -> None:
    client = asking.client()
    asking.fake.answers = [failure(422, "execution", "too many samples")]
    with pytest.raises(TooMuchAsked):
        ask(client)

    counts = client.ledger.snapshot()
    assert (True, {"too_much": 1}) == (counts.is_up, counts.by_kind["totals"].failures)


def test_answer_that_is_too_long_is_too_much(asking: Asking) -> None:
    with pytest.raises(TooMuchAsked, match="longer than 1024 bytes"):
        asking.ask(http_answer(200, b" " * 2000), max_answer_bytes=1024)


def test_silent_server_is_left_at_the_time_limit() -> None:
    is_over = threading.Event()

    def handle(connection: socket.socket) -> None:
        read_form(connection)
        is_over.wait(GENEROUS_SECONDS)

    with scripted_server(handle) as url:
        client = Prometheus(PrometheusSettings(url=parse_address(url), timeout=0.2))
        with pytest.raises(ServerTimedOut, match="timed out"):
            ask(client)
        is_over.set()

    assert {"timeout": 1} == client.ledger.snapshot().by_kind["totals"].failures


def test_no_more_questions_at_once_than_set() -> None:
    is_over, is_asked = threading.Event(), threading.Event()

    def handle(connection: socket.socket) -> None:
        read_form(connection)
        is_asked.set()
        is_over.wait(GENEROUS_SECONDS)
        connection.sendall(ONE)

    with scripted_server(handle) as url:
        client = Prometheus(PrometheusSettings(url=parse_address(url), max_questions=1))
        first = threading.Thread(target=ask, args=(client,))
        first.start()
        assert is_asked.wait(GENEROUS_SECONDS)
        with pytest.raises(ServerTimedOut, match="other questions"):
            ask(client, seconds=0.05)
        is_over.set()
        first.join(GENEROUS_SECONDS)
        assert 1 == ask(client).points


def test_points_and_bytes_are_counted(asking: Asking) -> None:
    client = asking.client()
    asking.fake.answers = [ONE]
    ask(client)
    ask(client)

    totals = client.ledger.snapshot().by_kind["totals"]
    assert (2, 2, 2 * len(ONE.partition(b"\r\n\r\n")[2])) == (totals.questions, totals.points, totals.received_bytes)
    assert totals.seconds > 0


def test_token_of_the_moment_is_sent(asking: Asking, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    asking.ask(ONE, bearer_token_file=token)
    token.write_text("second")
    asking.ask(ONE, bearer_token_file=token)

    assert ["Bearer first", "Bearer second"] == [asked.headers["Authorization"] for asked in asking.fake.queries]


def test_user_and_password_are_sent(asking: Asking, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("pass: wörd\n", encoding="utf-8")
    asking.ask(ONE, user="ada", password_file=password)

    kind, _, sent = asking.fake.queries[0].headers["Authorization"].partition(" ")
    assert ("Basic", "ada:pass: wörd") == (kind, base64.b64decode(sent).decode("utf-8"))


def test_secret_is_not_in_what_a_server_repeats(asking: Asking, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hidden-word")
    with pytest.raises(NotLetIn, match="SECRET is not welcome") as told:
        asking.ask(http_answer(403, b"hidden-word is not welcome"), bearer_token_file=token)

    assert "hidden" not in str(told.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb", b"\xff", "gehéim".encode(), b"x" * 20_000, None])
def test_secret_that_cannot_be_used_is_told_without_it(asking: Asking, tmp_path: Path, content: bytes | None) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    client = asking.client(bearer_token_file=token)
    with pytest.raises(NotLetIn, match=r"token (cannot be read|does not hold)"):
        ask(client)

    assert [] == asking.fake.queries
    assert client.ledger.snapshot().is_up is False


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"url": None}, "--prometheus.url is not set"),
        ({"user": "ada"}, "--prometheus.password-file"),
        ({"password_file": Path("p")}, "--prometheus.user"),
        ({"user": "ada", "password_file": Path("p"), "bearer_token_file": Path("t")}, "or a bearer token"),
        ({"url": parse_address("https://prom"), "ca_file": Path("/nonexistent/ca.pem")}, "--prometheus.ca-file"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(changed: dict[str, object], words: str) -> None:
    known: dict[str, object] = {"url": parse_address("http://prom")}
    with pytest.raises(ConfigError, match=words):
        Prometheus(PrometheusSettings(**(known | changed)))  # type: ignore[arg-type]


def test_tls_is_checked_with_the_given_authority(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    identity = make_identity(tmp_path, "server", authority, "IP:127.0.0.1")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(identity.cert, identity.key)

    def handle(connection: socket.socket) -> None:
        with served.wrap_socket(connection, server_side=True) as secured:
            read_form(secured)
            secured.sendall(ONE)

    with scripted_server(handle) as url:
        address = parse_address(url.replace("http:", "https:"))
        trusting = Prometheus(PrometheusSettings(url=address, ca_file=authority.cert))
        doubting = Prometheus(PrometheusSettings(url=address, retries=0))
        assert 1 == ask(trusting).points
        with pytest.raises(ServerRefused, match=r"(?i)certificate.verify.failed"):
            ask(doubting)
