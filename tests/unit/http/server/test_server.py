# SPDX-License-Identifier: Apache-2.0
"""Check well-behaved clients over real sockets."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterable

import pytest

from slurmscope.http.server.address import ListenHost
from slurmscope.http.server.connection import ConnectionLimits
from slurmscope.http.server.request import HttpRequest
from slurmscope.http.server.response import App, Response, text_response
from tests.fakes.exposition import PAGE, BreakingExposition, FakeExposition, HeldExposition
from tests.fakes.raw_http import ask, connect, exchange, get, read_all, read_answer, status_of
from tests.unit.http.server.conftest import Serve


def routes(**apps: App) -> App:
    """Route by the path without its slash."""
    return lambda request: apps[request.path.removeprefix("/")](request)


def test_page_of_many_blocks_arrives_whole(serve: Serve) -> None:
    blocks = [b"x%d 1\n" % number * 9000 for number in range(20)]
    answer = get(serve(FakeExposition(*blocks[:10], b"", *blocks[10:])).address)
    assert answer.status == 200
    assert answer.headers["transfer-encoding"] == "chunked"
    assert b"".join(blocks) == answer.body


def test_empty_page_is_an_empty_body(serve: Serve) -> None:
    answer = get(serve(FakeExposition(b"")).address)
    assert (200, b"") == (answer.status, answer.body)


def test_compressed_page_is_what_the_service_gave(serve: Serve) -> None:
    answer = get(
        serve(FakeExposition(gzip.compress(b"a 1\n"), gzip.compress(b"b 2\n"))).address, Accept_Encoding="gzip"
    )
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer.body) == b"a 1\nb 2\n"


def test_connection_is_kept_for_further_requests(serve: Serve) -> None:
    with connect(serve().address) as sock:
        answers = [ask(sock), ask(sock, "/-/healthy"), ask(sock, "/nothing"), ask(sock, method="HEAD"), ask(sock)]
    assert [200, 200, 404, 200, 200] == [answer.status for answer in answers]
    assert [PAGE, PAGE] == [answers[0].body, answers[-1].body]


def test_connection_ends_after_its_share_of_requests(serve: Serve) -> None:
    with connect(serve(limits=ConnectionLimits(requests_per_connection=3)).address) as sock:
        answers = [ask(sock) for _ in range(3)]
        assert [None, None, "close"] == [answer.headers.get("connection") for answer in answers]
        assert read_all(sock) == b""


def test_idle_connection_is_closed_without_a_response(serve: Serve) -> None:
    with connect(serve(limits=ConnectionLimits(idle_seconds=0.1)).address) as sock:
        assert ask(sock).status == 200
        assert read_all(sock) == b""


def test_head_has_the_headers_of_get_and_no_body(serve: Serve) -> None:
    exposition = FakeExposition()
    address = serve(exposition).address
    for path in ("/metrics", "/", "/-/ready", "/nothing"):
        with connect(address) as sock:
            head = ask(sock, path, method="HEAD")
            whole = ask(sock, path)
        ignored = ("date",)
        assert {k: v for k, v in whole.headers.items() if k not in ignored} == {
            k: v for k, v in head.headers.items() if k not in ignored
        }
        assert (whole.status, b"") == (head.status, head.body)


def test_http10_gets_a_plain_body_and_a_close(serve: Serve) -> None:
    reply = exchange(serve(FakeExposition(PAGE, PAGE)).address, b"GET /metrics HTTP/1.0\r\n\r\n")
    head, _, body = reply.partition(b"\r\n\r\n")
    assert status_of(reply) == 200
    assert body == PAGE * 2
    assert b"chunked" not in head
    assert b"Connection: close" in head


def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    one = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"
    two = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    reply = exchange(serve().address, one + b"\r\n" + two)
    first, second = reply.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert first.endswith(b"\r\n\r\nHealthy.\n")
    assert PAGE in second


def test_head_in_single_bytes_is_understood(serve: Serve) -> None:
    with connect(serve().address) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n":
            sock.sendall(bytes([byte]))
        assert read_answer(sock).body == PAGE


def test_answers_carry_no_banner(serve: Serve) -> None:
    answer = get(serve().address, "/nothing")
    assert "server" not in answer.headers
    assert "date" in answer.headers


def test_many_clients_at_once_are_all_answered(serve: Serve) -> None:
    exposition = FakeExposition()
    address = serve(exposition, max_requests=0).address
    statuses: list[int] = []

    def scrape() -> None:
        with connect(address) as sock:
            statuses.extend(ask(sock).status for _ in range(5))

    threads = [threading.Thread(target=scrape) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [200] * 250 == statuses
    assert len(exposition.calls) == 250


def test_scrapes_over_the_limit_get_503_while_health_is_answered(serve: Serve) -> None:
    exposition = HeldExposition()
    address = serve(exposition, max_requests=1).address
    with connect(address) as held:
        held.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert exposition.begun.acquire(timeout=30)
        assert get(address).status == 503
        assert get(address, "/-/healthy").status == 200
        exposition.go_on.set()
        assert read_answer(held).body == b"first 1\nsecond 2\n"
    assert get(address).status == 200


def test_place_of_a_client_that_left_is_free_again(serve: Serve) -> None:
    class Endless(FakeExposition):
        def page(self) -> Iterable[bytes]:
            while True:
                yield b"x 1\n" * 10_000

    address = serve(Endless(), max_requests=1, limits=ConnectionLimits(write_seconds=30)).address
    for _ in range(3):
        for _ in range(500):
            with connect(address) as sock:
                sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                if sock.recv(12) == b"HTTP/1.1 200":
                    break
        else:
            pytest.fail("the place was never free again")


def test_two_addresses_and_ipv6_are_served(serve: Serve) -> None:
    running = serve(addresses=("127.0.0.1:0", "[::1]:0"))
    assert ["127.0.0.1", "::1"] == [address.host for address in running.server.addresses]
    assert [200, 200] == [get(address).status for address in running.server.addresses]


def test_peer_of_a_mapped_address_is_written_as_ipv4(serve: Serve) -> None:
    port = serve(addresses=(":0",), app=lambda request: text_response(200, request.peer)).address.port
    assert get(ListenHost("127.0.0.1", port)).body == b"127.0.0.1\n"


def test_client_that_waits_to_send_a_body_is_answered_at_once(serve: Serve) -> None:
    with connect(serve().address) as sock:
        sock.sendall(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert read_answer(sock).status == 405


def test_unread_body_is_not_taken_for_the_next_request(serve: Serve) -> None:
    with connect(serve().address) as sock:
        smuggled = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(smuggled), smuggled))
        assert read_answer(sock).headers["connection"] == "close"
        assert read_all(sock) == b""


def test_failure_before_the_first_block_is_one_sentence(serve: Serve) -> None:
    running = serve(BreakingExposition(0))
    with connect(running.address) as sock:
        answer = ask(sock)
        assert answer.status == 500
        assert b"secret" not in answer.body
        assert b"Traceback" not in answer.body
        assert ask(sock, "/-/healthy").status == 200
    assert running.server.counters["GET", "500"] == 1


def receive_into(received: bytearray, sock: socket.socket) -> None:
    while data := sock.recv(65536):
        received += data


@pytest.mark.parametrize("version", [b"HTTP/1.1\r\nHost: x", b"HTTP/1.0"])
def test_page_that_breaks_off_never_looks_complete(serve: Serve, version: bytes) -> None:
    with connect(serve(BreakingExposition(2)).address) as sock:
        sock.sendall(b"GET /metrics %b\r\n\r\n" % version)
        received = bytearray()
        with pytest.raises(ConnectionResetError):
            receive_into(received, sock)
    assert not received.endswith(b"0\r\n\r\n")
    assert b"secret" not in received


def test_failing_route_is_one_sentence(serve: Serve) -> None:
    def fail(_: HttpRequest) -> Response:
        raise OSError("secret path")

    answer = get(serve(app=fail).address, "/x")
    assert answer.status == 500
    assert b"secret" not in answer.body


def test_requests_are_counted_by_method_and_code(serve: Serve) -> None:
    running = serve()
    get(running.address)
    get(running.address, method="HEAD")
    get(running.address, method="BREW")
    get(running.address, "/nothing")
    exchange(running.address, b"garbage\r\n\r\n")
    expected = {("GET", "200"): 1, ("HEAD", "200"): 1, ("other", "405"): 1, ("GET", "404"): 1, ("other", "400"): 1}
    assert expected == dict(running.server.counters)


def test_streamed_answer_is_closed_exactly_once(serve: Serve) -> None:
    closed: list[str] = []
    app = routes(
        whole=lambda _: Response(body=iter([b"a", b"b"]), close=lambda: closed.append("whole")),
        head=lambda _: Response(body=iter([b"a"]), close=lambda: closed.append("head")),
        sentence=lambda _: text_response(200, "x"),
    )
    with connect(serve(app=app).address) as sock:
        ask(sock, "/whole")
        ask(sock, "/head", method="HEAD")
        ask(sock, "/sentence")
    assert ["whole", "head"] == closed


def test_streamed_answer_that_fails_at_once_is_closed_too(serve: Serve) -> None:
    closed: list[bool] = []
    running = serve(app=lambda _: Response(body=BreakingExposition(0).page(), close=lambda: closed.append(True)))
    assert get(running.address).status == 500
    assert [True] == closed
