# SPDX-License-Identifier: Apache-2.0
"""The client distinguishes failures that pass from refusals, and keeps secrets out of messages."""

from __future__ import annotations

import socket
from email.utils import formatdate
from pathlib import Path

import pytest

from slurmscope import __version__
from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import Section
from slurmscope.http.client.address import parse_address
from slurmscope.http.client.credentials import parse_headers
from slurmscope.metrics.family import Family
from slurmscope.remote_write.client import RemoteWriteClient, WriteFailed, WriteRefused, parse_retry_after
from slurmscope.remote_write.encoding import RequestEncoder
from slurmscope.remote_write.feature import (
    RemoteWriteSettings,
    parse_external_labels,
    parse_write_url,
)
from slurmscope.remote_write.service import UP
from tests.fakes.remote_write import FakeReceiver
from tests.fakes.scripted_server import read_whole_request, scripted_server

(REQUEST,) = RequestEncoder({"job": "x"}).encode([Family(UP, {(): 1.0})], 1000)
NOW = 1_700_000_000.0


def client(url: str, **settings: object) -> RemoteWriteClient:
    return RemoteWriteClient(RemoteWriteSettings(**settings), parse_write_url(url), lambda: NOW)  # type: ignore[arg-type]


def test_request_has_the_headers_of_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Bearer s3cret\n")
    headers = parse_headers([f"Authorization=@{tmp_path}/token", "X-Scope-OrgID=hpc"])
    with FakeReceiver().serving() as receiver:
        client(receiver.url, headers=headers).send(REQUEST.body)

    (request,) = receiver.requests
    assert "POST /api/v1/write HTTP/1.1" == request.line
    expected = {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
        "User-Agent": f"slurmscope/{__version__}",
        "Authorization": "Bearer s3cret",
        "X-Scope-OrgID": "hpc",
    }
    assert expected.items() <= request.headers.items()
    assert [1.0] == [sample.value for sample in receiver.samples]


@pytest.mark.parametrize("status", [500, 503, 429, 301])
def test_error_that_is_not_about_the_samples_is_a_failure_that_passes(status: int) -> None:
    with (
        FakeReceiver(answers=[(status, b"busy", "Retry-After: 7")]).serving() as receiver,
        pytest.raises(WriteFailed, match=rf"answered {status}: busy$") as caught,
    ):
        client(receiver.url).send(REQUEST.body)

    assert 7.0 == caught.value.retry_after_seconds


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 499])
def test_refusal_is_final(status: int) -> None:
    with (
        FakeReceiver(answers=[(status, b"out of \x1b order", "")]).serving() as receiver,
        pytest.raises(WriteRefused, match=rf"answered {status}: out of \\u001b order$"),
    ):
        client(receiver.url).send(REQUEST.body)


def test_secret_that_the_server_repeats_is_not_shown() -> None:
    with (
        FakeReceiver(answers=[(401, b"bad token s3cret", "")]).serving() as receiver,
        pytest.raises(WriteRefused, match=r"bad token SECRET$"),
    ):
        client(receiver.url, headers=parse_headers(["Authorization=Bearer s3cret"])).send(REQUEST.body)


def test_secret_in_an_answer_that_is_not_http_is_not_shown() -> None:
    def handle(connection: socket.socket) -> None:
        read_whole_request(connection)
        connection.sendall(b"no s3cret here")

    with (
        scripted_server(handle) as url,
        pytest.raises(WriteFailed, match="no SECRET here"),
    ):
        client(f"{url}/write", headers=parse_headers(["Authorization=Bearer s3cret"])).send(REQUEST.body)


def test_unreachable_server_and_unreadable_files_are_failures_that_pass(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/write"
        with pytest.raises(WriteFailed, match="is unreachable"):
            client(url).send(REQUEST.body)
    with pytest.raises(WriteFailed, match="cannot read the file"):
        client(url, headers=parse_headers([f"X=@{tmp_path}/none"])).send(REQUEST.body)
    with pytest.raises(WriteFailed, match=r"CA file .* cannot be used"):
        client("https://127.0.0.1/write", ca_file=tmp_path / "none").send(REQUEST.body)
    with pytest.raises(WriteFailed, match=r"client certificate .* cannot be used"):
        client("https://127.0.0.1/write", cert_file=tmp_path / "none").send(REQUEST.body)


def test_key_without_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"remote-write-key-file needs --output.remote-write-cert-file"):
        client("https://127.0.0.1/write", key_file=Path("/key"))


def test_server_that_does_not_answer_is_given_up() -> None:
    with FakeReceiver().serving() as receiver:
        receiver.may_answer.clear()
        with pytest.raises(WriteFailed, match="timed out"):
            client(receiver.url).send(REQUEST.body, 0.05)
        receiver.may_answer.set()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("99999999999999", 300.0),
        (formatdate(NOW + 20, usegmt=True), 20.0),
        (formatdate(NOW - 20, usegmt=True), 0.0),
        ("", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("²", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 300.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float) -> None:
    assert seconds == parse_retry_after(value, NOW)


def test_url_needs_a_path() -> None:
    assert parse_address("http://h:9090/api/v1/write") == parse_write_url("http://h:9090/api/v1/write")
    for url in ("http://h:9090", "http://h:9090/", "unix:/run/x", "ftp://h/x", "http://u:p@h/x"):
        with pytest.raises(ValueError, match="not of the form"):
            parse_write_url(url)


def test_labels_that_are_reserved_are_refused() -> None:
    assert ("cluster=a", "rack=") == parse_external_labels(["cluster=a", "rack="])
    for labels in (["__name__=x"], ["=x"], ["a-b=x"]):
        with pytest.raises(ValueError, match=r"reserved|not of the form"):
            parse_external_labels(labels)


@pytest.mark.parametrize("given", ["1KiB", 5, True, None])
def test_odd_buffer_sizes_are_refused(given: object) -> None:
    (declared,) = (s for s in Section(name="output", type=RemoteWriteSettings).settings() if s.key.endswith("buffer"))
    with pytest.raises(ValueError, match=r"is less than the minimum of 64KiB|is not a size"):
        declared.parse(given)
    assert 1 << 20 == declared.parse("1MiB")
